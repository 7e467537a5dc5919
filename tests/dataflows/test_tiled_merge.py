"""The kernel that adds slices of K: what it reads, the operations in order, and what is timed for other arithmetic."""

from dataclasses import replace

import pytest

from hwsim.dataflows.tiled.model import MatrixRef, TileEpilogue
from hwsim.dataflows.tiled.split_k_reduction import reduction_pass
from hwsim.gemm.plan import Depth, OperandSum, Scaled, Sum, TermValue
from hwsim.program.ir import GlobalArray, LocalTile

ROWS = 8
C = MatrixRef("C", "fp32")


class Recorder:
    """Stands for VectorOps: operations as (opcode, target, sources, attributes), tiles by name."""

    def __init__(self) -> None:
        self.ops = []

    def op(self, opcode, target, *sources, **attributes):
        attributes.pop("label", None)
        if attributes.get("rounding") == "RNE":  # as where none is said
            del attributes["rounding"]
        self.ops.append((opcode, target.buffer, *(x.buffer for x in sources), *attributes.values()))


def array(matrix: MatrixRef, blocks: int = 1) -> GlobalArray:
    return GlobalArray(matrix.name, blocks * ROWS, 16, matrix.format)


VECTORS = {
    "rows": GlobalArray("rows", ROWS, 1, "int32"),
    "columns": GlobalArray("columns", 1, 16, "int32"),
    "sums": GlobalArray("sums", ROWS, 1, "int64"),
}


def merged(end: TileEpilogue, slices: int, stored: str = "fp32", **given):
    """The pass, and the operations that it makes."""
    addends = [array(matrix) for matrix in end.addends]
    partial = [array(MatrixRef("P", stored), slices)]
    made = reduction_pass("merge_gemm", partial, addends, array(end.target), end, slices, vectors=VECTORS, **given)

    def tiles(name: str, formats) -> list[LocalTile]:
        return [LocalTile(f"{name}{i}", 2, 16, fmt) for i, fmt in enumerate(formats)]

    recorder = Recorder()
    vectors = [LocalTile(x.name, 2, 16, x.format) for x in (*made.of_rows, *made.of_columns)]
    made.body(
        recorder,
        [*tiles("in", [x.format for x in made.inputs]), *vectors],
        tiles("out", [made.outputs[0].format]),
        tiles("t", made.temporaries),
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


def test_slices_of_another_format_are_converted_before_they_are_added():
    end = TileEpilogue(TermValue(0), replace(C, format="fp64"), join_format="fp64", format="fp64")
    made, ops = merged(end, 3)
    assert set(made.temporaries) == {"fp64"}
    last = f"t{len(made.temporaries) - 1}"
    assert ops == [
        ("cast", "t0", "in0"),
        ("cast", last, "in1"),
        ("add", "t0", "t0", last),
        ("cast", last, "in2"),
        ("add", "t0", "t0", last),
        ("copy", "t1", "t0"),
        ("copy", "out0", "t1"),
    ]


def test_powers_of_rows_and_columns_multiply_the_whole_sum():
    end = TileEpilogue(TermValue(0), C, alpha=2.0, powers=("rows", "columns"))
    made, ops = merged(end, 2, matrices=1)
    assert (made.of_rows, made.of_columns) == ((VECTORS["rows"],), (VECTORS["columns"],))
    assert ops[2:] == [
        ("add", "t3", "rows", "columns"),
        ("ldexp", "t1", "t1", "t3", 1.0),
        ("scale", "t1", "t1", 2.0),
        ("copy", "out0", "t1"),
    ]


def test_integer_sums_wrap_in_a_narrower_output_and_become_floats_before_alpha():
    value = Sum(Sum(Scaled(TermValue(0), 8), OperandSum("a", 128)), Depth(-5))
    extra = ((OperandSum("a", 128), "sums"), (Depth(-5), -35.0))
    end = TileEpilogue(value, replace(C, format="int32"), join_format="int64", format="int64", extra=extra)
    _, ops = merged(end, 1, "int32")
    assert ops == [
        ("cast", "t1", "in0"),
        ("scale", "t1", "t1", 256.0),
        ("add", "t1", "t1", "sums"),
        ("fill", "t3", -35.0),
        ("add", "t1", "t1", "t3"),
        ("extract", "out0", "t1"),
    ]
    end = TileEpilogue(TermValue(0), C, alpha=0.5, join_format="int64", format="fp32")
    _, ops = merged(end, 2, "int64")
    assert ops[2:] == [("cast", "t3", "t1"), ("scale", "t3", "t3", 0.5), ("copy", "out0", "t3")]
