"""Which operand should stay in a systolic array? Cycles of the three dataflows beside SCALE-Sim's formula, by layer.

python compare.py --rows 32 --cols 32
"""

from __future__ import annotations

import argparse
import math
import tempfile
from pathlib import Path
from typing import Any

import hwsim
from hwsim.devices.templates import new_device_file

# name: m (tokens), n (output features), k (input features)
LAYERS = {
    "attention, 128 tokens": (128, 768, 256),
    "feed-forward, 128 tokens": (128, 1024, 256),
    "feed-forward, 1 token": (1, 1024, 256),
    "scores": (128, 128, 64),
}
# rows of PEs, columns of PEs, what streams
SIDES = {"weights": ("k", "n", "m"), "outputs": ("m", "n", "k"), "inputs": ("k", "m", "n")}


def formula(rows: int, cols: int, stationary: str, sizes: dict[str, Any]) -> int:
    """SCALE-Sim (arXiv 1811.02883): 2 R + C + T - 2 cycles for each fold."""
    down, across, streamed = (sizes[side] for side in SIDES[stationary])
    return (2 * rows + cols + streamed - 2) * math.ceil(down / rows) * math.ceil(across / cols)


def main() -> None:
    """Print a table: a row for each layer and dataflow."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--cols", type=int, default=32)
    arguments, _ = parser.parse_known_args()
    rows, cols = arguments.rows, arguments.cols
    print(f"{rows} x {cols} PEs")
    head = ("fill", "stream", "skew", "drain", "cycles", "formula", "use", "pe_tiles=2")
    print(f"{'layer':26}{'stationary':12}{''.join(f'{name:>11}' for name in head)}")
    with tempfile.TemporaryDirectory() as folder:
        device = new_device_file(Path(folder) / "my_array.yaml", "systolic", {"rows": rows, "cols": cols})
        for layer, (m, n, k) in LAYERS.items():
            for stationary in SIDES:
                call = {"m": m, "n": n, "k": k, "device": device, "format": "bf16", "exact": False}
                one, two = (hwsim.run(**call, stationary=stationary, pe_tiles=tiles) for tiles in (1, 2))
                parts = (one.folds[name] for name in ("fill", "stream", "skew", "drain"))
                counts = (*parts, one.cycles, formula(rows, cols, stationary, call))
                numbers = [*(f"{count:,.0f}" for count in counts), f"{m * n * k / (one.cycles * rows * cols):.1%}"]
                print(f"{layer:26}{stationary:12}{''.join(f'{x:>11}' for x in (*numbers, f'{two.cycles:,}'))}")


if __name__ == "__main__":
    main()
