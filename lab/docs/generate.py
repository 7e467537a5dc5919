"""Writes the generated parts of these pages: what stands between `<!-- generated: NAME -->` and `<!-- end -->`.

`python lab/docs/generate.py` rewrites them in place; a test fails when a page is behind the devices and the code.
`python lab/docs/generate.py --long` also writes those that take minutes (`<!-- long: NAME -->`), `--long=NAME` one of
them; tests look at some lines. `python lab/docs/generate.py --papers` measures the papers' claims and what moves them
(what is not cached takes its time), and writes a page for each paper, the tables of papers.md, the recorded verdicts
(papers/verdicts.csv) and README's counts; with `--cached` no assumption is varied that was not before, with `--jobs=N`
so many processes run, with `--minutes=N` assumptions are varied one by one for so long, the cheapest for a claim first.
Tests compare counts and names with the claims' files and with the recorded verdicts.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import hwsim
from hwsim.api import program
from hwsim.datafiles.provenance import LEVELS
from hwsim.devices.loader import DEFAULT
from hwsim.machines import timing
from hwsim.program.ir import Instr, Kernel, Loop, StreamItem, Sync
from hwsim.report.text.device_text import evidence_text
from hwsim_lab.papers import (
    anchor_data,
    ascend910b,
    block_size,
    chip_times,
    influences,
    influences_text,
    processes,
    reproduce,
    reproduce_text,
    underflow,
    verdicts,
)
from hwsim_lab.papers import anchors as measured
from hwsim_lab.papers.anchors_text import rows_text, times_text
from hwsim_lab.papers.claims import PAPERS

FOLDER = Path(__file__).resolve().parent
_spec = importlib.util.spec_from_file_location("docs_generate", FOLDER.parents[1] / "docs" / "generate.py")
assert _spec is not None and _spec.loader is not None
#: The product's generator: how blocks are found and tables are set.
product = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(product)
table, BLOCK = product.table, product.BLOCK

PAPERS_BLOCK = re.compile(r"(<!-- measured: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
LONG_BLOCK = re.compile(r"(<!-- long: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
ANCHOR = {"tile": (176, 64, 176), "n_fused": 44}
EDGE = 5632
PAPER_TFLOPS = {buffering: anchor_data.value(f"910a-{buffering}") for buffering in ("double", "single")}
#: What the table of sensitivity changes: links, and what becomes of their numbers.
VARIED: dict[str, Mapping[str, Mapping[str, int]]] = {
    "nothing": {},
    "`GM_L1` 128 bytes per cycle": {"GM_L1": {"bytes_per_cycle": 128}},
    "`L1_L0A` 512, `L1_L0B` 256 bytes per cycle": {
        "L1_L0A": {"bytes_per_cycle": 512},
        "L1_L0B": {"bytes_per_cycle": 256},
    },
    "`L1_L0A`, `L1_L0B` without overhead": {"L1_L0A": {"overhead_cycles": 0}, "L1_L0B": {"overhead_cycles": 0}},
}
NOTHING: Mapping[str, Mapping[str, int]] = {}
#: Parts of a device that the table of parameters leaves out: arithmetic has a section of its own.
LEFT_OUT = ("dot_units", "specials", "mmad.m16n16k32.s32.s8.s8")
#: Exponents of SGEMM-cube's Fig. 2 that the page shows.
FIG2 = (-24, -20, -16, -14, -13, -12, -11, -10, -8, -6, -4, -3, -2, -1, 0, 2, 4, 8, 12, 15)


def parameters(name: str) -> str:
    """A device's numbers, one row for each part of the chip."""
    device = hwsim.device(name)
    parts: dict[str, list[tuple[str, str, str]]] = {}
    for path, value in _leaves(device.model_dump(mode="json", by_alias=True), ()):
        about = device.evidence.get(".".join(path))
        if about is None or about.source == DEFAULT.source or any(part in LEFT_OUT for part in path):
            continue
        span = f" ({_number(about.span[0])} to {_number(about.span[1])})" if about.span else ""
        part = " ".join(p for p in path[:-1] if p != "timing") or "chip"
        parts.setdefault(part, []).append((path[-1], _number(value), span, str(about.evidence)))

    alike: dict[tuple[str, str], list[str]] = {}
    for part, found in parts.items():
        for level in LEVELS:
            of_level = ", ".join(f"{name} {value}{span}" for name, value, span, evidence in found if evidence == level)
            if of_level:
                alike.setdefault((of_level, level), []).append(part)
    rows = ((_joined(names), numbers, level) for (numbers, level), names in alike.items())
    text = table(("part", "numbers (range that sources give)", "evidence"), rows)
    return f"{text}\nIn all: {evidence_text(device)}.\n"


def anchors() -> str:
    """The paper's best setting, run by the timing machine."""
    runs = {buffering: _gemm(buffering) for buffering in PAPER_TFLOPS}
    whole_run = {one.buffering: one.whole_run_tflops for one in block_size.throughput(hwsim.run)}

    def rows() -> Iterator[tuple[str, ...]]:
        for buffering, (cycles, tflops, _) in runs.items():
            paper = PAPER_TFLOPS[buffering]
            whole = f"{whole_run[buffering]:.1f}"
            yield buffering, f"{cycles:,}", f"{tflops:.1f}", f"{paper}", f"{100 * (tflops / paper - 1):+.1f} %", whole
        ratio, paper = (runs["double"][1] / runs["single"][1], PAPER_TFLOPS["double"] / PAPER_TFLOPS["single"])
        whole = f"{whole_run['double'] / whole_run['single']:.2f}"
        yield "double / single", "", f"{ratio:.2f}", f"{paper:.2f}", f"{100 * (ratio / paper - 1):+.1f} %", whole

    head = ("buffering", "cycles of `gemm`", "TFLOP/s", "paper", "difference", "whole run, TFLOP/s")
    return table(head, rows(), right=(1, 2, 3, 4, 5))


def sensitivity() -> str:
    """The same with one assumption changed."""

    def rows() -> Iterator[tuple[str, ...]]:
        cases = [(what, links, None) for what, links in VARIED.items()]
        later = "`L0C.free` signalled when the block of C is stored, not when it is copied out"
        for what, links, change in (*cases, (later, NOTHING, _freed_when_stored)):
            double, single = (_gemm(buffering, links, change)[1] for buffering in PAPER_TFLOPS)
            yield what, f"{double:.1f}", f"{single:.1f}", f"{double / single:.2f}"

    return table(("changed", "double", "single", "ratio"), rows(), right=(1, 2, 3))


def traffic() -> str:
    """Eq. 9 beside what the counters of the double-buffered gemm kernel say, in bytes over the three terms."""
    _, _, counted = _gemm("double")
    b_m, b_k, _ = ANCHOR["tile"]
    f = ANCHOR["n_fused"] * b_m * b_k / 2**19
    a = 3 * 2 * EDGE**2
    b_once = 3 * 2 * EDGE**3 / (32 * b_m)
    c = 3 * 4 * 2 * EDGE**3 * b_m / (f * 2**19)
    rows = (
        ("A, and B for every core: `GM_L1`", f"{a + 32 * b_once:,.0f}", f"{counted['GM_L1']:,}"),
        ("C read and written: `GM_UB` + `UB_GM`", f"{c:,.0f}", f"{counted['GM_UB'] + counted['UB_GM']:,}"),
        ("A, B once for all cores, C read: `HBM read`", f"{a + b_once + c / 2:,.0f}", f"{counted['HBM read']:,}"),
        ("C written: `HBM write`", f"{c / 2:,.0f}", f"{counted['HBM write']:,}"),
    )
    return table(("bytes in `gemm`", "Eq. 9", "counted"), iter(rows), right=(1, 2))


def _gemm(
    buffering: str,
    links: Mapping[str, Mapping[str, int]] = NOTHING,
    change: Callable[[StreamItem], StreamItem] | None = None,
) -> tuple[int, float, dict[str, int]]:
    """Cycles, TFLOP/s and traffic of the gemm kernel, on a variant of the device or with its nodes changed."""
    return _varied(buffering, links, change) if links or change else _as_it_is(buffering)


@cache
def _as_it_is(buffering: str) -> tuple[int, float, dict[str, int]]:
    return _varied(buffering, NOTHING, None)


def _varied(
    buffering: str, links: Mapping[str, Mapping[str, int]], change: Callable[[StreamItem], StreamItem] | None
) -> tuple[int, float, dict[str, int]]:
    said = {"source": "UT, KPP, ASC-MM; varied", "evidence": "assumption"}
    varied = {link: {k: {"value": v, **said} for k, v in numbers.items()} for link, numbers in links.items()}
    chip: dict[str, Any] = {"schema_version": 1, "name": "varied", "extends": "ascend910a", "links": varied}
    device, lowered = program(m=EDGE, n=EDGE, k=EDGE, device=chip, scheme="sgemm-cube", buffering=buffering, **ANCHOR)
    if change is not None:
        kernels = tuple(_changed(kernel, change) if kernel.name == "gemm" else kernel for kernel in lowered.kernels)
        lowered = replace(lowered, kernels=kernels)
    kernel = next(x for x in timing.run(lowered, device).kernels if x.name == "gemm")
    seconds = kernel.cycles / (device.clock_mhz * 1e6)
    return kernel.cycles, 2 * EDGE**3 / seconds / 1e12, dict(kernel.traffic_bytes)


def _changed(kernel: Kernel, change: Callable[[StreamItem], StreamItem]) -> Kernel:
    groups = tuple(
        replace(group, streams=tuple(replace(s, body=tuple(map(change, s.body))) for s in group.streams))
        for group in kernel.groups
    )
    return replace(kernel, groups=groups)


def _freed_when_stored(node: StreamItem) -> StreamItem:
    """The accumulator is given back only when the block of C has reached global memory."""
    if isinstance(node, Loop):
        return replace(node, body=tuple(map(_freed_when_stored, node.body)))
    free = Sync("L0C.free")
    if isinstance(node, Instr) and free in node.signals:
        return replace(node, signals=tuple(sync for sync in node.signals if sync != free))
    if isinstance(node, Instr) and Sync("C.done") in node.waits:
        return replace(node, signals=(*node.signals, free))
    return node


def _joined(parts: list[str]) -> str:
    """`links GM_L1, GM_UB` for parts of one block."""
    first, _, _ = parts[0].rpartition(" ")
    return ", ".join([parts[0], *(part.removeprefix(f"{first} ") for part in parts[1:])])


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) and value < 1e11 else f"{value:g}"


def _leaves(data: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(data, dict):
        for key, value in data.items():
            yield from _leaves(value, (*path, key))
    elif isinstance(data, int | float) and not isinstance(data, bool):
        yield path, data


BLOCKS: dict[str, Callable[[], str]] = {
    "sgemm-cube-fig2": lambda: underflow.markdown(underflow.points(FIG2)),
    "ascend910a-parameters": partial(parameters, "ascend910a"),
    "ascend910a-anchors": anchors,
    "ascend910a-sensitivity": sensitivity,
    "ascend910a-traffic": traffic,
    "ascend910b3-parameters": partial(parameters, "ascend910b3"),
    "ascend910b-gemm": lambda: ascend910b.points_text(ascend910b.huawei() + ascend910b.guide()),
    "ascend910b-torch": lambda: ascend910b.points_text(ascend910b.torch()),
    "ascend910b-fig11": lambda: ascend910b.fig11_text(list(ascend910b.fig11(ascend910b.FIG11_SHORT))),
    "ascend910b-readings": lambda: ascend910b.readings_text(list(ascend910b.readings())),
}


def points() -> str:
    """Every measured point but the H200's sets, beside the timing machine."""
    data = anchor_data.read()
    rows = measured.rows(data)
    misses = sum(not row.passes for row in rows)
    head = f"{len(rows)} points, {misses} of them beyond what is allowed.\n\n"
    sources = "".join(f"* {key}: {text}\n" for key, text in data.sources.items())
    return f"{head}{rows_text(rows)}\n{sources}"


def sets() -> str:
    """The H200's sets of GEMMs, beside the timing machine."""
    return times_text(measured.sets(anchor_data.read()))


def chips() -> str:
    """Public times chip by chip, with the sources that they name."""
    data = anchor_data.read()
    rows = chip_times.chip_times(data)
    used = {key for one in rows for key in one.row.source.split(", ")}
    sources = "".join(f"* {key}: {text}\n" for key, text in data.sources.items() if key in used)
    return f"{chip_times.page_text(rows)}\n{sources}"


LONG: dict[str, Callable[[], str]] = {"points": points, "sets": sets, "chips": chips}


def papers(only_cached: bool, jobs: int, minutes: float | None) -> None:
    """Write lab/docs/papers, the tables of papers.md and README's counts.

    only_cached: assumptions that were varied before are shown, no other is run. jobs: processes. minutes: after which
    no other assumption is varied.
    """
    if jobs > 1:
        processes.run(PAPERS, None, scale="quick", jobs=jobs)
    bare = reproduce.reproduce(PAPERS)
    if minutes is not None:
        print(f"runs that are left: {influences.vary_cheapest(bare, 'quick', 60 * minutes)}")
        only_cached = True
    found = influences.with_influences(bare, "quick", only_cached=only_cached, jobs=jobs)
    outcomes = found.outcomes
    for plot in (FOLDER / "papers" / "plots").glob("*.png"):
        plot.unlink()
    reproduce_text.write_pages(FOLDER / "papers", found)
    verdicts.write(outcomes)
    tables = {
        "papers-summary": reproduce_text.summary(outcomes),
        "papers-kinds": reproduce_text.by_kind(outcomes),
        "papers-readings": reproduce_text.other_readings(outcomes),
        "papers-hanging": hanging(outcomes),
        "papers-changes": verdicts.changes_text(outcomes),
    }
    page = FOLDER / "papers.md"
    text = page.read_text(encoding="utf-8")
    page.write_text(PAPERS_BLOCK.sub(lambda block: block[1] + tables[block[2]] + block[3], text), encoding="utf-8")
    readme = FOLDER.parents[1] / "README.md"
    readme.write_text(verdicts.in_readme(readme.read_text(encoding="utf-8"), outcomes), encoding="utf-8")


def hanging(outcomes: Sequence[reproduce.ClaimOutcome]) -> str:
    """How many verdicts turn with an assumption, and which."""
    rest = [one for one in outcomes if influences.is_asked(one) and not one.unmoved]
    varied = [one for one in rest if one.influences]
    turned = [one for one in varied if one.turns]
    held = sum(one.verdict == "holds" for one in turned)
    said = (
        f"{len(rest)} claims rest on assumptions. These were varied for {len(varied)} of them, and the verdict of "
        f'{len(turned)} turns. Of the verdicts that turn, {held} are "holds" with the values that hwsim assumes.\n'
    )
    return f"{said}\n{influences_text.hanging(turned)}"


def current(page: str) -> str:
    """The text of a page with its generated blocks made anew."""
    text: str = product.current(page, BLOCKS)
    return text


def wanted_blocks(options: Sequence[str]) -> set[str]:
    """The long blocks that the command line asks for. Raises SystemExit for one that there is not."""
    named = {x.partition("=")[2] for x in options if x.startswith("--long=")}
    if unknown := sorted(named - LONG.keys()):
        raise SystemExit(f"--long={unknown[0]}: no such block; there are {', '.join(LONG)}")
    return set(LONG) if "--long" in options else named


def main() -> None:
    """Rewrite what is behind."""
    options, wanted = sys.argv[1:], wanted_blocks(sys.argv[1:])
    if "--papers" in options:
        jobs = next((int(x.partition("=")[2]) for x in options if x.startswith("--jobs=")), 1)
        minutes = next((float(x.partition("=")[2]) for x in options if x.startswith("--minutes=")), None)
        papers("--cached" in options, jobs, minutes)
    for path in sorted(FOLDER.glob("*.md")):
        text = current(path.read_text(encoding="utf-8"))
        product.rewrite(path, LONG_BLOCK.sub(lambda found: _long(found, wanted), text))


def _long(found: re.Match[str], wanted: set[str]) -> str:
    """A long block, made anew where it is wanted."""
    return found[1] + LONG[found[2]]() + found[3] if found[2] in wanted else found[0]


if __name__ == "__main__":
    main()
