"""The tiles of C that hwsim has CTAs share beside those that did on a GPU.

    python tools/library/compare_tiles.py FILE.json

FILE is what tools/record/shared_tiles.py wrote. Prints how many shapes agree in every tile, and those that do not. Exit
1 where a shape differs whose order hwsim calls known.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np

from hwsim.library_calls.choose import VERSIONS
from hwsim.library_calls.orders import Answer, Call, Order, order_of
from hwsim.library_calls.store import store

GRAIN = 64  # of the recorder's tiles


def expected(m: int, n: int, k: int, answer: dict[str, int]) -> tuple[Order, np.ndarray]:
    """The order of summation, and per tile of 64 x 64 of C whether CTAs share it."""
    trees = store(VERSIONS[0].path)
    tile, cluster = trees.tiles[answer["tile"]], trees.clusters.get(answer["cluster"], (1, 1))
    tile_k = trees.stages[answer["stages"]][0]
    call = Call(m, n, k, "tf32", "fp32", "rows", "columns")
    given = (answer["id"], tile_k, answer["splitk"], answer["reduction"], answer["custom"])
    order = order_of(call, Answer(*given, tile, cluster, answer["swizzle"]))
    shared = np.zeros((-(-m // GRAIN), -(-n // GRAIN)), bool)
    for region in order.schedule.regions:
        rows, columns = region.rows, region.cols
        shared[rows.start // GRAIN : -(-rows.stop // GRAIN), columns.start // GRAIN : -(-columns.stop // GRAIN)] = True
    return order, shared


def main() -> int:
    """Compare and print."""
    said = json.loads(Path(sys.argv[1]).read_text())
    trees, equal, sizes, wrong = store(VERSIONS[0].path), 0, Counter(), 0
    for shape in said["shapes"]:
        m, n, k = (shape[name] for name in "mnk")
        answer = dict(zip(said["fields"], shape["answer"], strict=True))
        order, shared = expected(m, n, k, answer)
        differs = np.array([[mark == "1" for mark in row] for row in shape["differs"]])
        cluster = trees.clusters.get(answer["cluster"], (1, 1))
        if np.array_equal(shared, differs):
            equal += 1
            sizes[cluster[0] * cluster[1]] += bool(differs.any())
            continue
        wrong += order.known
        tile, known = trees.tiles[answer["tile"]], "known" if order.known else "not known"
        print(
            f"{m} x {n} x {k}, tile {tile}, cluster {cluster}, swizzle {answer['swizzle']}: {int(differs.sum())} tiles "
            f"of 64 x 64 are shared, hwsim has {int(shared.sum())} ({known})"
        )
    print(f"{equal} of {len(said['shapes'])} shapes agree in every tile ({said['device']})")
    print("of these with shared tiles, by CTAs of a cluster:", dict(sorted(sizes.items())))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
