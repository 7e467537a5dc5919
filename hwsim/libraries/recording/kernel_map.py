"""Which GEMM a measured kernel is, by its name: a YAML file of regular expressions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hwsim.datafiles.yaml_text import FileProblem, Node, parse, plain
from hwsim.errors import ConfigError, nearest
from hwsim.gemm.option_types import ARRAY
from hwsim.host.input_files import read_text
from hwsim.request.declarations import declared_by_name
from hwsim.studies.measured import SIZES, MeasuredKernel

APART = ("exact", "threads", "engine", "timing", "seed", "operand_distribution")  # they say nothing of a kernel


@dataclass(frozen=True, slots=True)
class KernelMap:
    """Patterns in the order of the file, each with options of hwsim.run; the first that is found in a name counts."""

    entries: tuple[tuple[re.Pattern[str], Mapping[str, Any]], ...]

    def gemm(self, name: str) -> Mapping[str, Any] | None:
        """The options for a kernel's name, or None."""
        return next((options for pattern, options in self.entries if pattern.search(name)), None)

    def applied(self, kernels: Iterable[MeasuredKernel]) -> list[MeasuredKernel]:
        """The kernels with their GEMMs; what a kernel's own columns say takes precedence."""
        applied = []
        for kernel in kernels:
            mapped = self.gemm(kernel.name)
            both = kernel.gemm if mapped is None else {**mapped, **(kernel.gemm or {})}
            applied.append(replace(kernel, gemm=both))
        return applied


def read_kernel_map(path: Path) -> KernelMap:
    """Read {"regular expression": {m: ..., n: ..., k: ..., format: ..., other options of hwsim.run}}.

    Raises InputError for a file that cannot be read, ConfigError with all problems and their lines.
    """
    text = read_text(path, "map")
    tree, kernels = parse(text, str(path))
    problems = list(kernels)
    entries = []
    if not isinstance(tree.value, dict):
        problems.append(FileProblem(tree.mark, "", "needs a mapping from regular expressions to GEMMs"))
    else:
        for pattern, node in tree.value.items():
            options = _options(pattern, node, problems)
            try:
                entries.append((re.compile(pattern), options))
            except re.error as error:
                problems.append(FileProblem(tree.keys[pattern], pattern, f"not a regular expression: {error}"))
    if problems:
        raise ConfigError(
            [str(problem) for problem in sorted(problems, key=lambda problem: problem.mark)], "kernel map"
        )
    return KernelMap(tuple(entries))


def _options(pattern: str, node: Node, problems: list[FileProblem]) -> dict[str, Any]:
    allowed = ["scheme", *(name for name, (first, *_) in declared_by_name().items() if first.option.type is not ARRAY)]
    allowed = [name for name in allowed if name not in APART]
    if not isinstance(node.value, dict):
        problems.append(FileProblem(node.mark, pattern, f"got {plain(node)!r}; needs a mapping with m, n and k"))
        return {}
    for key, mark in node.keys.items():
        if key not in allowed:
            text = f"unknown key '{key}'; allowed: options of hwsim.run (hwsim run --help-all){nearest(key, allowed)}"
            problems.append(FileProblem(mark, pattern, text))
    for size in SIZES:
        child = node.value.get(size)
        if child is None:
            problems.append(FileProblem(node.mark, pattern, f"missing key '{size}'"))
        elif not isinstance(child.value, int) or isinstance(child.value, bool) or child.value < 1:
            text = f"{size}: got {plain(child)!r}; needs an integer of at least 1"
            problems.append(FileProblem(child.mark, pattern, text))
    return {key: plain(child) for key, child in node.value.items()}
