"""JSON Schema of the device files, generated from the models, for editors and other tools.

It describes the form in a file: a value may stand plain or as {value, source, evidence, fitted_to, span, note}; every
block may say the three in the middle of it; a variant (`extends`) gives only what differs and null to remove.
"""

from __future__ import annotations

import json

from hwsim.datafiles.json_form import COMMON, PREFIX, SOURCES, Form, Schema, described, ref
from hwsim.devices.device import Device


def json_schema() -> Schema:
    """The schema of a device file as plain data (JSON Schema, draft 2020-12)."""
    model = described(Device)
    records = model.pop("$defs")
    _require_models(model, records)
    defs: Schema = dict(COMMON)
    for variant in (False, True):
        form = Form(defs, variant)
        defs.update({form.named(name): form.block(record) for name, record in records.items()})
        top = form.block(model)
        top["properties"]["sources"] = SOURCES
        if variant:
            top["properties"]["extends"] = {"type": "string", "description": "name or path of the base"}
            top["properties"]["inherited"] = {
                "type": "object",
                "additionalProperties": False,
                "required": ["source", "evidence"],
                "properties": {"source": ref("source"), "evidence": ref("evidence")},
                "description": "how good the base's numbers are for this device",
            }
            top["required"] = ["schema_version", "name", "extends"]
        defs[form.named("Device")] = top
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "hwsim device",
        "if": {"required": ["extends"]},
        "then": ref("DeviceChange"),
        "else": ref("Device"),
        "$defs": dict(sorted(defs.items())),
    }


def _require_models(model: Schema, records: Schema) -> None:
    """A dot unit's `model` has a default in the record, but a file names it: the key selects the record."""
    (unit,) = model["properties"]["dot_units"]["patternProperties"].values()
    for case in unit["oneOf"]:
        record = records[case["$ref"].removeprefix(PREFIX)]
        record["required"] = ["model", *record.get("required", [])]


def schema_text() -> str:
    """The text of configs/schema/device.schema.json."""
    return json.dumps(json_schema(), indent=1) + "\n"
