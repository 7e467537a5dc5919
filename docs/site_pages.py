"""Pages of the site that come from data: devices and libraries with their sources, and the keys of their YAML files.

`docs/conf.py` writes them into `docs/generated` when the site is built; they are not in the repository.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import hwsim
from hwsim.devices.registry import shipped
from hwsim.libraries.model import loader as libraries
from hwsim.report.text.device_text import device_text, sources_text
from hwsim.report.text.provenance_text import evidence_text, provenance_table

SCHEMAS = Path(__file__).parents[1] / "configs" / "schema"
#: What the end of a key's name says of its unit.
UNITS = {
    "bytes_per_cycle": "bytes per core clock cycle",
    "macs_per_cycle": "multiply-accumulates per core clock cycle",
    "_cycles": "core clock cycles",
    "_bytes": "bytes",
    "_mhz": "MHz",
    "_bits": "bits",
    "_watts": "W",
    "_us": "microseconds",
    "_ns": "nanoseconds",
    "_seconds": "s",
}


HEAD = "| key | type | unit | needed | meaning |\n| --- | --- | --- | --- | --- |\n"


def unit(key: str) -> str:
    """The unit of a key's number, from the end of its name; empty where it has none."""
    return next((name for end, name in UNITS.items() if key.endswith(end)), "")


def fenced(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```\n"


def device_page(name: str) -> str:
    device = hwsim.device(name)
    return (
        f"# {name}: {device.title}\n\n{fenced(device_text(device))}\n## Every number and its source\n\n"
        f"{fenced(sources_text(device))}"
    )


def library_page(name: str) -> str:
    library = libraries.load(name)
    table = provenance_table(library.model_dump(mode="json", by_alias=True), library.evidence, library.citations)
    about = f"For the families {', '.join(library.families)}; seen on {', '.join(library.devices) or 'no device'}."
    return (
        f"# {name}: {library.title}\n\n{about} In all: {evidence_text(library.evidence)}.\n\n"
        f"## Every number and its source\n\n{fenced(table)}"
    )


def kind(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """What a key takes, in a few words. A definition of a value also allows {value, source, ...}: that is left out."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        found = definitions[name]
        if name.startswith("value_"):
            return kind(found["anyOf"][0], definitions)
        return name if found.get("type") == "object" else kind(found, definitions)
    for several in ("anyOf", "oneOf"):
        if several in schema:
            parts = " or ".join(kind(part, definitions) for part in schema[several])
            return " or ".join(dict.fromkeys(parts.split(" or ")))
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {kind(schema['items'], definitions)}" if "items" in schema else "list"
    if schema.get("type") == "object":
        inner = schema.get("additionalProperties") or next(iter(schema.get("patternProperties", {}).values()), None)
        return f"mapping to {kind(inner, definitions)}" if isinstance(inner, dict) else "mapping"
    return _limits(schema)


def _limits(schema: Mapping[str, Any]) -> str:
    signs = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
    limits = [f"{sign} {schema[name]}" for name, sign in signs.items() if name in schema]
    words = {"string": "text", "null": "nothing"}
    return " ".join([words.get(schema.get("type", "any"), schema.get("type", "any")), *limits])


def schema_page(name: str) -> str:
    """One table for each block of a file: key, type, unit, whether it must stand there, meaning."""
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8"))
    definitions = schema["$defs"]
    text = (
        f"# Keys of a {name} file\n\nFrom `configs/schema/{name}.schema.json`. A value may stand alone, or as "
        "`{value, source, evidence, span, note}`; `source` and `evidence` may also stand in the block around it.\n"
    )
    for block, found in definitions.items():
        if found.get("type") != "object" or block.startswith("value_") or block.endswith("Change"):
            continue
        about = " ".join(found.get("description", "").split())
        text += (
            f"\n## {block}\n\n{about}\n\n| key | type | unit | needed | meaning |\n| --- | --- | --- | --- | --- |\n"
        )
        text += "".join(_rows(found, definitions))
    return text


def _said(value: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """The first sentence of the description of the definition that a key refers to."""
    about = definitions.get(value.get("$ref", "").rsplit("/", 1)[-1], {}).get("description", "")
    return str(" ".join(about.split()).partition(". ")[0])


def _rows(found: Mapping[str, Any], definitions: Mapping[str, Any]) -> Iterator[str]:
    for key, value in found.get("properties", {}).items():
        cells = (
            f"`{key}`",
            kind(value, definitions),
            unit(key),
            "yes" if key in found.get("required", ()) else "",
            value.get("description") or _said(value, definitions),
        )
        yield "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |\n"


def index(title: str, about: str, pages: list[str]) -> str:
    return f"# {title}\n\n{about}\n\n:::{{toctree}}\n:maxdepth: 1\n\n" + "\n".join(pages) + "\n:::\n"


def pages() -> dict[str, str]:
    """{path below `docs/generated`: Markdown} of every page."""
    devices, known = shipped(), sorted(libraries.names())
    kinds = sorted(file.name.split(".")[0] for file in SCHEMAS.glob("*.schema.json"))
    found = {f"devices/{name}.md": device_page(name) for name in devices}
    found |= {f"libraries/{name}.md": library_page(name) for name in known}
    found |= {f"schema/{name}.md": schema_page(name) for name in kinds}
    found["devices/index.md"] = index("Device by device", "Every device, its numbers and their sources.", devices)
    found["libraries/index.md"] = index("Library by library", "Every library of kernels and its sources.", known)
    found["schema/index.md"] = index("YAML schema", "The keys of data files.", kinds)
    return found


def write(folder: Path) -> None:
    """Write every page that changed; the others keep their times, so that they are not read again."""
    for name, text in pages().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
