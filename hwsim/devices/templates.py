"""Device files to begin with, shipped with hwsim: a new file gets the text of one and a name of its own.

A template may have sizes: a line `# sizes: rows=128 cols=128`, and places `${rows + cols - 2}` that follow from them.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from hwsim.errors import InputError, nearest
from hwsim.host import places
from hwsim.host.files import write_text

DEFAULT = "accelerator"
NAME = re.compile(r"^name: .*$", re.MULTILINE)
SIZES = re.compile(r"^# sizes: (.*)$", re.MULTILINE)
PLACE = re.compile(r"\$\{([^}]*)\}")
MOST = 65536  # of a size
OPERATIONS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}


def templates() -> dict[str, str]:
    """The first sentence of each template, by name."""
    texts = {}
    for file in places.package_folder("templates").iterdir():
        name, _, suffix = file.name.partition(".")
        if suffix == "yaml":
            text = places.text_of(file, "template").removeprefix("# ")
            texts[name] = text.partition(". ")[0].replace("\n# ", " ")
    return dict(sorted(texts.items()))


def template_sizes(template: str) -> dict[str, int]:
    """The sizes of a template with their defaults; empty for one without sizes. Raises InputError for an unknown
    template.
    """
    return _sizes(_text(template))


def template_with_size(family: str, size: str) -> str:
    """The template for devices of this family that has a size of this name; "" where there is none."""
    line = re.compile(rf"^family: {re.escape(family)}\b", re.MULTILINE)
    return next((name for name in templates() if size in template_sizes(name) and line.search(_text(name))), "")


def new_device_file(path: str | Path, template: str = DEFAULT, sizes: Mapping[str, int] = MappingProxyType({})) -> Path:
    """Write a device file at `path` from a template; its device has the file's name.

    sizes: of the template, where they differ from its defaults; integers from 1 to 65,536. Raises InputError for an
    unknown template or size, a suffix that is not .yaml or .yml, a file that exists or cannot be written.
    """
    target, text = Path(path), _text(template)
    known = _sizes(text)
    for name, size in sizes.items():
        if name not in known:
            allowed = ", ".join(known) or f"none: template {template} has no sizes"
            edit = f"; any other number stands in the file: write it without this size, then edit {target}"
            raise InputError(f"size {name!r}; allowed: {allowed}{nearest(name, list(known)) or edit}")
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= MOST:
            raise InputError(f"{name} = {size!r}; allowed: an integer from 1 to {MOST}")
    if target.suffix not in (".yaml", ".yml"):
        raise InputError(f"{target}: the file's name must end in .yaml or .yml")
    if target.exists():
        raise InputError(f"{target} is there already; give another name, or remove it")
    write_text(target, NAME.sub(f"name: {target.stem}", _filled(text, known | dict(sizes)), count=1))
    return target


def _text(template: str) -> str:
    names = templates()
    if template not in names:
        raise InputError(f"template {template!r}; allowed: {', '.join(names)}{nearest(template, list(names))}")
    return places.text_of(places.package_folder("templates") / f"{template}.yaml", "template")


def _sizes(text: str) -> dict[str, int]:
    line = SIZES.search(text)
    pairs = [] if line is None else [pair.split("=") for pair in line[1].split()]
    return {name: int(size) for name, size in pairs}


def _filled(text: str, sizes: Mapping[str, int]) -> str:
    """The text with numbers at its places."""
    line = "# sizes: " + " ".join(f"{name}={size}" for name, size in sizes.items())
    text = PLACE.sub(lambda place: str(_number(ast.parse(place[1], mode="eval").body, sizes)), text)
    return SIZES.sub(line, text, count=1)


def _number(node: ast.expr, sizes: Mapping[str, int]) -> int:
    """The value of sums, differences and products of integers and sizes. Raises ValueError for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name):
        return sizes[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
        return OPERATIONS[type(node.op)](_number(node.left, sizes), _number(node.right, sizes))
    raise ValueError(f"a template's place has {ast.unparse(node)}")
