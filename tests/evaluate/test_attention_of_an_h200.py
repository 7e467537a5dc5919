"""Attention of many shapes as PyTorch on an H200 gave it, as hashes of the last head; the operands are drawn again.

tests/golden/h200_attention: PyTorch 2.11, CUDA 13.0, cuDNN 9.19, 2026-11-28 (lab/tools/measure/attention_outputs.py).
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from modern import operand

from hwsim.compute.attention_call import call_of
from hwsim.formats import codes_of, format_of

OUTPUTS = json.loads((Path(__file__).parents[1] / "golden" / "h200_attention" / "outputs.json").read_text())
TYPES = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16}
CALL = re.compile(r"(\w+) (\w+) (\w+) (\d+)(?:\((\d+)\))?x(\d+)(?:\((\d+)\))?x(\d+) (True|False)(?: (\w+))?")
MOST = 2**24  # scores times widths of a head that are computed here


def sizes_of(name):
    kind, backend, fmt, heads, key_heads, queries, keys, width, causal, mask = CALL.fullmatch(name).groups()
    sizes = int(heads), int(key_heads or heads), int(queries), int(keys or queries), int(width)
    return kind, backend, fmt, sizes, causal == "True", mask or ""


def operands_of(fmt, sizes, mask):
    heads, key_heads, queries, keys, width = sizes
    shapes = (heads, queries), (key_heads, keys), (key_heads, keys)
    drawn = [
        (operand(70 + i, n * rows, width, fmt).reshape(n, rows, width) / TYPES[fmt](2)).astype(TYPES[fmt])
        for i, (n, rows) in enumerate(shapes)
    ]
    if mask == "bool":
        seen = operand(90, queries, keys, "fp32") > -1
        seen[:, 0] = True
        return drawn, seen
    if not mask:
        return drawn, None
    added = operand(91, (heads if mask == "wide" else 1) * queries, keys, fmt).reshape(-1, queries, keys)
    hidden = TYPES[fmt](-np.inf)
    return drawn, np.where(added < -2.5, hidden, added) if mask == "add" else added


def chosen():
    """Calls that are cheap: of each kind and backend some, spread over all."""
    groups = {}
    for name in OUTPUTS:
        kind, backend, _, (_, _, queries, keys, width), _, _ = sizes_of(name)
        is_known = backend != "CUDNN_ATTENTION" or queries > 1  # of one query cuDNN's order is not known
        if is_known and queries * keys * width <= MOST:
            groups.setdefault((kind, backend), []).append(name)
    return [name for names in groups.values() for name in names[:: max(1, len(names) // 3)][:4]]


@pytest.mark.parametrize("name", chosen())
def test_the_last_head(name):
    _, backend, fmt, sizes, is_causal, mask = sizes_of(name)
    operands, added = operands_of(fmt, sizes, mask)
    arguments = {"library": "pytorch", "backend": backend, "is_causal": is_causal, "scale": None, "mask": added}
    call = call_of(*operands, device="h200", **arguments)
    stacks = [codes_of(np.ascontiguousarray(x[-1:]), format_of(fmt)) for x in operands]
    of_head = None if call.mask is None else call.mask[-1:]
    codes = call.kernel.attend(*stacks, factor=call.record.factor, threads=1, mask=of_head)
    assert hashlib.sha256(np.ascontiguousarray(codes).astype("<u2").tobytes()).hexdigest() == OUTPUTS[name]
