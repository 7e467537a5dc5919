r"""Draw calls of cuBLAS, and keep those whose time hwsim's fit is least sure of.

    python lab/tools/library/doubtful_calls.py --draw models --seed 5 --drawn 60000 --count 8000 --out calls.json
    python lab/tools/measure_cublas_times.py --calls calls.json --reductions default --out times.json

lab/tools/measure_cublas_times.py draws the calls. The doubt of a call is the standard deviation of the logarithms that
the networks of --times give for it. A call is kept with a probability in proportion to the square of its
doubt, none twice. --plain keeps so many of the others at random. The list is in random order: a part of it is a sample
too.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from fit_times import Recorded, recorded, summed

from hwsim.libraries.cublas.times.factor import networks_of
from hwsim.libraries.cublas.times.fitted_times import rows_of
from hwsim.libraries.cublas.times.kernel_facts import facts
from hwsim.libraries.cublas.times.network import Networks

sys.path.insert(0, str(Path(__file__).parents[1]))
from measure_cublas_times import LAYERS, MODELS, SHARES, Call, draw, shares_of

UNKNOWN = 1.0  # the doubt of a call of a kind of kernel that was never recorded


def doubt(gemm: Recorded, sums: dict[tuple[int, str, bool, bool], np.ndarray], networks: Networks) -> float:
    """The spread of what the networks of a fit give for a call, as a logarithm."""
    sum_us = summed(gemm, sums)
    if sum_us is None:
        return UNKNOWN
    point = facts(gemm.choice, gemm.call, gemm.cores, gemm.least, sum_us)
    return float(np.std(networks.each_at(point)))


def as_row(call: Call, device: str) -> dict[str, str]:
    """A row as of a recorded call, without its times."""
    reductions = "any" if call["kind"][:4] in ("fp16", "bf16") else ""
    named = {"device": device, "set": "drawn", "us": 1, "launch_us": 0, "reductions": reductions}
    return {name: str(value) for name, value in (call | named).items()}


def kept(calls: list[Call], doubts: np.ndarray, count: int, plain: int, seed: int) -> list[Call]:
    """`count` calls by their doubt and `plain` others, in random order."""
    rng = np.random.default_rng(seed)
    by_doubt = rng.choice(len(calls), count, replace=False, p=doubts**2 / (doubts**2).sum())
    others = rng.choice(np.setdiff1d(np.arange(len(calls)), by_doubt), plain, replace=False)
    return [calls[place] for place in rng.permutation([*by_doubt, *others])]


def main() -> int:
    """Draw, and write the list."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw", choices=[*LAYERS, MODELS], default=MODELS)
    parser.add_argument("--groups", type=shares_of, default=SHARES, help="as in measure_cublas_times.py")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--drawn", type=int, default=60000)
    parser.add_argument("--count", type=int, default=8000, help="calls that are kept by their doubt")
    parser.add_argument("--plain", type=int, default=0, help="calls that are kept whatever their doubt")
    parser.add_argument("--device", default="h200")
    parser.add_argument("--times", default="cublas-13.1.times", help="files of a fit in configs/libraries")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    networks = networks_of(f"{arguments.times}.npz")
    assert networks is not None
    sums = {key: np.array(row.numbers) for key, row in rows_of(f"{arguments.times}.csv").items()}
    calls, doubts = [], []
    for call in draw(arguments.draw, arguments.seed, arguments.drawn, arguments.groups):
        if gemms := recorded([as_row(call, arguments.device)]):  # none where the library refuses it
            calls.append(call)
            doubts.append(doubt(gemms[0], sums, networks))
    listed = kept(calls, np.array(doubts), arguments.count, arguments.plain, arguments.seed)
    arguments.out.write_text(json.dumps(listed))
    print(f"{len(listed)} of {len(calls)} calls; doubt of all: mean {np.mean(doubts):.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
