"""JSON Schema of the data files, generated from their pydantic models, for editors and other tools.

The schema describes the form in a file: a value may be plain or {value, source, evidence, fitted_to, span, note}; every
block may have source, evidence and fitted_to; a variant gives only what differs, and null to remove a key.
"""

from __future__ import annotations

import json
import re
import typing
from typing import Any

from pydantic import BaseModel

from hwsim.datafiles.field_comments import field_comments
from hwsim.datafiles.messages import fields_of
from hwsim.datafiles.provenance import LEVELS, SAID

Schema = dict[str, Any]

PREFIX = "#/$defs/"
NULL = {"type": "null"}
COMMON: Schema = {
    "source": {"type": "string", "description": "KEY, KEY; free text, where KEY is in the sources table"},
    "fitted_to": {"type": "string", "description": "evidence fitted: the measurement that the value was fitted to"},
    "span": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
    "note": {"type": "string"},
    "evidence": {"enum": list(LEVELS)},
}
SOURCES: Schema = {"type": "object", "additionalProperties": {"type": "string"}}


def ref(name: str) -> Schema:
    """Return the reference to a definition."""
    return {"$ref": PREFIX + name}


def file_schema(model: type[BaseModel], kind: str) -> Schema:
    """The schema of the files that hold one record of `model`, as plain data (JSON Schema, draft 2020-12)."""
    name = model.__name__
    record = described(model)
    defs: Schema = dict(COMMON)
    form = Form(defs, False)
    defs.update({form.named(part): form.block(schema) for part, schema in record.pop("$defs", {}).items()})
    defs[name] = form.block(record)
    defs[name]["properties"]["sources"] = SOURCES
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"hwsim {kind.replace('_', ' ')}",
        **ref(name),
        "$defs": dict(sorted(defs.items())),
    }


def described(model: type[BaseModel]) -> Schema:
    """pydantic's schema of a model, where the comment beside a field is the field's description."""
    schema = model.model_json_schema(by_alias=True)
    for name, block in [(model.__name__, schema), *schema.get("$defs", {}).items()]:
        record = _records(model)[name]
        keys = {field: info.alias or field for field, info in getattr(record, "model_fields", {}).items()}
        for cls in reversed(record.__mro__[:-1]):
            for field, comment in field_comments(cls).items() if cls.__module__.startswith("hwsim") else ():
                if (key := keys.get(field, field)) in block.get("properties", {}):
                    block["properties"][key]["description"] = comment
    return schema


def _records(model: type[BaseModel]) -> dict[str, type]:
    """A model and all records that its fields hold, by name."""
    records: dict[str, type] = {}
    waiting: list[Any] = [model]
    while waiting:
        at = waiting.pop()
        if fields := fields_of(at):
            if at.__name__ not in records:
                records[at.__name__] = at
                waiting += fields.values()
        else:
            waiting += typing.get_args(at)
    return records


class Form:
    """Converts a model's schema into the schema of a file, or of a variant. Definitions of single values go to
    `defs`.
    """

    def __init__(self, defs: Schema, variant: bool) -> None:
        self.defs = defs
        self.variant = variant

    def named(self, record: str) -> str:
        """The schema of a named record."""
        return f"{record}Change" if self.variant else record

    def block(self, schema: Schema) -> Schema:
        """The schema of a mapping: of named fields, of any names (patternProperties), or of listed names
        (propertyNames).
        """
        names = schema.get("propertyNames", {}).get("enum", ())
        fields: Schema = schema.get("properties") or dict.fromkeys(names, schema.get("additionalProperties"))
        provenance = {key: ref(key) for key in SAID}
        form: Schema = {
            "type": "object",
            "additionalProperties": False,
            "properties": {**{key: self.field(part) for key, part in fields.items()}, **provenance},
        }
        if "description" in schema:
            form["description"] = schema["description"]
        if "required" in schema and not self.variant:
            form["required"] = schema["required"]
        if "patternProperties" in schema:  # what is said of a block is no name
            form["patternProperties"] = {
                pattern.replace("^", f"^(?!({'|'.join(SAID)})$)", 1): self.part(part)
                for pattern, part in schema["patternProperties"].items()
            }
        return form

    def field(self, schema: Schema) -> Schema:
        """The schema of a field of a block: its part, with the field's description beside it."""
        about = {key: value for key, value in schema.items() if key == "description"}
        return self.part({key: value for key, value in schema.items() if key != "description"}) | about

    def part(self, schema: Schema) -> Schema:
        """The schema of a field: a record, one of several records, a mapping, or a single value."""
        cases = schema.get("anyOf") or schema.get("oneOf") or [schema]
        records = [ref(self.named(case["$ref"].removeprefix(PREFIX))) for case in cases if "$ref" in case]
        null = [NULL] if self.variant or NULL in cases else []
        if records:
            forms = records
        elif schema.get("type") == "object":
            forms = [self.block(schema)]
        else:
            forms = [self.value({key: part for key, part in schema.items() if key not in ("title", "default")})]
        forms = [*forms, *null]
        return forms[0] if len(forms) == 1 else {"anyOf": forms}

    def value(self, schema: Schema) -> Schema:
        """The schema of a single value, plain or with its source."""
        name = "value_" + re.sub(r"[^A-Za-z0-9]+", "_", json.dumps(schema)).strip("_")
        provenance = {key: ref(key) for key in (*SAID, "span", "note")}
        self.defs[name] = {
            "anyOf": [
                schema,
                {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["value"],
                    "properties": {"value": schema, **provenance},
                },
            ]
        }
        return ref(name)
