"""The words for engines and for causes of stalls. It knows the names that programs use; it measures nothing."""

from __future__ import annotations

import re

#: What a core's engines are called, by the name in device files; any other engine is called by its name.
ENGINE_WORDS = {
    "TC": "tensor cores",
    "MFMA": "matrix cores",
    "M": "cube units",
    "ARRAY": "systolic arrays",
    "FMA": "CUDA cores",
    "MUFU": "special-function units",
    "V": "vector units",
    "VALU": "vector units",
    "VECTOR": "vector units",
}
#: What a wait for a buffer of a program is for, by the buffer's name: until it is filled, until there is room in it.
#: The first pattern that fits counts; `{x}` is A or B.
_AWAITED = tuple(
    (re.compile(pattern), filled, room or f"room for {filled}")
    for pattern, filled, room in (
        (r"(acc\d*|C\.L0|L0C)", "the accumulator's sums", "a free accumulator"),
        (r"acc\d*\.rf", "the sums in registers", ""),
        (r"stage", "the operands of a stage", "a free stage"),
        (r"(?P<x>[AB])\d*\.op", "operand {x} at the matrix unit", ""),
        (r"L0(?P<x>[AB])|(?P<y>[AB])\d*\.L0", "operand {x} in L0", ""),
        (r"(?P<x>[AB])\d*(\.L1)?", "operand {x} in L1", ""),
        (r"(?P<x>[AB])(\d*\.(load|new)|raw\.rf)", "operand {x} in registers", ""),
        (r"(?P<x>[AB])raw", "unsplit operand {x}", ""),
        (r"c|C", "C", ""),
        (r"in\d*", "the input of the pass", ""),
        (r"out\d+", "the result of the pass", ""),
        (r"out", "the result in registers", ""),
        (r"out\.sh", "the result in shared memory", ""),
        (r"PE", "the tile in the PEs", "free PEs"),
        (r"IFMAP", "operand A in IFMAP", ""),
        (r"FILTER", "operand B in FILTER", ""),
        (r"PANEL|RESIDENT", "the operand that is kept for all tiles", ""),
        (r"OFMAP", "the result in OFMAP", ""),
        (r"SUMS", "the array's sums", ""),
        (r"Q\d+", "the queries of a tile", ""),
        (r"K\d+", "a block of keys", ""),
        (r"V\d+", "a block of values", ""),
        (r"V\d+\.rows", "a block of values by rows", ""),
        (r"transposed", "values in registers, for their transposition", ""),
        (r"S\d+", "the scores of a block", ""),
        (r"W\d+", "the scores of a block in registers", ""),
        (r"P\d+", "the softmax of a block", ""),
        (r"O\d+", "the products of a block with values", "room for the sums of a tile"),
        (r"N\d+", "a product that joins the result", ""),
        (r"M\d+", "the mask of a block", ""),
        (r"L\d*", "the logarithms of a tile", ""),
        (r"part", "a part of a sum", ""),
        (r"own|addend", "the CTA's own part of a sum", ""),
        (r"stored", "the CTA's own part to be stored", ""),
        (r"whole", "a sum of all parts", ""),
        (r"R\d+", "the result of a tile", ""),
        (r"pieces", "a piece of the result in registers", ""),
        (r"row", "rows of scores", ""),
        (r"argument", "arguments of special functions", ""),
        (r"power", "results of special functions", ""),
    )
)
#: Semaphores of CTAs that share the K of a tile: one for each sum that a CTA stores.
PEERS = re.compile(r"part\d+\.\d+\.\d+|tile\d+\.part\d+")
_FIXED = {
    "busy": "busy",
    "empty": "not started",
    "done": "finished early",
    "skew": "in the skew",
    "idle cores": "on cores without work",
    "launches": "in launches",
    "queue-full": "waits for its next instruction: the queue of another engine is full",
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
    if PEERS.fullmatch(name):
        return "waits for another CTA's part of a sum"
    buffer, _, state = name.rpartition(".")
    filled, room = _awaited(buffer)
    steps = {"changed": f"{filled}, rescaled", "rounded": f"{filled}, rounded", "narrow": f"{filled}, narrow"}
    words = {"full": filled, "free": room, "done": f"{buffer} to be stored", **steps}.get(state, name)
    return f"waits for {words}"


def _awaited(buffer: str) -> tuple[str, str]:
    """What a wait for a buffer is for: until it is filled, until there is room."""
    for pattern, filled, room in _AWAITED:
        if match := pattern.fullmatch(buffer):
            which = match.groupdict()
            operand = which.get("x") or which.get("y") or ""
            return filled.format(x=operand), room.format(x=operand)
    return f"data in {buffer}", f"room in {buffer}"
