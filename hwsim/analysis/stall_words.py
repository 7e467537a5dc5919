"""The words for engines and for causes of stalls. It knows the names that programs use; it measures nothing."""

from __future__ import annotations

import re

#: What a core's engines are called, by the name in device files; any other engine is called by its name.
ENGINE_WORDS = {
    "TC": "tensor cores",
    "MFMA": "matrix cores",
    "M": "cube units",
    "FMA": "CUDA cores",
    "V": "vector units",
    "VALU": "vector units",
}
#: What a buffer of a program holds, by its name. The first pattern that fits counts; `{x}` is A or B.
_HELD = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r"(acc\d*|C\.L0|L0C)", "accumulator"),
        (r"acc\d*\.rf", "the sums in registers"),
        (r"stage", "the operands in shared memory"),
        (r"(?P<x>[AB])\d*\.op", "operand {x} at the matrix unit"),
        (r"L0(?P<x>[AB])|(?P<y>[AB])\d*\.L0", "operand {x} in L0"),
        (r"(?P<x>[AB])\d*(\.L1)?", "operand {x} in L1"),
        (r"(?P<x>[AB])(\d*\.(load|new)|raw\.rf)", "operand {x} in registers"),
        (r"(?P<x>[AB])raw", "unsplit operand {x}"),
        (r"c|C", "C"),
        (r"in\d*", "the input of the pass"),
        (r"out\d+", "the result of the pass"),
        (r"out", "the result in registers"),
        (r"out\.sh", "the result in shared memory"),
    )
)
_FIXED = {
    "busy": "busy",
    "empty": "not started",
    "done": "finished early",
    "queue-full": "not started: its stream waits for room in another engine's queue",
    "in-flight": "waits for bytes in flight to arrive",
    "semaphore:cta.free": "waits for the CTA before to end",
    "semaphore:cta.full": "waits for the CTA to begin",
}


def engine_words(name: str) -> str:
    """What an engine is called: `TC` is `tensor cores`."""
    return ENGINE_WORDS.get(name, f"engine {name}")


def stall_words(cause: str) -> str:
    """The cause of a stall (a key of `stall_cycles`, or "busy") in the reader's words."""
    if cause in _FIXED:
        return _FIXED[cause]
    name = cause.removeprefix("semaphore:")
    buffer, _, state = name.rpartition(".")
    held = _held(buffer)
    if held == "accumulator":
        return {"free": "waits for a free accumulator", "full": "waits for the accumulator's sums"}.get(
            state, f"waits for {name}"
        )
    if state == "full":
        return f"waits for {held}"
    if state == "free":
        return f"waits for room for {held}"
    return f"waits until {held} is stored" if state == "done" else f"waits for {name}"


def _held(buffer: str) -> str:
    for pattern, words in _HELD:
        if match := pattern.fullmatch(buffer):
            which = match.groupdict()
            return words.format(x=which.get("x") or which.get("y") or "")
    return f"data in {buffer}" if buffer else "data"
