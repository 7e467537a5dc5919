"""The layers of the design, as data: a package imports only from rows above its own."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import hwsim

ROOT = Path(__file__).parent.parent

#: Rows from the bottom of the dependency order up. A module is in the row of its longest listed prefix.
ROWS: tuple[tuple[str, ...], ...] = (
    ("hwsim.errors", "hwsim._version", "hwsim.host"),
    ("hwsim.formats", "hwsim.report.notebook"),
    ("hwsim.numerics",),
    ("hwsim._kernels",),
    ("hwsim.backend",),
    ("hwsim.datafiles", "hwsim.configs"),
    ("hwsim.devices",),
    ("hwsim.libraries.model",),
    ("hwsim.operands", "hwsim.gemm"),
    (
        "hwsim.libraries.gemm_call",
        "hwsim.libraries.convolution_call",
        "hwsim.libraries.kernel_choice",
        "hwsim.libraries.protocol",
        "hwsim.libraries.on_device",
    ),
    ("hwsim.libraries.cublas", "hwsim.libraries.cusparselt"),
    ("hwsim.libraries.cudnn",),
    ("hwsim.libraries.published",),
    ("hwsim.libraries.pytorch",),
    ("hwsim.libraries.providers",),
    ("hwsim.schemes",),
    ("hwsim.program",),
    ("hwsim.arithmetic",),
    ("hwsim.evaluate",),
    ("hwsim.dataflows",),
    ("hwsim.machines",),
    ("hwsim.analysis",),
    ("hwsim.libraries.call",),
    ("hwsim.request",),
    ("hwsim.resolve",),
    (
        "hwsim.libraries.adopt",
        "hwsim.libraries.scheme_calls",
        "hwsim.libraries.sliced_calls",
        "hwsim.libraries.times",
        "hwsim.libraries.notices",
    ),
    ("hwsim.compute",),
    ("hwsim.trace",),
    ("hwsim.result", "hwsim.attending.attention_result"),
    ("hwsim.api", "hwsim.attending.array_attention"),
    (
        "hwsim.report.exact_element",
        "hwsim.report.explain",
        "hwsim.report.table_file",
        "hwsim.report.text.explain_text",
        "hwsim.report.text.number_text",
        "hwsim.report.text.words",
    ),
    ("hwsim.studies",),
    ("hwsim.report",),
    ("hwsim", "hwsim.frameworks"),
    ("hwsim.golden", "hwsim.torch", "hwsim.jax", "hwsim.plots"),
    ("hwsim.libraries.recording",),
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
    ("hwsim.dataflows", "hwsim.evaluate"),
    ("hwsim.dataflows", "hwsim.arithmetic"),
    ("hwsim.machines", "hwsim.evaluate"),
    ("hwsim.evaluate", "hwsim.schemes"),
    ("hwsim.machines", "hwsim.schemes"),
    ("hwsim.numerics", "yaml"),
    ("hwsim._kernels", "yaml"),
)

#: Compiled modules that compute no bits, and who imports them: the engine of times, the tables of programs, and the
#: coalescing of their instructions. All others (gemm, conversions, elementwise lanes) are the CPU backend's alone.
COMPILED_WITHOUT_BITS: tuple[tuple[str, str], ...] = (
    ("hwsim.machines", "hwsim._kernels.engine"),
    ("hwsim.machines.kernel_values", "hwsim._kernels.coalesce"),
    ("hwsim.program", "hwsim._kernels.engine"),
    ("hwsim.program", "hwsim._kernels.program"),
)


#: Packages that hwsim does without: imported inside functions, the line marked `# optional`.
OPTIONAL = (
    "cupy",
    "dask",
    "distributed",
    "jax",
    "matplotlib",
    "onnx",
    "pandas",
    "perfetto",
    "plotly",
    "pyarrow",
    "shtab",
    "torch",
    "triton",
)

#: Modules that import others by name when asked for: hwsim's public names, the command line with its verbs, the
#: dataflows of hwsim's own families, the engine of GPUs, and estimates of what a library runs. Their TYPE_CHECKING
#: blocks, and texts of the form "module:object", say what they import so, and count as imports.
LAZY = (
    *("hwsim", "hwsim.backend.by_name", "hwsim.cli", "hwsim.cli.verbs", "hwsim.dataflows.registry"),
    "hwsim.resolve.library_on_device",
)
NAMED = re.compile(r"hwsim(?:\.\w+)*:\w+")
BY_NAME = ("import_module", "__import__")
LABORATORY = re.compile(r"hwsim_lab(\.\w+)+(:\w+)?")

#: Names of types with two meanings. To stay empty.
TWICE: frozenset[str] = frozenset()
CLASS_NAME = re.compile(r"_?[A-Z][a-z]\w*")


@dataclass(frozen=True)
class Import:
    """One name that a module imports: where, how, and the source line."""

    line: int
    name: str
    in_function: bool
    for_types: bool
    text: str


def is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def row_of(module: str) -> int:
    """Row of the longest prefix in the table (anything else of hwsim: the surface)."""
    matches = [(len(name), row) for row, names in enumerate(ROWS) for name in names if is_within(module, name)]
    return max(matches)[1]


#: What holds statements, imports and classes among them; expressions, most of a tree, hold none.
STATEMENTS = (ast.stmt, ast.excepthandler, ast.match_case)

#: The tree of a text, once for all rules.
parsed = cache(ast.parse)


@cache
def imports_of(module: str, source: str, is_package: bool) -> list[Import]:
    """Everything that a module imports, at any depth, by its absolute name; `from x import y` gives x.y.

    So does the text "x:y" in a lazy module.
    """
    base = module.split(".") if is_package else module.split(".")[:-1]
    lines = source.split("\n")

    def names(node: ast.Import | ast.ImportFrom) -> list[str]:
        if isinstance(node, ast.Import):
            return [alias.name for alias in node.names]
        start = base[: len(base) - node.level + 1] if node.level else []
        name = ".".join([*start, *([node.module] if node.module else [])])
        return [f"{name}.{alias.name}" for alias in node.names]

    def walk(node: ast.AST, in_function: bool, for_types: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import | ast.ImportFrom):
            text = lines[node.lineno - 1]
            yield from (Import(node.lineno, name, in_function, for_types, text) for name in names(node))
        if module in LAZY and isinstance(node, ast.Constant) and NAMED.fullmatch(str(node.value)):
            yield Import(node.lineno, node.value.replace(":", "."), False, False, lines[node.lineno - 1])
        inside = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.body:
                yield from walk(child, inside, True)
            for child in node.orelse:
                yield from walk(child, inside, for_types)
            return
        for child in ast.iter_child_nodes(node):
            if module in LAZY or isinstance(child, STATEMENTS):
                yield from walk(child, inside, for_types)

    return list(walk(parsed(source), False, False))


def modules() -> list[tuple[str, Path]]:
    found = []
    for path in sorted((ROOT / "hwsim").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found.append((".".join(parts[:-1] if parts[-1] == "__init__" else parts), path))
    return found


def backward_arrows(module: str, source: str, is_package: bool) -> list[str]:
    """Imports of `module` that point to a row below its own, or that the table forbids, one line each."""
    bad = []
    for one in imports_of(module, source, is_package):
        below = is_within(one.name, "hwsim") and row_of(one.name) > row_of(module)
        forbidden = any(is_within(module, left) and is_within(one.name, right) for left, right in FORBIDDEN)
        if below or forbidden:
            bad.append(f"{module}:{one.line} -> {one.name}")
    return bad


def kernels_beside_the_backend(module: str, source: str, is_package: bool = False) -> list[str]:
    """Imports of compiled kernels by a module that is handed a backend, one line each."""
    if is_within(module, "hwsim.backend") or is_within(module, "hwsim._kernels"):
        return []
    return [
        f"{module}:{one.line} -> {one.name}"
        for one in imports_of(module, source, is_package)
        if is_within(one.name, "hwsim._kernels")
        and not any(is_within(module, left) and is_within(one.name, right) for left, right in COMPILED_WITHOUT_BITS)
    ]


def late_imports(module: str, source: str, is_package: bool = False) -> list[str]:
    """Imports inside functions that are not of optional packages, and imports by name outside the lazy modules."""
    bad = []
    for one in imports_of(module, source, is_package):
        optional = one.name.split(".")[0] in OPTIONAL and "# optional" in one.text
        if one.in_function and not one.for_types and not optional:
            bad.append(f"{module}:{one.line} imports {one.name} inside a function")
    for node in ast.walk(parsed(source)):
        called = node.func if isinstance(node, ast.Call) else None
        name = called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""
        if name in BY_NAME and module not in LAZY:
            bad.append(f"{module}:{node.lineno} calls {name}")
    return bad


def graph_of(sources: Mapping[str, tuple[str, bool]]) -> dict[str, set[str]]:
    """Module -> modules that it imports, at any depth. sources: module -> (its text, whether it is a package).

    Importing a module runs the packages above it, except those that the importer itself lies in. TYPE_CHECKING blocks
    run nothing, so of them the modules alone count: ideas must not go in a circle either.
    """
    graph: dict[str, set[str]] = {}
    for module, (source, is_package) in sources.items():
        found = graph.setdefault(module, set())
        for one in imports_of(module, source, is_package):
            name = one.name
            while name and name not in sources:
                name = name.rpartition(".")[0]
            found.add(name)
            while "." in name and (not one.for_types or module in LAZY):
                name = name.rpartition(".")[0]
                if not is_within(module, name):
                    found.add(name)
        found -= {"", module}
    return graph


def circles_of(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one module, each sorted (Tarjan)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        number[module] = lowest[module] = len(number)
        stack.append(module)
        for other in sorted(graph[module]):
            if other not in number:
                visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in stack:
                lowest[module] = min(lowest[module], number[other])
        if lowest[module] == number[module]:
            at = stack.index(module)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for module in sorted(graph):
        if module not in number:
            visit(module)
    return found


def types_named_twice(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """Name of a class or of a module's type alias -> the modules that define it, where it has more than one meaning.

    Aliases of one text have one meaning.
    """
    meanings: dict[str, dict[str, str]] = {}
    for module, source in sources.items():
        for node in ast.walk(parsed(source)):
            if isinstance(node, ast.ClassDef):
                place = f"{module}:{node.lineno}"
                meanings.setdefault(node.name, {})[place] = place
        for name, value in aliases(parsed(source)):
            meanings.setdefault(name, {}).setdefault(ast.unparse(value).replace("npt.", ""), f"{module}:{value.lineno}")
    return {name: list(places.values()) for name, places in meanings.items() if len(places) > 1}


def aliases(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Aliases of types in a module, at its top or for type checkers alone: names like a class's, and their values."""
    for node in (part for top in tree.body for part in (top.body if isinstance(top, ast.If) else [top])):
        target: ast.expr | None = None
        if isinstance(node, ast.Assign):
            target = node.targets[0]
        elif isinstance(node, ast.AnnAssign) and "TypeAlias" in ast.unparse(node.annotation):
            target = node.target
        if isinstance(target, ast.Name) and CLASS_NAME.fullmatch(target.id):
            assert isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
            yield target.id, node.value


@pytest.fixture(scope="module", autouse=True)
def forgotten() -> Iterator[None]:
    """The trees of all modules are in nobody's way afterwards."""
    yield
    parsed.cache_clear()
    imports_of.cache_clear()


def test_no_backward_arrow() -> None:
    walked = modules()
    assert {"hwsim.formats", "hwsim.errors", "hwsim.numerics.reference"} <= {name for name, _ in walked}
    bad = [
        arrow
        for module, path in walked
        for arrow in backward_arrows(module, path.read_text(encoding="utf-8"), path.name == "__init__.py")
    ]
    assert bad == [], "imports against the layers:\n" + "\n".join(bad)


def test_only_the_backend_imports_the_kernels_that_compute_bits() -> None:
    bad = [
        arrow
        for module, path in modules()
        for arrow in kernels_beside_the_backend(module, path.read_text(encoding="utf-8"), path.name == "__init__.py")
    ]
    assert bad == [], "take the backend that the caller hands over (hwsim.backend.operations):\n" + "\n".join(bad)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("hwsim.evaluate.chains", "from hwsim._kernels import gemm"),
        ("hwsim.arithmetic.lanes", "from hwsim._kernels.convert import encode"),
        ("hwsim.api", "from hwsim import _kernels"),
        ("hwsim.machines.functional", "if TYPE_CHECKING:\n    from hwsim._kernels.lanes import combine"),
        ("hwsim.machines.timing", "from hwsim._kernels.coalesce import Coalescer"),
    ],
)
def test_a_kernel_beside_the_backend_is_seen(module: str, source: str) -> None:
    assert len(kernels_beside_the_backend(module, source)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("hwsim.backend.cpu", "from hwsim._kernels import convert, dot, lanes"),
        ("hwsim.machines.kernel_values", "from hwsim._kernels.coalesce import Coalescer"),
        ("hwsim.machines.timing", "from hwsim._kernels import engine"),
        ("hwsim.program.flat", "from hwsim._kernels.program import Flattener"),
        ("hwsim.evaluate.chains", "from hwsim.backend.operations import Backend"),
    ],
)
def test_the_backend_s_own_kernels_and_those_without_bits_are_allowed(module: str, source: str) -> None:
    assert kernels_beside_the_backend(module, source) == []


def test_no_late_import() -> None:
    bad = [
        late
        for module, path in modules()
        for late in late_imports(module, path.read_text(encoding="utf-8"), path.name == "__init__.py")
    ]
    assert bad == [], "imports belong at the top of a module:\n" + "\n".join(bad)


def test_no_circle() -> None:
    sources = {module: (path.read_text(encoding="utf-8"), path.name == "__init__.py") for module, path in modules()}
    graph = graph_of(sources)
    assert "hwsim.api" in graph["hwsim"] and "hwsim.devices" in graph["hwsim.api"]
    circles = circles_of(graph)
    assert circles == [], "modules that import each other:\n" + "\n".join(map(", ".join, circles))


def laboratory_in(module: str, source: str) -> list[str]:
    """What a module imports of the laboratory, names in strings included, one line each."""
    lines = [f"{module}:{one.line} imports {one.name}" for one in imports_of(module, source, False)]
    lines = [line for line in lines if is_within(line.split()[-1], "hwsim_lab")]
    texts = (node for node in ast.walk(parsed(source)) if isinstance(node, ast.Constant))
    return lines + [
        f"{module}:{node.lineno} names {node.value}" for node in texts if LABORATORY.fullmatch(str(node.value))
    ]


def test_nothing_of_the_laboratory_is_imported() -> None:
    """Neither by the product nor by its tests."""
    sources = [*(ROOT / "hwsim").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    assert len(sources) > 500
    bad = [line for path in sources for line in laboratory_in(str(path), path.read_text(encoding="utf-8"))]
    assert bad == []


@pytest.mark.parametrize(
    "source",
    [
        "import hwsim-lab",
        "def f():\n    from hwsim-lab.papers import claims",
        "x = 'hwsim-lab.papers.claims:read'",
        "x = {'reproduce': 'hwsim-lab.cli.reproduce'}",
    ],
)
def test_an_import_of_the_laboratory_is_seen(source: str) -> None:
    assert len(laboratory_in("hwsim.api", source.replace("-", "_"))) == 1


def test_a_type_name_means_one_type() -> None:
    twice = types_named_twice({module: path.read_text(encoding="utf-8") for module, path in modules()})
    assert twice.keys() == TWICE, f"defined more than once: {twice}"


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("hwsim.api", "def f():\n    import hwsim.devices"),
        ("hwsim.api", "class X:\n    def f(self):\n        from hwsim.devices import load"),
        ("hwsim.cli", "def f():\n    from hwsim.cli import command"),
        ("hwsim.api", "def f():\n    import numpy  # optional"),
        ("hwsim.api", "def f():\n    import plotly"),
        ("hwsim.api", "from importlib import import_module\nx = import_module('hwsim.devices')"),
        ("hwsim.api", "import importlib\nx = importlib.import_module('hwsim.devices')"),
        ("hwsim.api", "x = __import__('hwsim.devices')"),
    ],
)
def test_a_late_import_is_seen(module: str, source: str) -> None:
    assert len(late_imports(module, source)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("hwsim.api", "import numpy\nif True:\n    import yaml"),
        ("hwsim.api", "def f():\n    from plotly import graph_objects  # optional"),
        ("hwsim.cli.verbs", "from importlib import import_module\nx = import_module('hwsim.cli.run')"),
        ("hwsim.dataflows.registry", "from importlib import import_module\nx = import_module('hwsim.dataflows.x')"),
    ],
)
def test_an_early_import_is_none(module: str, source: str) -> None:
    assert late_imports(module, source) == []


@pytest.mark.parametrize(
    ("sources", "circle"),
    [
        ({"p.a": "import p.b", "p.b": "from p import a"}, ["p.a", "p.b"]),
        ({"p.a": "import p.b", "p.b": "def f():\n    from p.a import x"}, ["p.a", "p.b"]),
        ({"p.a": "import p.b", "p.b": "if TYPE_CHECKING:\n    from p.a import x"}, ["p.a", "p.b"]),
        ({"p.a": "import p.b", "p.b": "import p.c", "p.c": "from . import a"}, ["p.a", "p.b", "p.c"]),
        # a package whose __init__ is run on the way
        ({"p": "", "p.q": "from p.q.x import y", "p.q.x": "import p.a", "p.a": "import p.q.z", "p.q.z": ""}, None),
        # for types alone
        ({"p.a": "import p.b", "p.b": "if TYPE_CHECKING:\n    from p.a import x"}, ["p.a", "p.b"]),
        # a lazy module's names
        ({"hwsim": "if TYPE_CHECKING:\n    from hwsim.a import x", "hwsim.a": "import hwsim"}, ["hwsim", "hwsim.a"]),
        ({"hwsim": "X = ('hwsim.a:x',)", "hwsim.a": "import hwsim"}, ["hwsim", "hwsim.a"]),
    ],
)
def test_a_circle_is_seen(sources: dict[str, str], circle: list[str] | None) -> None:
    packages = {name for name in sources if any(other.startswith(f"{name}.") for other in sources)}
    graph = graph_of({name: (text, name in packages) for name, text in sources.items()})
    assert circles_of(graph) == [circle or ["p.a", "p.q", "p.q.x"]]


@pytest.mark.parametrize(
    "sources",
    [
        {"p.a": "import p.b", "p.b": "import p.c", "p.c": ""},
        # the package's __init__ is not run for types
        {"p": "import q", "p.a": "", "q": "if TYPE_CHECKING:\n    import p.a"},
        {"p": "from p.a import x", "p.a": "import p.b", "p.b": ""},
    ],
)
def test_no_circle_is_none(sources: dict[str, str]) -> None:
    assert circles_of(graph_of({name: (text, name == "p") for name, text in sources.items()})) == []


@pytest.mark.parametrize(
    ("sources", "places"),
    [
        (("class Xy: ...", "def f():\n    class Xy: ..."), ["p.0:1", "p.1:2"]),
        (("class Xy: ...", "Xy = tuple[int, int]"), ["p.0:1", "p.1:1"]),
        (("Xy = Literal['a']", "if TYPE_CHECKING:\n    Xy: TypeAlias = Literal['b']"), ["p.0:1", "p.1:2"]),
        (("Xy = NewType('Xy', int)", "Xy = list[int]"), ["p.0:1", "p.1:1"]),
        (("class Xy: ...", "class Yx: ...\nXY = 1\nxy: int = 2"), None),
        (("Xy = npt.NDArray[Any]", "Xy = NDArray[Any]"), None),
    ],
)
def test_a_type_named_twice_is_seen(sources: tuple[str, str], places: list[str] | None) -> None:
    found = types_named_twice({f"p.{number}": source for number, source in enumerate(sources)})
    assert found == ({} if places is None else {"Xy": places})


def test_lazy_names_are_those_that_types_know() -> None:
    """hwsim's table of names, its TYPE_CHECKING block and __all__ say the same."""
    source = (ROOT / "hwsim" / "__init__.py").read_text(encoding="utf-8")
    typed = {one.name for one in imports_of("hwsim", source, is_package=True) if one.for_types}
    assert typed == {f"hwsim.{module}.{name}" for module, names in hwsim._NAMES.items() for name in names}
    assert {name.rpartition(".")[2] for name in typed} | {"__version__"} == set(hwsim.__all__)


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
        ("hwsim.dataflows.registry", "X = 'hwsim.schemes.native:SCHEME'"),
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


#: Words that hwsim once used for what the field has terms for (docs/glossary.md has the terms).
PRIVATE_WORDS = {"turned", "kept", "uncut", "ends", "rounds", "patches", "arranged", "stand", "deal", "dealt", "deals"}


def _defined(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def _private(names: Iterable[str]) -> set[str]:
    return {name for name in names if PRIVATE_WORDS & set(name.lower().split("_"))}


def test_no_private_word_is_a_name() -> None:
    assert _private(_defined(ast.parse("def deal(rounds): self.is_kept = turned_rows = 1"))) == {
        "deal",
        "rounds",
        "is_kept",
        "turned_rows",
    }
    for path in (ROOT / "hwsim").rglob("*.py"):
        found = _private([path.stem, *_defined(parsed(path.read_text(encoding="utf-8")))])
        assert not found, f"{path}: {sorted(found)}"


def names_of_files() -> Counter[str]:
    """How many of hwsim's files have a name."""
    return Counter(path.name for path in (ROOT / "hwsim").rglob("*.py") if path.name != "__init__.py")


def test_no_file_name_stands_three_times() -> None:
    """In a stack trace or an editor's list of files a name says which idea it is."""
    names = names_of_files()
    assert names["formats.py"] == 2
    assert {name: count for name, count in names.items() if count > 2} == {}


def test_few_modules_lie_directly_in_hwsim() -> None:
    assert 5 < len(list((ROOT / "hwsim").glob("*.py"))) <= 12


MOST_POSITIONAL = 6  # arguments of a constructor; more go by their names, so that no two are swapped unseen


def long_constructors(sources: Mapping[str, str]) -> list[str]:
    """Calls of the sources' own classes with too many positional arguments, by place."""
    trees = {module: parsed(source) for module, source in sources.items()}
    classes = {node.name for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    found = []
    for module, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and len(node.args) > MOST_POSITIONAL:
                name = getattr(node.func, "id", None) or getattr(node.func, "attr", "")
                if name in classes or name == "cls":
                    found.append(f"{module}:{node.lineno} {name} takes {len(node.args)}")
    return found


def test_a_long_constructor_is_seen() -> None:
    long = "p.X(1, 2, 3, 4, 5, 6, 7)\nX(1, *a, 2, 3, 4, 5, 6)\nX(1, 2, 3, 4, 5, 6, x=7)\nf(1, 2, 3, 4, 5, 6, 7)"
    assert long_constructors({"a": "class X: ...", "b": long}) == ["b:1 X takes 7", "b:2 X takes 7"]


def test_constructors_take_few_arguments_by_place() -> None:
    assert long_constructors({module: path.read_text(encoding="utf-8") for module, path in modules()}) == []


#: Words that say how a thing came about or whose it is, and not what it is: no names of variables, arguments, fields
#: and functions.
NO_NOUNS = frozenset({"found", "given", "made", "one", "own"})

#: Names that stay, by module, with the reason.
NO_NOUNS_ALLOWED = {
    ("hwsim.libraries.model.version_model", "one"): "a key of the libraries' data files",
    ("hwsim.report.plots.rates", "found"): "an argument of the public hwsim.plots.tile_landscape",
}


def named(tree: ast.AST) -> Iterator[str]:
    """Names that a module gives to variables, arguments, fields, functions and classes."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name


@pytest.mark.parametrize(
    "source",
    [
        "one = 1",
        "class A:\n    made: int",
        "self.own = 1",
        "def f(x, *, given): ...",
        "[one for one in x]",
        "def one(): ...",
    ],
)
def test_a_name_that_is_no_noun_is_seen(source: str) -> None:
    assert NO_NOUNS & set(named(parsed(source)))


def test_names_are_nouns() -> None:
    sources = {module: path.read_text(encoding="utf-8") for module, path in modules()}
    others = {(module, name) for module, source in sources.items() for name in NO_NOUNS & set(named(parsed(source)))}
    assert others == NO_NOUNS_ALLOWED.keys()
