"""Reads the JSON of a run, or of a record alone, from a file. It computes nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hwsim.compute.notices import WIDENED
from hwsim.errors import InputError
from hwsim.host.input_files import MOST_TABLE_BYTES, read_text
from hwsim.request.declarations import OPERAND_DISTRIBUTION
from hwsim.result import SCHEMA


@dataclass(frozen=True, slots=True)
class SavedRun:
    """What a file holds: record, as plain data, and the JSON of the run, empty where the file has the record alone."""

    record: Any
    run: Mapping[str, Any] = field(default_factory=dict)

    @property
    def sums(self) -> Mapping[str, str] | None:
        """SHA-256 by what it is of: "A", "B", "result"; None where the file has none."""
        operands, result = self.run.get("operands_sha256"), self.run.get("result_sha256")
        if not operands or not result:
            return None
        return {"A": str(operands["a"]), "B": str(operands["b"]), "result": str(result)}

    @property
    def draw_flags(self) -> str:
        """The flags that draw the operands of the run again; empty where it drew none, or does not say in which two
        formats.
        """
        widened = any(warning["code"] == WIDENED for warning in self.run.get("warnings", ()))
        if self.run.get("seed") is None or widened:
            return ""
        options = self.run["options"]
        named = {"seed": self.run["seed"]} | {
            name: options[name] for name in (OPERAND_DISTRIBUTION, "input_format") if options.get(name)
        }
        return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in named.items())


def read_saved(option: str, path: Path, wanted: str) -> SavedRun:
    """What the file of an option holds. wanted: what the file should be, for the message.

    Raises InputError, naming the file, where it is no JSON, or of a run without a record.
    """
    text = read_text(path, f"file of {option}", MOST_TABLE_BYTES)
    try:
        data = json.loads(text)
        is_run = isinstance(data, dict) and data.get("schema") == SCHEMA
        return SavedRun(data["gemm"], data) if is_run else SavedRun(data)
    except (ValueError, RecursionError, KeyError) as error:
        raise InputError(f"{option} {path}: not {wanted} ({error})") from error
