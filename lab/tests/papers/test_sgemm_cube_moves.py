"""What the coupled DaVinci kernel that splits A itself moves and casts, counted in its program."""

from collections import Counter

from hwsim import api
from hwsim.program.ir import LocalTile
from hwsim_lab.papers.sgemm_cube.moves import executed, moves

SMALL = {"device": "ascend910a", "scheme": "sgemm-cube", "tile": (16, 16, 16), "n_fused": 2, "grid": (32, 1)}


def gemm_of(parts):
    return next(one for one in parts.kernels if one.name == "gemm")


def test_traffic_counted_by_hand():
    """48 x 40 x 40 in blocks of 16 x 16 x 16, two blocks of A a group, three terms; k: groups of 32 and of 8."""
    m, n, k, terms = 48, 40, 40, 3
    parts = api.program(m=m, n=n, k=k, convert_a="kernel", **SMALL)[1]
    assert [array.name for array in parts.arrays if array.name.startswith("A")] == ["A.in"]
    assert [one.name for one in parts.kernels] == ["split_b", "zero", "gemm", "combine"]
    found = moves(gemm_of(parts))
    a_bytes = {array.name: array.format for array in parts.arrays}["A.in"]
    assert a_bytes == "fp32"
    # Each term reads A once, whole, into UB: not into L1, and no piece of A is read or written in global memory.
    assert found.read["A.in"] == terms * m * k and found.staged["A.in", "UB"] == terms * m * k
    assert ("A.in", "L1") not in found.staged
    assert {name for name in (*found.read, *found.written) if name.startswith("A")} == {"A.in"}
    # Each block row reads all of B.
    assert found.read["B1"] + found.read["B2"] == terms * 3 * n * k
    # Casts: high piece, and for the term with the low piece: high, high back, low. All from UB.
    assert found.cast == {"UB": (1 + 3 + 1) * m * k}
    memory = {buffer.name: buffer.memory for buffer in gemm_of(parts).buffers}
    staged: Counter[str] = Counter()
    for one in executed(gemm_of(parts)):
        for target in one.instr.writes:
            if isinstance(target, LocalTile) and target.buffer == "A":
                source = one.instr.reads[0]
                staged[memory[source.buffer]] += target.rows * target.cols * one.times * one.group.count
                assert target.format == "fp16" and one.instr.engine == "MTE3"
    assert staged == {"UB": terms * m * k}
