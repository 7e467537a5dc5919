"""Pages of the site that come from data: devices and libraries with their sources, and the keys of their YAML files.

`docs/conf.py` writes them into `docs/generated` when the site is built; they are not in the repository.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from site_options import option_page
from site_tables import citation_table, html, markdown, number_tables, unit

import hwsim
from hwsim.devices.device import Device
from hwsim.devices.registry import shipped
from hwsim.libraries.model import loader as libraries
from hwsim.report.text.provenance_text import evidence_text
from hwsim.report.text.words import data

LABORATORY = Path(__file__).parents[1] / "lab" / "docs"
SCHEMAS = Path(__file__).parents[1] / "configs" / "schema"


def _facts(device: Device) -> str:
    """What a reader asks first of a chip."""
    slower = ", ".join(f"{name} {mhz:,g}" for name, mhz in device.sustained_clock_mhz.items())
    memory = f"{data(device.hbm.capacity_bytes)}, {device.hbm.bytes_per_second / 1e9:,g} GB/s" if device.hbm else ""
    rows = [
        ("family", device.family),
        ("cores", f"{device.cores:,}"),
        ("clock", f"{device.clock_mhz:,g} MHz"),
        ("clock under load", f"{slower} MHz" if slower else ""),
        ("L2 cache", data(device.l2.capacity_bytes) if device.l2 else ""),
        ("device memory", memory),
        ("format of a run that names none", device.default_format),
        ("numbers by evidence", evidence_text(device.evidence)),
        ("SHA-256 of the file", f"`{device.sha256}`"),
    ]
    return markdown(("fact", "value"), [(name, text) for name, text in rows if text], "facts")


def _instructions(device: Device) -> str:
    rows = [
        (
            f"`{name}`",
            f"{x.m} x {x.n} x {x.k}",
            f"{x.a} x {x.b} + {x.c} -> {x.d}",
            x.unit,
            f"{float(x.macs_per_cycle):,g}" if x.timing else "no data",
        )
        for name, x in device.matrix_instructions.items()
    ]
    return html(("instruction", "m x n x k", "formats", "dot unit", "MAC per cycle"), rows, "instructions")


def device_page(name: str) -> str:
    """A device: its main facts, its matrix instructions, and every number with its source."""
    device = hwsim.device(name)
    tables = number_tables(device.model_dump(mode="json", by_alias=True), device.evidence)
    return "\n".join(
        [
            f"# {name}: {device.title}\n",
            _facts(device),
            f"```text\nhwsim run --device {name}\n```\n",
            "## Matrix instructions\n",
            _instructions(device),
            "## Every number and its source\n",
            "Levels of evidence are explained in [Devices](../../devices.md). Keys of sources stand "
            "[at the end](#keys-of-sources).\n",
            *tables,
            "## Keys of sources\n",
            citation_table(device.citations),
        ]
    )


def library_page(name: str) -> str:
    """A library: what it is for, and every number with its source."""
    library = libraries.load(name)
    tables = number_tables(library.model_dump(mode="json", by_alias=True), library.evidence)
    rows = [
        ("families", ", ".join(library.families)),
        ("seen on", ", ".join(library.devices) or "no device"),
        ("numbers by evidence", evidence_text(library.evidence)),
    ]
    return "\n".join(
        [
            f"# {name}: {library.title}\n",
            markdown(("fact", "value"), rows, "facts"),
            "## Every number and its source\n",
            *tables,
            "## Keys of sources\n",
            citation_table(library.citations),
        ]
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
            unit((key,)),
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
    found["options.md"] = option_page()
    found["devices/index.md"] = index("Device by device", "Every device, its numbers and their sources.", devices)
    found["libraries/index.md"] = index("Library by library", "Every library of kernels and its sources.", known)
    found["schema/index.md"] = index("YAML schema", "The keys of data files.", kinds)
    return found


def laboratory() -> dict[str, str]:
    """{path below `docs/generated`: Markdown} of the laboratory's pages, where the checkout has them."""
    found = {f"laboratory/{page.relative_to(LABORATORY)}": page for page in sorted(LABORATORY.rglob("*.md"))}
    texts = {name: page.read_text(encoding="utf-8") for name, page in found.items() if page.name != "README.md"}
    names = [name.removeprefix("laboratory/").removesuffix(".md") for name in texts]
    about = (
        "The laboratory's records: campaigns, measured times, and a page for each paper with a verdict on each claim."
    )
    return texts | {"laboratory/index.md": index("What was measured", about, names)}


def write(folder: Path) -> None:
    """Write every page that changed; the others keep their times, so that they are not read again."""
    for picture in LABORATORY.rglob("*.png"):
        copy = folder / "laboratory" / picture.relative_to(LABORATORY)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(picture.read_bytes())
    for name, text in (pages() | laboratory()).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
