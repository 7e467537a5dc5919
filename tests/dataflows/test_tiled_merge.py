"""The kernel that adds slices of K: what it reads, the operations in order, and what is timed for other arithmetic."""

from dataclasses import replace

import pytest

from hwsim.dataflows.tiled.model import MatrixRef, TileEpilogue
from hwsim.dataflows.tiled.split_k_reduction import reduction_pass
from hwsim.gemm.plan import TermValue
from hwsim.program.ir import GlobalArray, LocalTile

ROWS = 8
C = MatrixRef("C", "fp32")


class Recorder:
    """Stands for VectorOps: operations as (opcode, target, sources, attributes), tiles by name."""

    def __init__(self) -> None:
        self.ops = []

    def op(self, opcode, target, *sources, **attributes):
        attributes.pop("label", None)
        self.ops.append((opcode, target.buffer, *(x.buffer for x in sources), *attributes.values()))


def array(matrix: MatrixRef, blocks: int = 1) -> GlobalArray:
    return GlobalArray(matrix.name, blocks * ROWS, 16, matrix.format)


def merged(end: TileEpilogue, slices: int, **given):
    """The pass, and the operations that it makes."""
    addends = [array(matrix) for matrix in end.addends]
    partial = [array(MatrixRef("P", "fp32"), slices)]
    made = reduction_pass("merge_gemm", partial, addends, array(end.target), end, slices, **given)

    def tiles(name: str, count: int) -> list[LocalTile]:
        return [LocalTile(f"{name}{i}", 2, 16, "fp32") for i in range(count)]

    recorder = Recorder()
    made.body(
        recorder,
        [replace(tile, format=x.format) for tile, x in zip(tiles("in", len(made.inputs)), made.inputs, strict=True)],
        [replace(tile, format=made.outputs[0].format) for tile in tiles("out", 1)],
        tiles("t", len(made.temporaries)),
    )
    return made, recorder.ops


def test_slices_lie_under_one_another_and_are_added_in_ascending_order():
    made, ops = merged(TileEpilogue(TermValue(0), C), 3)
    assert made.name == "merge_gemm" and made.outputs == (array(C),)
    assert [(array.name, offset) for array, offset in zip(made.inputs, made.offsets, strict=True)] == [
        ("P", 0), ("P", ROWS), ("P", 2 * ROWS),
    ]  # fmt: skip
    assert ops == [
        ("add", "t0", "in0", "in1"),
        ("add", "t0", "t0", "in2"),
        ("copy", "t1", "t0"),
        ("copy", "out0", "t1"),
    ]


def test_the_end_of_a_tile_comes_after_the_sum():
    before = replace(C, name="before", format="fp16")
    whole = TileEpilogue(TermValue(0), replace(C, format="fp16"), alpha=2.0, beta=0.5, c=before)
    made, ops = merged(whole, 2)
    assert made.inputs[-1] == array(before) and made.offsets[-1] == 0
    assert ops == [
        ("add", "t0", "in0", "in1"),
        ("copy", "t1", "t0"),
        ("scale", "t1", "t1", 2.0),
        ("cast", "t2", "in2"),
        ("scale", "t2", "t2", 0.5),
        ("add", "t1", "t1", "t2"),
        ("cast", "out0", "t1"),
    ]


@pytest.mark.parametrize(("order", "sources"), [("value", ("t1", "in2")), ("c", ("in2", "t1"))])
def test_the_left_addend_is_the_plans(order, sources):
    _, ops = merged(TileEpilogue(TermValue(0), C, previous=replace(C, name="before"), order=order), 2)
    assert ("add", "t1", *sources) in ops


@pytest.mark.parametrize(("c", "bias"), [(None, False), (replace(C, name="before"), True)])
def test_other_arithmetic_has_as_many_additions_as_addends_less_one(c, bias):
    made, ops = merged(TileEpilogue(TermValue(0), C, placeholder_ops=1, c=c, bias=bias), 4, placeholder=True, words=2)
    assert made.temporaries == ("fp64",)
    assert ops == [("add", "t0", "t0", "t0")] * (1 + 3 + 2 * bias)
