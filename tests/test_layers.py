"""The layers of the design, as data: a package imports only from rows above its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

#: Rows from the bottom of the dependency order up. A module is in the row of its longest listed prefix.
ROWS: tuple[tuple[str, ...], ...] = (
    ("hwsim.errors", "hwsim._version", "hwsim.threads"),
    ("hwsim.formats", "hwsim.files"),
    ("hwsim.numerics",),
    ("hwsim._kernels",),
    ("hwsim.datafiles", "hwsim.configs"),
    ("hwsim.devices",),
    ("hwsim.libraries",),
    ("hwsim.operands", "hwsim.gemm"),
    ("hwsim.schemes",),
    ("hwsim.program",),
    ("hwsim.arithmetic",),
    ("hwsim.evaluate",),
    ("hwsim.dataflows",),
    ("hwsim.machines",),
    ("hwsim.analysis",),
    ("hwsim.resolve",),
    ("hwsim", "hwsim.trace", "hwsim.report", "hwsim.studies"),
    ("hwsim.papers", "hwsim.golden"),
    ("hwsim.cli", "hwsim.__main__"),
)

#: Arrows forbidden within what the rows would allow: (importer, imported).
FORBIDDEN: tuple[tuple[str, str], ...] = (
    ("hwsim.machines.functional", "hwsim.machines.timing"),
    ("hwsim.machines.timing", "hwsim.machines.functional"),
    ("hwsim.schemes", "hwsim.machines"),
    ("hwsim.schemes", "hwsim.devices"),
    ("hwsim.schemes", "hwsim.dataflows"),
    ("hwsim.dataflows", "hwsim.schemes"),
    ("hwsim.evaluate", "hwsim.schemes"),
    ("hwsim.machines", "hwsim.schemes"),
    ("hwsim.numerics", "yaml"),
    ("hwsim._kernels", "yaml"),
)


def is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def row_of(module: str) -> int:
    """Row of the longest prefix in the table (anything else of hwsim: the surface)."""
    matches = [(len(name), row) for row, names in enumerate(ROWS) for name in names if is_within(module, name)]
    return max(matches)[1]


def imports_of(module: str, source: str, is_package: bool) -> Iterator[tuple[int, str]]:
    """(line, absolute name) of everything that a module imports, at any depth; `from x import y` gives x.y."""
    base = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = base[: len(base) - node.level + 1] if node.level else []
            name = ".".join([*start, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{name}.{alias.name}") for alias in node.names)


def modules() -> list[tuple[str, Path]]:
    found = []
    for path in sorted((ROOT / "hwsim").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found.append((".".join(parts[:-1] if parts[-1] == "__init__" else parts), path))
    return found


def backward_arrows(module: str, source: str, is_package: bool) -> list[str]:
    """Imports of `module` that point to a row below its own, or that the table forbids, one line each."""
    bad = []
    for line, name in imports_of(module, source, is_package):
        below = is_within(name, "hwsim") and row_of(name) > row_of(module)
        forbidden = any(is_within(module, one) and is_within(name, other) for one, other in FORBIDDEN)
        if below or forbidden:
            bad.append(f"{module}:{line} -> {name}")
    return bad


def test_no_backward_arrow() -> None:
    walked = modules()
    assert {"hwsim.formats", "hwsim.errors", "hwsim.numerics.reference"} <= {name for name, _ in walked}
    bad = [
        arrow
        for module, path in walked
        for arrow in backward_arrows(module, path.read_text(encoding="utf-8"), path.name == "__init__.py")
    ]
    assert bad == [], "imports against the layers:\n" + "\n".join(bad)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("hwsim.formats", "from hwsim.numerics.units import DotSpec"),
        ("hwsim.formats", "def f():\n    import hwsim.devices"),
        ("hwsim.numerics.fused", "from ..program import plan"),
        ("hwsim.machines.functional", "from . import timing"),
        ("hwsim.machines.timing.engine", "from hwsim.machines.functional import run"),
        ("hwsim.dataflows.davinci.coupled", "from hwsim.schemes.native import plan"),
        ("hwsim.schemes.native", "from hwsim import matmul"),
        ("hwsim.schemes.native", "import hwsim.devices.model"),
        ("hwsim.numerics.fused", "import yaml"),
    ],
)
def test_the_walker_sees_a_backward_arrow(module: str, source: str) -> None:
    assert len(backward_arrows(module, source, is_package=False)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("hwsim.numerics.fused", "from hwsim.formats import decode\nfrom .units import DotSpec\nimport numpy"),
        ("hwsim.dataflows.davinci.coupled", "from hwsim.gemm.plan import Plan"),
        ("hwsim.machines.functional", "from hwsim._kernels import fused"),
        ("hwsim.cli.run", "from hwsim import matmul"),
        ("hwsim.program.ir", "from hwsim import errors"),
    ],
)
def test_the_walker_lets_pass_what_is_allowed(module: str, source: str) -> None:
    assert backward_arrows(module, source, is_package=False) == []
