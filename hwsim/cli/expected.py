"""What the bits of a run are compared with: a SHA-256, or the JSON of another run. It computes nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from hwsim.errors import InputError
from hwsim.host.input_files import MOST_TABLE_BYTES, read_text
from hwsim.result import SCHEMA, Result

SHA256 = re.compile("[0-9a-fA-F]{64}")


def expected(text: str) -> Mapping[str, str]:
    """The sums that a result should have, by what they are of: "A", "B", "result".

    Raises InputError for text that is no SHA-256 and names no JSON of a run with bits.
    """
    if SHA256.fullmatch(text):
        return {"result": text.lower()}
    if not text.endswith(".json"):
        raise InputError(
            f"--expect {text}: allowed: the 64 hexadecimal digits of a SHA-256, or FILE.json of hwsim run --json"
        )
    try:
        run = json.loads(read_text(Path(text), "run of --expect", MOST_TABLE_BYTES))
        schema, result, operands = run["schema"], run["result_sha256"], run["operands_sha256"]
        if schema != SCHEMA or result is None or operands is None:
            raise ValueError("it has no bits")
    except (ValueError, RecursionError, TypeError, KeyError) as error:
        raise InputError(
            f"--expect {text}: not the JSON of a run with bits, as hwsim run --json prints it ({error})"
        ) from error
    return {"A": str(operands["a"]), "B": str(operands["b"]), "result": str(result)}


def differing(wanted: Mapping[str, str], result: Result) -> str:
    """What differs between the sums and a result, with what the result has; empty where all are equal."""
    operands = result.operands_sha256 or {}
    sums = {"A": operands.get("a"), "B": operands.get("b"), "result": result.result_sha256}
    others = [
        f"{name} has SHA-256 {sums[name]}, not {digest}" for name, digest in wanted.items() if sums[name] != digest
    ]
    return f"differs: {'; '.join(others)}" if others else ""
