"""Device files to begin with, shipped with hwsim: a new file gets the text of one and a name of its own."""

from __future__ import annotations

import re
from pathlib import Path

from hwsim.errors import InputError, nearest
from hwsim.host import places
from hwsim.host.files import write_text

DEFAULT = "accelerator"
NAME = re.compile(r"^name: .*$", re.MULTILINE)


def templates() -> dict[str, str]:
    """The first sentence of each template, by name."""
    texts = {}
    for file in places.package_folder("templates").iterdir():
        name, _, suffix = file.name.partition(".")
        if suffix == "yaml":
            text = places.text_of(file, "template").removeprefix("# ")
            texts[name] = text.partition(". ")[0].replace("\n# ", " ")
    return dict(sorted(texts.items()))


def new_device_file(path: str | Path, template: str = DEFAULT) -> Path:
    """Write a device file at `path` from a template; its device has the file's name.

    Raises InputError for an unknown template, a suffix that is not .yaml or .yml, a file that exists or cannot be
    written.
    """
    target, names = Path(path), templates()
    if template not in names:
        raise InputError(f"template {template!r}; allowed: {', '.join(names)}{nearest(template, list(names))}")
    if target.suffix not in (".yaml", ".yml"):
        raise InputError(f"{target}: the file's name must end in .yaml or .yml")
    if target.exists():
        raise InputError(f"{target} is there already; give another name, or remove it")
    text = places.text_of(places.package_folder("templates") / f"{template}.yaml", "template")
    write_text(target, NAME.sub(f"name: {target.stem}", text, count=1))
    return target
