r"""Which tiles of C do CTAs share in cuBLAS's tf32 kernels for Hopper? Runs GEMMs on a GPU and compares their tiles.

    python lab/tools/record/shared_tiles.py --out tiles.json [--shapes 400] [--seed 1] [--also MxNxK,...] \
        [--b-layout rows]

Needs a GPU, libcublasLt and PyTorch with CUDA; nothing of hwsim. Of shapes drawn at random those are run for which
cuBLASLt answers with algorithm 43 and slices of -1, as PyTorch's mm; the same rows, in products for which it answers
with one slice, are one chain over K. Writes for each shape the answer and, per tile of 64 x 64 of C, whether a bit
differs (rows of "0" and "1", along n).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import torch

sys.path.append(
    str(Path(__file__).resolve().parents[3] / "hwsim" / "libraries" / "recording")
)  # none of these needs hwsim
from batch_classes import operands
from cublas_gemms import call
from cublaslt import CublasLt, Kind, LtAnswer

KIND = "tf32>fp32"
SHARES_K = 43
GRAIN = 64  # of the tiles compared
CHAIN_SIZES = (192, 256, 384, 512, 128, 64, 448, 640, 768, 1024, 96, 320)


def drawn(rng: np.random.Generator, count: int) -> list[tuple[int, int, int]]:
    """Sizes, log-uniform: m, n of 64 to 8192 (some of no multiple), k of 520 to 16384, multiples of 8."""
    found = []
    for _ in range(count):
        m, n = (int(64 * 128 ** rng.random()) for _ in range(2))
        k = int(520 * 31 ** rng.random())
        m = m if rng.random() < 0.3 else -(-m // 64) * 64
        found.append((m, -(-n // 8) * 8 if rng.random() < 0.3 else -(-n // 64) * 64, k // 8 * 8))
    return found


def main() -> None:
    """Ask, run, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--shapes", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--also", default="")
    parser.add_argument("--b-layout", choices=("rows", "columns"), default="columns")
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    lt, found, by_columns = CublasLt(), [], arguments.b_layout == "columns"

    def ask(m: int, n: int, k: int) -> LtAnswer:
        return lt.ask(Kind("tf32", "fp32"), m, n, k, b_columns=by_columns)

    shapes = [tuple(map(int, text.split("x"))) for text in arguments.also.split(",") if text]
    shapes += drawn(np.random.default_rng(arguments.seed), arguments.shapes)
    for m, n, k in shapes:
        answer = ask(m, n, k)
        if (answer.id, answer.splitk) != (SHARES_K, -1):
            continue
        chains = [x for x in CHAIN_SIZES if (ask(x, n, k).id, ask(x, n, k).splitk) == (SHARES_K, 1)]
        if not chains:
            continue
        step = chains[0]
        padded = -(-m // step) * step
        a, b = operands(padded, k, torch.float32), operands(n, k, torch.float32).t()
        b = b if by_columns else b.contiguous()
        whole = call(KIND, a[:m], b, None)()
        chain = torch.cat([call(KIND, a[i : i + step], b, None)() for i in range(0, padded, step)])[:m]
        differs = (whole != chain).cpu().numpy()
        rows = [
            "".join(str(int(differs[i : i + GRAIN, j : j + GRAIN].any())) for j in range(0, n, GRAIN))
            for i in range(0, m, GRAIN)
        ]
        put = {"m": m, "n": n, "k": k, "b_layout": arguments.b_layout}
        found.append(put | {"answer": list(answer), "differs": rows})
    said = {"device": torch.cuda.get_device_name(), "fields": list(LtAnswer._fields), "shapes": found}
    arguments.out.write_text(json.dumps(said))
    print(f"{len(found)} of {len(shapes)} shapes on {said['device']}")


if __name__ == "__main__":
    main()
