"""Orders of summation of cuBLAS's kernels, beside what an H200 gave: to the bit, kernel family by kernel family."""

import csv
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from recorded import Recorded, recorded

import hwsim
from hwsim.gemm.schedule import Epilogue
from hwsim.libraries.cublas.answer import Answer
from hwsim.libraries.cublas.answers.store import store
from hwsim.libraries.cublas.calls import CublasGemm
from hwsim.libraries.cublas.orders.families import usual_tables
from hwsim.libraries.cublas.pytorch import NARROW
from hwsim.libraries.cublas.versions import versions

sys.path.insert(0, str(Path(__file__).parents[2] / "lab" / "tools" / "library"))
import compare_tiles

KEPT = store(versions()[0].path)


def by_rule(one: Recorded) -> np.ndarray | None:
    """The block by the rule of the kernel that cuBLASLt named; None where no rule is known."""
    operand, output, fast, has_bias = one.formats
    call = CublasGemm(one.m, one.n, one.k, operand, output, one.a_layout, one.b_layout)
    said = one.answer
    tile_k = KEPT.stages.get(said["stages"], (0, 0))[0]
    tile, cluster = KEPT.tiles.get(said["tile"]), KEPT.clusters.get(said["cluster"], (1, 1))
    rest = (said["splitk"], said["reduction"], said["custom"], tile, cluster, said["swizzle"])
    answer = Answer(said["id"], tile_k, *rest)
    order = usual_tables().order_of(call, answer)
    if not order.known:
        return None
    is_lt = one.n > 1 and one.k > 1
    rounds = (
        usual_tables().families[said["id"]].is_rounded_before_bias(max(said["splitk"], 1), said["reduction"], is_lt)
    )
    epilogue = Epilogue(
        product_format=output if has_bias and output in NARROW and rounds else None, output_format=output
    )
    a, b, bias = one.operands()
    options = {} if fast is None else {"accumulate": "fast" if fast else "promoted"}
    return hwsim.matmul(
        a, b, device="h200", format=operand, bias=bias, schedule=replace(order.schedule, epilogue=epilogue),
        shape=(one.m, one.n), at=one.places, **options,
    )  # fmt: skip


GROUPS = defaultdict(list)
for each in recorded():
    GROUPS[each.answer["id"]].append(each)


@pytest.mark.parametrize("algorithm", sorted(GROUPS))
def test_rule_gives_recorded_bits(algorithm: int) -> None:
    """Every block that the H200 ran with a kernel family, to the last bit; 14 cuts K into one chain per thread."""
    differing, unknown = [], 0
    for one in GROUPS[algorithm]:
        got = by_rule(one)
        if got is None:
            unknown += 1
            continue
        if not np.array_equal(np.ascontiguousarray(got).view(one.d.dtype), one.d):
            differing.append((one.kind, one.m, one.n, one.k, one.b_layout, one.answer, one.kernels[0][:60]))
    assert not differing
    assert not unknown


def test_every_recorded_algorithm_has_a_family() -> None:
    assert set(GROUPS) <= set(usual_tables().families)


def test_rules_matter() -> None:
    """Most recorded blocks by kernels that cut K differ from one chain in order of K: equality is no accident."""
    cut = [one for one in recorded() if one.answer["splitk"] > 1 and one.k > 256 and one.formats[1] in ("fp32", "fp64")]
    plain = 0
    for one in cut[::5]:
        a, b, _ = one.operands()
        fast = one.formats[2]
        options = {} if fast is None else {"accumulate": "fast" if fast else "promoted"}
        got = hwsim.matmul(a, b, device="h200", format=one.formats[0], output=one.formats[1], **options)
        plain += np.array_equal(np.ascontiguousarray(got).view(one.d.dtype), one.d)
    assert len(cut[::5]) > 20 and plain < len(cut[::5]) / 4


def test_tiles_that_ctas_share() -> None:
    """tf32 GEMMs of an H100, both layouts of B, compared with a chain tile by tile: what differs is not `known`."""
    said = compare_tiles.recorded()
    found = [(shape["b_layout"], *compare_tiles.agrees(shape, said["fields"])) for shape in said["shapes"]]
    assert (sum(is_equal for _, is_equal, _ in found), len(found)) == (1352, 1355)
    assert not any(order.known for _, is_equal, order in found if not is_equal)
    assert sum(layout == "rows" for layout, _, _ in found) > 100
    assert sum(any("1" in row for row in shape["differs"]) for shape in said["shapes"]) > 300


def test_parts_of_k_in_shared_tiles() -> None:
    """1,120 tf32 GEMMs of an H100 whose bits say into how many parts CTAs cut K (lab/tools/library/shared_parts.py)."""
    with (compare_tiles.RECORDED.parent / "shared_parts.csv").open() as file:
        rows = list(csv.DictReader(file))
    right = 0
    for row in rows:
        m, n, k = (int(row[name]) for name in "mnk")
        tile, cluster = (tuple(map(int, row[name].split("x"))) for name in ("tile", "cluster"))
        if row["b_layout"] == "columns":
            tile, cluster = tile[::-1], cluster[::-1]
        call = CublasGemm(m, n, k, "tf32", "fp32", "rows", row["b_layout"])
        regions = usual_tables().order_of(call, Answer(43, 32, -1, 2, 0, tile, cluster, 0)).schedule.regions
        parts = len(getattr(regions[0].sum, "parts", (None,))) if regions else 1
        right += str(parts) in row["fits"].split()
    assert (right, len(rows)) == (1092, 1120)
