"""Record what PyTorch's attention gives on a GPU: a SHA-256 of the last head of each call, as JSON on standard output.

    python lab/tools/measure/attention_outputs.py > tests/golden/h200_attention/outputs.json

The calls: drawn shapes for each backend, of which every third is held back from the search for an order (`held`); one
head of many widths (`cudnn`); few queries and many keys (`parts`); shared heads (`gqa`); masks of one's own (`mask`).
Operands are drawn by tests/modern.py's rule, so that none is kept.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[3] / "tests"))

LENGTHS = (77, 100, 128, 197, 256, 333, 384, 512, 577, 640, 777, 1000, 1024, 1500, 2048, 4096)
WIDTHS, MORE_WIDTHS = (32, 40, 64, 72, 80, 96, 128, 256), (32, 40, 72, 80, 96, 104, 112, 128, 160, 192, 256)
FUSED = ("MATH", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION")
MOST_ROWS, DRAWN, IN_TURN = 8192, 60, 48  # of all heads; shapes; of which so many go through the widths in turn


class Call(NamedTuple):
    """A call: its kind, the backends that compute it, format, sizes, whether it is causal, and its mask."""

    kind: str
    backends: tuple[str, ...]
    format: str
    heads: int
    key_heads: int
    queries: int
    keys: int
    width: int
    is_causal: bool = False
    mask: str = ""

    def name(self, backend: str) -> str:
        """The key of its hash."""
        heads = f"{self.heads}" if self.heads == self.key_heads else f"{self.heads}({self.key_heads})"
        rows = f"{self.queries}" if self.queries == self.keys else f"{self.queries}({self.keys})"
        words = f"{self.kind} {backend} {self.format} {heads}x{rows}x{self.width} {self.is_causal}"
        return f"{words} {self.mask}" if self.mask else words


def calls() -> Iterator[Call]:
    """All calls."""
    draw = np.random.default_rng(20261128)
    for number in range(DRAWN):
        rows = int(draw.choice(LENGTHS))
        width = WIDTHS[number % len(WIDTHS)] if number < IN_TURN else int(draw.choice(WIDTHS))
        heads = int(draw.choice([1, 2, 3, 4, 8]))
        while heads * rows > MOST_ROWS:
            heads //= 2
        is_causal, format = bool(draw.integers(2)), ("bf16", "fp16")[int(draw.integers(2))]
        kind = "held" if number % 3 == 2 else "find"
        yield Call(kind, FUSED, format, heads, heads, rows, rows, width, is_causal)
    for width in MORE_WIDTHS:
        for rows in (64, 128, 200, 300, 520):
            yield Call("cudnn", FUSED[-1:], "fp16", 1, 1, rows, rows, width, rows == 300)
    for heads, queries, keys, width in (
        *((2, 1, 512, 64), (2, 1, 3000, 128), (4, 17, 2049, 64), (1, 64, 4096, 96), (8, 100, 1000, 128)),
        *((2, 333, 777, 80), (1, 5, 300, 40), (2, 130, 2500, 256)),
    ):
        yield Call("parts", FUSED, "bf16", heads, heads, queries, keys, width)
    for heads, key_heads, queries, keys, width, is_causal in (
        *((8, 2, 333, 333, 64, True), (8, 1, 512, 512, 128, False), (32, 8, 1, 2048, 128, False)),
        *((4, 2, 200, 200, 96, True), (6, 3, 257, 257, 128, True), (16, 4, 1, 700, 64, False)),
    ):
        backends = tuple(backend for backend in FUSED if backend != "EFFICIENT_ATTENTION")
        yield Call("gqa", backends, "fp16", heads, key_heads, queries, keys, width, is_causal)
    for heads, queries, keys, width, format in (
        *((2, 128, 128, 64, "fp16"), (2, 333, 333, 64, "bf16"), (3, 200, 520, 80, "fp16")),
        *((2, 512, 512, 128, "bf16"), (1, 100, 1000, 96, "fp16"), (2, 77, 77, 256, "bf16")),
    ):
        backends = tuple(backend for backend in FUSED if backend != "FLASH_ATTENTION")
        for mask in ("bool", "add", "wide"):
            yield Call("mask", backends, format, heads, heads, queries, keys, width, mask=mask)


def operands_of(call: Call) -> tuple[list[Any], Any]:
    """Query, key, value and mask (None: none) as tensors."""
    import torch
    from modern import operand

    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[call.format]
    shapes = (call.heads, call.queries), (call.key_heads, call.keys), (call.key_heads, call.keys)

    def tensor(seed: int, rows: int, columns: int) -> Any:
        return torch.from_numpy(operand(seed, rows, columns, "fp32")).to(dtype)

    drawn = [
        tensor(70 + i, n * rows, call.width).view(1, n, rows, call.width) / 2 for i, (n, rows) in enumerate(shapes)
    ]
    if not call.mask:
        return drawn, None
    if call.mask == "bool":
        seen = torch.from_numpy(operand(90, call.queries, call.keys, "fp32") > -1)
        seen[:, 0] = True
        return drawn, seen.view(1, 1, call.queries, call.keys)
    matrices = call.heads if call.mask == "wide" else 1
    added = tensor(91, matrices * call.queries, call.keys).view(1, matrices, call.queries, call.keys)
    return drawn, added.masked_fill(added < -2.5, float("-inf")) if call.mask == "add" else added


def main() -> None:
    """Run all calls."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    hashes = {}
    for call in calls():
        drawn, mask = operands_of(call)
        query, key, value = (x.cuda() for x in drawn)
        more = {"attn_mask": None if mask is None else mask.cuda(), "enable_gqa": call.heads != call.key_heads}
        for backend in call.backends:
            with sdpa_kernel(getattr(SDPBackend, backend)):
                out = torch.nn.functional.scaled_dot_product_attention(
                    query, key, value, is_causal=call.is_causal, **more
                )
            last = out[0, -1].contiguous().view(torch.int16).cpu().numpy().astype("<i2")
            hashes[call.name(backend)] = hashlib.sha256(last.tobytes()).hexdigest()
    print(json.dumps(hashes, indent=0))


if __name__ == "__main__":
    main()
