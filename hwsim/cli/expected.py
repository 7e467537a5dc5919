"""What the bits of a run are compared with: a SHA-256, or the JSON of another run. It computes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hwsim.cli.saved_run import SHA256, read_saved
from hwsim.errors import InputError
from hwsim.result import Result

RUN_WITH_BITS = "the JSON of a run with bits, as hwsim run --json prints it"


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
    path = Path(text)
    sums = read_saved("--expect", path, RUN_WITH_BITS).sums
    if sums is None:
        raise InputError(f"--expect {path}: not {RUN_WITH_BITS} (it has no bits)")
    return sums


def differing(wanted: Mapping[str, str], result: Result) -> str:
    """What differs between the sums and a result, with what the result has; empty where all are equal."""
    operands = result.operands_sha256 or {}
    sums = {"A": operands.get("a"), "B": operands.get("b"), "result": result.result_sha256}
    others = [
        f"{name} has SHA-256 {sums[name]}, not {digest}" for name, digest in wanted.items() if sums[name] != digest
    ]
    return f"differs: {'; '.join(others)}" if others else ""
