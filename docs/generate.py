"""Writes the generated parts of these pages: what stands between `<!-- generated: NAME -->` and `<!-- end -->`.

`python docs/generate.py` rewrites them in place; a test fails when a page is behind the devices and the code.
lab/docs/generate.py does the same for the laboratory's pages.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import hwsim
from hwsim.cli.options import APART
from hwsim.dataflows.registry import dataflows
from hwsim.errors import UnsupportedError
from hwsim.gemm.problem import Problem
from hwsim.machines import timing
from hwsim.request.declarations import declared
from hwsim.resolve.planning import carries, plan_for
from hwsim.schemes import OWN

FOLDER = Path(__file__).parent
BLOCK = re.compile(r"(<!-- generated: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
PACKAGE = FOLDER.parent / "configs" / "devices"
SOURCES = FOLDER.parent / "hwsim"
#: Folders of modules, in the order of the layers; of the command line each module is one verb.
PARTS = (
    "",
    "numerics",
    "datafiles",
    "devices",
    "libraries",
    "gemm",
    "library_calls",
    "schemes",
    "program",
    "arithmetic",
    "evaluate",
    "dataflows",
    "dataflows/davinci",
    "dataflows/tiled",
    "machines",
    "analysis",
    "resolve",
    "trace",
    "report",
    "studies",
    "papers",
    "golden",
    "recording",
)


def table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]], right: tuple[int, ...] = ()) -> str:
    """A Markdown table."""
    rule = ["---:" if i in right else "---" for i in range(len(head))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, tuple(rule), *rows)) + "\n"


def devices() -> str:
    """Every device of the package, and what is computed for it."""

    def rows() -> Iterator[tuple[str, ...]]:
        for name in sorted(file.stem for file in PACKAGE.glob("*.yaml")):
            device = hwsim.device(PACKAGE / f"{name}.yaml")
            whole = device.family in dataflows() and timing.missing(device) is None
            yield (
                f"`{name}`",
                device.title,
                "bits and cycles of GEMMs" if whole else "bits of GEMMs",
                str(len(device.matrix_instructions)),
            )

    return table(("device", "chip", "what is computed", "entries for instructions"), rows(), right=(3,))


def modules() -> str:
    """Every module of the package, but for the verbs of the command line, and what its docstring begins with."""
    text = ""
    for part in PARTS:
        folder = SOURCES / part
        files = [path for path in sorted(folder.glob("*.py")) if not path.name.startswith("_")]
        rows = (
            (f"[{path.name}](../hwsim/{path.relative_to(SOURCES).as_posix()})", _first_line(path)) for path in files
        )
        text += f"### hwsim/{part}{'/' if part else ''}\n\n{table(('module', 'what it is'), rows)}\n"
    return text


def _first_line(path: Path) -> str:
    """The first paragraph of a module's docstring."""
    lines = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n\n")[0]
    return lines.replace("\n", " ").replace("|", "\\|")


def schemes() -> str:
    """Every scheme, its operands, and the devices whose units carry it."""
    names = sorted(file.stem for file in PACKAGE.glob("*.yaml"))

    def rows() -> Iterator[tuple[str, ...]]:
        for scheme in OWN:
            carried = []
            for name in names:
                problem = Problem(scheme.input_formats[0], 64, 64, 64)
                try:
                    plan = plan_for(hwsim.device(name), scheme, problem, None, {}).plan
                    reason = carries(hwsim.device(name), plan)
                except UnsupportedError:
                    continue
                if reason is None:
                    carried.append(name)
            missing = [name for name in names if name not in carried]
            few, before = (missing, "all but ") if len(missing) < len(carried) else (carried, "")
            listed = before + ", ".join(f"`{name}`" for name in few) if missing else "all"
            yield f"`{scheme.name}`", scheme.title, ", ".join(scheme.input_formats), listed

    return table(("scheme", "what", "operands", "devices (bits)"), rows())


def scheme_options() -> str:
    """The options of every scheme, one row for each declaration with the schemes that share it."""
    sharing: dict[tuple[str, str, str, str], list[str]] = {}
    for scheme in OWN:
        for option in scheme.options:
            allowed = ", ".join(f"`{choice}`" for choice in option.choices) or option.allowed
            declaration = f"`{option.name}`", allowed, _default(option.default), option.help
            sharing.setdefault(declaration, []).append(scheme.name)
    ordered = sorted(sharing.items(), key=lambda item: item[0][0].strip("`"))
    rows = ((name, ", ".join(names), *rest) for (name, *rest), names in ordered)
    return table(("option", "schemes", "allowed", "default", "meaning"), rows)


def gemm_options() -> str:
    """Every option of a GEMM from where it is declared, those of plug-ins among them."""

    def rows() -> Iterator[tuple[str, ...]]:
        for entry in declared():
            option = entry.option
            default = option.default_text or ("" if option.default is None else _default(option.default))
            owners = entry.kind if entry.owners == (entry.kind,) else f"{entry.kind}: {', '.join(entry.owners)}"
            is_negated = option.name in APART and option.default is True
            flag = option.flag.replace("--", "--no-", 1) if is_negated else option.flag
            cells = f"`{option.name}`", f"`{flag}`", f"`{option.metavar}`", default, option.help, owners
            yield tuple(cell.replace("|", "\\|") for cell in cells)

    return table(("keyword", "flag", "value", "default", "meaning", "declared by"), rows())


def _default(value: object) -> str:
    if value is None:
        return "open"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


BLOCKS: dict[str, Callable[[], str]] = {
    "schemes": schemes,
    "options": gemm_options,
    "options-of-schemes": scheme_options,
    "devices": devices,
    "modules": modules,
}


def current(page: str, blocks: Mapping[str, Callable[[], str]] = BLOCKS) -> str:
    """The text of a page with its generated blocks made anew."""
    return BLOCK.sub(lambda found: found[1] + blocks[found[2]]() + found[3], page)


def rewrite(path: Path, text: str) -> None:
    """Write a page whose text has changed."""
    if path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
        print(f"rewrote {path.name}")


def main() -> None:
    """Rewrite what is behind."""
    for path in sorted(FOLDER.glob("*.md")):
        rewrite(path, current(path.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
