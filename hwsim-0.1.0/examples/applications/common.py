"""What the applications share: the arithmetics that they compare, a table, claims that decide the exit code, a figure.

Only the matrix products differ from case to case. They go through `hwsim.emulate`; everything else is fp64, so that
what a table shows is the error of the products alone.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import hwsim

Numbers = Mapping[str, float]


@dataclass(frozen=True)
class Case:
    """One arithmetic for the products: a scheme on a device, or NumPy's fp64 where there is no device."""

    label: str
    device: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def products(self, *, threads: int | None = None) -> contextlib.AbstractContextManager[Any]:
        """Within the block np.matmul and np.tensordot go there. threads: host threads (1 suits small matrices)."""
        if not self.device:
            return contextlib.nullcontext()
        return hwsim.emulate(device=self.device, measure=False, threads=threads, **self.arguments)


CASES = {
    case.label: case
    for case in (
        Case("fp64"),
        Case("fp32", "h200", {"format": "fp32"}),
        Case("fp16", "h200", {"format": "fp16"}),
        Case("tf32", "h200", {"format": "tf32"}),
        Case("tf32x3", "a100", {"scheme": "tf32x3"}),
        Case("ape-fp32-f", "a100", {"scheme": "ape-fp32-f"}),
        Case("bf16x9", "b200", {"scheme": "bf16x9"}),
        Case("sgemm-cube", "ascend910a", {"scheme": "sgemm-cube"}),
    )
}


@dataclass(frozen=True)
class Application:
    """One of the examples.

    cases: labels, "fp64" first. study(case, quick): what one case computed. compare(fp64's, its own): the columns of
    its row. claims(rows): sentences and whether they hold. draw(axes, rows, results): the figure.
    """

    title: str
    cases: Sequence[str]
    study: Callable[[Case, bool], Any]
    compare: Callable[[Any, Any], Numbers]
    claims: Callable[[Mapping[str, Numbers]], Iterable[tuple[str, bool]]]
    draw: Callable[[Any, Mapping[str, Numbers], Mapping[str, Any]], None]

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """Run the cases, print the table and the claims; 1 where a claim does not hold."""
        parser = argparse.ArgumentParser(description=self.title)
        parser.add_argument("--quick", action="store_true", help="a small problem, a few seconds")
        parser.add_argument("--plot", metavar="FILE", help="write the figure (needs matplotlib)")
        options = parser.parse_args(arguments)
        results: dict[str, Any] = {}
        rows: dict[str, Numbers] = {}
        print(self.title)
        for label in self.cases:
            start = time.perf_counter()
            results[label] = self.study(CASES[label], options.quick)
            seconds = time.perf_counter() - start
            rows[label] = self.compare(results["fp64"], results[label])
            if len(rows) == 1:
                print(f"{'products':12} {'device':11}" + "".join(f"{name:>18}" for name in rows[label]) + "   seconds")
            cells = "".join(f"{value:18.9g}" if abs(value) > 1 else f"{value:18.2e}" for value in rows[label].values())
            print(f"{label:12} {CASES[label].device or 'numpy':11}{cells}{seconds:10.1f}", flush=True)
        found = list(self.claims(rows))
        for text, holds in found:
            print(f"{'holds' if holds else 'FAILS'}: {text}")
        if options.plot:
            self._plot(options.plot, rows, results)
        return 0 if all(holds for _, holds in found) else 1

    def _plot(self, file: str, rows: Mapping[str, Numbers], results: Mapping[str, Any]) -> None:
        try:
            import matplotlib
        except ImportError:
            raise SystemExit("--plot needs matplotlib: pip install 'hwsim[plot]'") from None
        matplotlib.use("Agg")
        from matplotlib import pyplot

        figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
        self.draw(axes, rows, results)
        axes.set_title(self.title, fontsize=10)
        figure.savefig(file, dpi=150)
        pyplot.close(figure)
        print(f"figure in {file}")


def bars(axes: Any, rows: Mapping[str, Numbers], columns: Sequence[str]) -> None:
    """A group of bars for each case but fp64, on a logarithmic axis."""
    labels = [label for label in rows if label != "fp64"]
    width = 0.8 / len(columns)
    for i, column in enumerate(columns):
        places = np.arange(len(labels)) + (i - (len(columns) - 1) / 2) * width
        axes.bar(places, [rows[label][column] for label in labels], width, label=column)
    axes.set_yscale("log")
    axes.set_xticks(np.arange(len(labels)), labels, rotation=20)
    axes.legend()


def relative(reference: Any, computed: Any) -> float:
    """||computed - reference|| / ||reference||."""
    return float(np.linalg.norm(computed - reference) / np.linalg.norm(reference))
