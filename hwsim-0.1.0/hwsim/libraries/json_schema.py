"""JSON Schema of the library files, for editors and other tools."""

from __future__ import annotations

import json

from hwsim.datafiles.json_form import COMMON, SOURCES, Form, Schema, ref
from hwsim.libraries.model import Library


def json_schema() -> Schema:
    """The schema of a library file as plain data (JSON Schema, draft 2020-12)."""
    model = Library.model_json_schema()
    defs: Schema = dict(COMMON)
    form = Form(defs, False)
    defs.update({form.named(name): form.block(record) for name, record in model.pop("$defs").items()})
    defs["Library"] = form.block(model)
    defs["Library"]["properties"]["sources"] = SOURCES
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "hwsim library",
        **ref("Library"),
        "$defs": dict(sorted(defs.items())),
    }


def schema_text() -> str:
    """The text of configs/schema/library.schema.json."""
    return json.dumps(json_schema(), indent=1) + "\n"
