"""The tiles of C that hwsim has CTAs share beside those that did on a GPU.

    python lab/tools/library/compare_tiles.py [FILE.json[.gz]]

FILE, as tests/golden/h200_library/shared_tiles.json.gz, is what lab/tools/record/shared_tiles.py wrote. Prints how many
shapes agree in every tile, and those that do not. Exit 1 where a shape differs whose order hwsim calls known.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np

from hwsim.libraries.cublas.answer import Answer
from hwsim.libraries.cublas.answers.store import store
from hwsim.libraries.cublas.calls import CublasGemm
from hwsim.libraries.cublas.orders.families import usual_tables
from hwsim.libraries.cublas.versions import versions
from hwsim.libraries.kernel_choice import SummationOrder

RECORDED = Path(__file__).resolve().parents[3] / "tests" / "golden" / "h200_library" / "shared_tiles.json.gz"
GRAIN = 64  # of the recorder's tiles


def recorded(path: Path = RECORDED) -> dict:
    """What the recorder wrote."""
    return json.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())


def agrees(shape: dict, fields: list[str]) -> tuple[bool, SummationOrder]:
    """Whether hwsim shares exactly the tiles that were, and the order it has."""
    answer = dict(zip(fields, shape["answer"], strict=True))
    order, shared = expected(*(shape[name] for name in "mnk"), answer, shape.get("b_layout", "columns"))
    differs = np.array([[mark == "1" for mark in row] for row in shape["differs"]])
    return np.array_equal(shared, differs), order


def expected(
    m: int, n: int, k: int, answer: dict[str, int], b_layout: str = "columns"
) -> tuple[SummationOrder, np.ndarray]:
    """The order of summation, and per tile of 64 x 64 of C whether CTAs share it."""
    trees = store(versions()[0].path)
    tile, cluster = trees.tiles[answer["tile"]], trees.clusters.get(answer["cluster"])
    tile_k = trees.stages[answer["stages"]][0]
    call = CublasGemm(m, n, k, "tf32", "fp32", "rows", b_layout)
    given = (answer["id"], tile_k, answer["splitk"], answer["reduction"], answer["custom"])
    order = usual_tables().order_of(call, Answer(*given, tile, cluster, answer["swizzle"]))
    shared = np.zeros((-(-m // GRAIN), -(-n // GRAIN)), bool)
    for region in order.schedule.regions:
        rows, columns = region.rows, region.cols
        shared[rows.start // GRAIN : -(-rows.stop // GRAIN), columns.start // GRAIN : -(-columns.stop // GRAIN)] = True
    return order, shared


def main() -> int:
    """Compare and print."""
    said = recorded(*map(Path, sys.argv[1:]))
    trees, equal, sizes, wrong = store(versions()[0].path), 0, Counter(), 0
    for shape in said["shapes"]:
        cluster = trees.clusters.get(dict(zip(said["fields"], shape["answer"], strict=True))["cluster"], (1, 1))
        is_equal, order = agrees(shape, said["fields"])
        equal += is_equal
        if is_equal:
            sizes[cluster[0] * cluster[1]] += any("1" in row for row in shape["differs"])
            continue
        wrong += order.known
        known = "known" if order.known else "not known"
        print(f"{shape['m']} x {shape['n']} x {shape['k']}, cluster {cluster}: other tiles are shared ({known})")
    print(f"{equal} of {len(said['shapes'])} shapes agree in every tile ({said['device']})")
    print("of these with shared tiles, by CTAs of a cluster:", dict(sorted(sizes.items())))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
