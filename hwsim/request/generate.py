"""Writes the two modules of types that follow from the declarations: `run_options` and `option_records`.

It knows declarations and how Python is written. `python -m hwsim.request.generate` writes both files; a test fails
where they are behind the declarations. They have the options of hwsim's own schemes and dataflows: a plug-in's types
are the plug-in's.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from hwsim.dataflows import families, registry
from hwsim.gemm.option_types import Option
from hwsim.host.files import write_text
from hwsim.request.declarations import OWN, Declared, declared_by_name
from hwsim.schemes import OWN as OWN_SCHEMES

WIDTH = 120
#: What is written, and by which function.
FOLDER = Path(__file__).parent
#: Parameters of `hwsim.run` with a place of their own in its signature.
BESIDE = ("c",)
HEAD = '''"""{text}

Written by hwsim.request.generate from the declarations; change these, not this file.
"""

from __future__ import annotations

from collections.abc import Mapping{sequence}
{dataclass}from pathlib import Path
from typing import Any{typing}

from numpy.typing import ArrayLike

{tile}from hwsim.gemm.schedule import Schedule
from hwsim.libraries.on_device import LibraryOnDevice
'''


def run_options() -> str:
    """The text of `run_options`: a TypedDict of every option of `hwsim.run`, by which type checkers read calls."""
    head = HEAD.format(
        text="The options of `hwsim.run` as a type: their names and the types of their values.",
        sequence=", Sequence",
        dataclass="",
        typing=", Literal, TypedDict",
        tile="from hwsim.gemm.mapping import Tile\n",
    )
    lines = [head, "", "class RunOptions(TypedDict, total=False):"]
    lines.append('    """Every option of `hwsim.run` that hwsim, its schemes or its dataflows declare."""')
    for name, entries in declared_by_name().items():
        of_owners = [of_own for entry in entries if (of_own := _of_own(entry)).owners]
        if of_owners and name not in BESIDE:
            lines += ["", *_comment(of_owners), f"    {name}: {_annotation([entry.option for entry in of_owners])}"]
    return "\n".join(lines) + "\n"


def option_records() -> str:
    """The text of `option_records`: one frozen record for each owner of `declarations.OWN`."""
    head = HEAD.format(
        text="The options of a call by owner, one frozen record each, validated and with their defaults.",
        sequence=", Sequence",
        dataclass="from dataclasses import dataclass\n",
        typing="",
        tile="",
    )
    lines = [head]
    for kind, options in OWN.items():
        lines += ["", "@dataclass(frozen=True, slots=True)", f"class {record_name(kind)}:"]
        lines += [f'    """Options of the owner "{kind}"."""', ""]
        lines += [f"    {option.name}: {_held(option)} = {_default(option)}" for option in options]
        lines.append("")
    return "\n".join(lines)


def record_name(kind: str) -> str:
    """The record's class of an owner."""
    return f"{kind.split()[0].capitalize()}Options"


def _of_own(entry: Declared) -> Declared:
    """The declaration with hwsim's own owners alone."""
    owners = {*OWN, *registry.OWN, *families.shipped(), *(scheme.name for scheme in OWN_SCHEMES)}
    return replace(entry, owners=tuple(owner for owner in entry.owners if owner in owners))


def _annotation(options: list[Option]) -> str:
    """The types of the declarations together."""
    parts = [part for option in options for part in option.annotation.removesuffix(" | None").split(" | ")]
    return " | ".join((*dict.fromkeys(parts), "None"))


def _default(option: Option) -> str:
    """The default as it is written."""
    return json.dumps(option.default) if isinstance(option.default, str) else repr(option.default)


def _held(option: Option) -> str:
    """The type of a validated value: None stands for a default that another part finds."""
    return option.annotation if option.default is None else option.annotation.removesuffix(" | None")


def _comment(entries: list[Declared]) -> Iterator[str]:
    for entry in entries:
        yield from textwrap.wrap(entry.text, WIDTH, initial_indent="    #: ", subsequent_indent="    #: ")


WRITTEN = {"run_options.py": run_options, "option_records.py": option_records}


def main() -> None:
    """Write the modules."""
    for name, text in WRITTEN.items():
        write_text(FOLDER / name, text())


if __name__ == "__main__":
    main()
