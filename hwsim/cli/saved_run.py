"""Reads the JSON of a run, or of a record alone, from a file. It computes nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from hwsim.compute.notices import WIDENED
from hwsim.errors import InputError
from hwsim.host.input_files import MOST_TABLE_BYTES, read_text
from hwsim.request.declarations import OPERAND_DISTRIBUTION
from hwsim.result import SCHEMA

SHA256 = re.compile("[0-9a-fA-F]{64}")
_KINDS = {dict: "an object", list: "a list", str: "a string", int: "an integer"}
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class SavedRun:
    """What a file holds. record: plain data. sums: SHA-256 by what it is of: "A", "B", "result"; None where the file
    has none. draw_flags: the flags that draw the operands of the run again; empty where it drew none, or does not say
    in which two formats.
    """

    record: Mapping[str, Any]
    sums: Mapping[str, str] | None = None
    draw_flags: str = ""


def read_saved(option: str, path: Path, wanted: str) -> SavedRun:
    """What the file of an option holds. wanted: what the file should be, for the message.

    Raises InputError, naming the file, where it is no JSON, or neither a record nor a run with a record.
    """
    text = read_text(path, f"file of {option}", MOST_TABLE_BYTES)
    try:
        data = _of_kind(json.loads(text), dict, "the file")
        if data.get("schema") != SCHEMA:
            return SavedRun(data)
        return SavedRun(_part(data, "gemm", dict), _sums(data), _draw_flags(data))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{option} {path}: not {wanted} ({error})") from error


def _sums(run: Mapping[str, Any]) -> Mapping[str, str] | None:
    if run.get("operands_sha256") is None or run.get("result_sha256") is None:
        return None
    operands = _part(run, "operands_sha256", dict)
    named = {"A": _part(operands, "a", str), "B": _part(operands, "b", str), "result": _part(run, "result_sha256", str)}
    for name, digest in named.items():
        if not SHA256.fullmatch(digest):
            raise ValueError(f"the SHA-256 of {name} is {digest[:80]!r}; allowed: 64 hexadecimal digits")
    return named


def _draw_flags(run: Mapping[str, Any]) -> str:
    warnings = _part(run, "warnings", list) if "warnings" in run else []
    codes = {_of_kind(warning, dict, "an entry of warnings").get("code") for warning in warnings}
    if run.get("seed") is None or WIDENED in codes:
        return ""
    options = _part(run, "options", dict)
    named: dict[str, object] = {"seed": _part(run, "seed", int)}
    for name in (OPERAND_DISTRIBUTION, "input_format"):
        if options.get(name) is not None:
            named[name] = _part(options, name, str)
    return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in named.items())


def _part(data: Mapping[str, Any], name: str, kind: type[_T]) -> _T:
    if name not in data:
        raise ValueError(f"it has no {name}")
    return _of_kind(data[name], kind, name)


def _of_kind(value: object, kind: type[_T], name: str) -> _T:
    """The value. Raises ValueError where it is of another kind."""
    if isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return value
    got = "null" if value is None else _KINDS.get(type(value), f"{value!r}"[:80])
    raise ValueError(f"{name}: got {got}; allowed: {_KINDS[kind]}")
