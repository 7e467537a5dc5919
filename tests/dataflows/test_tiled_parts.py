"""Parts of the tiled dataflow on their own: choices, decisions, refusals, the axes of options."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from hwsim.dataflows.davinci import separated
from hwsim.dataflows.elementwise import lower_pass
from hwsim.dataflows.instructions import Instructions
from hwsim.dataflows.operand_passes import split_pass
from hwsim.dataflows.registry import dataflow, dataflows
from hwsim.dataflows.tiled import dataflow as tiled
from hwsim.dataflows.tiled import parts, split
from hwsim.dataflows.tiled.choice import widest
from hwsim.dataflows.tiled.estimate import _split_time, lanes_time
from hwsim.dataflows.tiled.partition import Partition
from hwsim.dataflows.tiled.program import blocking_of, mapping_of
from hwsim.dataflows.tiled.storage import recorded_orders
from hwsim.devices import changed, instruction_for, load
from hwsim.devices.model import VectorModel
from hwsim.errors import InputError, UnsupportedError
from hwsim.gemm.plan import Piece
from hwsim.gemm.problem import Problem
from hwsim.machines import timing
from hwsim.program.ir import GlobalArray, Program
from hwsim.resolve.gemm_record import record_of
from hwsim.resolve.planning import plan_for
from hwsim.schemes import scheme_of


def mapped(device: str, options: dict[str, Any]) -> Any:
    own, chip, problem = scheme_of("native"), load(device), Problem.of("fp16", 512, 512, 1024)
    gemm = record_of(own.plan(own.complete({"format": "fp16"}), problem), chip, problem)
    return dataflow(chip).map(gemm, chip, options)


def test_axes_of_options_are_distinct_values_that_the_options_take() -> None:
    with_axis = [option for own in dataflows().options().values() for option in own if option.axis]
    assert with_axis
    for option in with_axis:
        assert len(set(option.axis)) == len(option.axis), option.name
        for value in option.axis:
            if value is not None:
                assert option.check(value) == value


def test_a_search_begins_with_distinct_tiles_of_whole_fragments() -> None:
    for sides, depths in ((tiled.TILE_SIDES, tiled.TILE_DEPTHS), (separated.SIDES, separated.DEPTHS)):
        assert list(sides) == sorted(set(sides)) and not any(side % 16 for side in sides)
        assert list(depths) == sorted(set(depths))


def test_a_given_tile_has_one_accumulator_where_no_kernel_of_the_library_has_two() -> None:
    assert {shape.accumulators for shape in dataflow(load("h200")).family.shapes} == {1}  # type: ignore[attr-defined]
    [kernel] = mapped("h200", {"tile": (64, 64, 64)}).mapping.kernels
    assert kernel.accumulators == 1


def test_what_nobody_asked_for_is_no_decision_of_the_users() -> None:
    free, asked = mapped("b200", {}), mapped("b200", {"cta_group": 1, "stages": 2})
    names = {one.name for one in free.decisions}
    assert ("cta_group" in names) is (free.mapping.kernels[0].cta_group > 1)
    assert free.decided("stages").by == "default" and asked.decided("stages").by == "user"
    assert asked.decided("cta_group").by == "user"
    assert "cta_group" not in {one.name for one in mapped("h200", {}).decisions}


def test_a_warp_of_no_rows_is_refused() -> None:
    with pytest.raises(InputError, match="warp = 0,16"):
        mapped("a100", {"tile": (64, 64, 32), "warp": (0, 16)})


def test_the_widest_operand() -> None:
    kernel = SimpleNamespace(operands=[SimpleNamespace(loaded=["fp32"]), SimpleNamespace(loaded=["bf16", "e4m3"])])
    assert widest([kernel]) == 32  # type: ignore[list-item]


def lanes(cycles: dict[str, float], **numbers: Any) -> VectorModel:
    given = {"engine": "V", "memory": "RF", "repeat_bytes": 128, "overhead_cycles": 0, "cycles_per_repeat": cycles}
    return VectorModel.model_validate(given | numbers)


def test_lanes_take_the_time_of_the_operation_and_a_cycle_where_the_file_has_none() -> None:
    """32 elements of fp32 fill a repeat."""
    vector = lanes({"cast": 4.0, "widen": 2.0, "add": 1.5})
    narrow, wide = ("bf16", "fp32"), ("fp32", "bf16")
    assert [32 * lanes_time(vector, "cast", formats, 64) for formats in (narrow, wide)] == [4, 2]
    assert [32 * lanes_time(vector, name, ("fp32",), 64) for name in ("add", "scale")] == [1.5, 1]
    assert 32 * lanes_time(lanes({"cast": 4.0}), "cast", wide, 64) == 4


def test_lanes_take_an_overhead_for_each_instruction_and_additions_for_arithmetic_in_software() -> None:
    vector = lanes({"add": 2.0}, overhead_cycles=16, software={"sub.fp64": 10})
    assert 64 * lanes_time(vector, "add", ("fp32",), 64) == 16 + 2 * 2
    assert 64 * lanes_time(vector, "sub", ("fp64",), 64) == 10 * (16 + 2 * 2)
    assert 64 * lanes_time(vector, "sub", ("fp32",), 64) == 16 + 2 * 1


def test_an_estimate_counts_the_instructions_of_a_split() -> None:
    """Of all that split_ops emits: as long as the timing machine takes for them, on lanes with an overhead."""
    chip = changed(load("a100"), {"vector.overhead_cycles": 5, "engines.FMA.sync_cycles": 0})
    pieces, rows, cols = (Piece("bf16"), Piece("fp16", scale_exponent=11), Piece("bf16")), 216, 256
    source = GlobalArray("A", rows, cols, "fp32")
    made = [GlobalArray(f"P{i}", rows, cols, piece.format) for i, piece in enumerate(pieces)]
    kernel = lower_pass(split_pass("split", source, list(zip(pieces, made, strict=True))), chip)
    casts = {tile.rows * tile.cols for instr in kernel.instrs() if instr.opcode == "cast" for tile in instr.writes}
    [elements] = casts
    numbered = [SimpleNamespace(number=i) for i in range(len(pieces))]
    operand = SimpleNamespace(raw=source, rules=pieces, pieces=numbered)
    time = _split_time(chip.vector, operand, elements)  # type: ignore[arg-type]
    timed = timing.run(Program((source, *made), (kernel,), ("A",), "P0"), chip)
    assert timed.engines[chip.vector.engine].busy_cycles == time * rows * cols  # type: ignore[union-attr]


def test_an_instruction_of_other_formats_is_looked_up() -> None:
    """Of one operand alone the formats do not fit: the device's own for both, or none."""
    chip = load("h200")
    known = Instructions(chip)
    eight = instruction_for(chip, "e4m3", "e4m3")
    assert known.of(eight, "fp16", "fp16") == instruction_for(chip, "fp16", "fp16")
    for pair in (("fp16", "e4m3"), ("e4m3", "fp16")):
        with pytest.raises(UnsupportedError):
            known.of(eight, *pair)


def test_what_a_record_lacks_is_said() -> None:
    gemm = mapped("a100", {})
    flow = gemm.mapping.dataflow
    assert mapping_of(gemm, flow) is gemm.mapping
    with pytest.raises(InputError, match="needs a mapping of dataflow sm80, it has none"):
        mapping_of(replace(gemm, mapping=None), flow)
    with pytest.raises(InputError, match=f"a mapping of dataflow another, it has one of {flow}"):
        mapping_of(gemm, "another")
    for name in ("k_group", "launches"):
        [kernel, *_] = gemm.mapping.kernels
        less = replace(kernel, settings=tuple(one for one in kernel.settings if one.name != name))
        with pytest.raises(InputError, match=f"lacks the settings {name}$"):
            mapping_of(replace(gemm, mapping=replace(gemm.mapping, kernels=(less,))), flow)


@pytest.mark.parametrize("device", ["h200", "mi210"])
def test_a_split_with_a_piece_that_is_not_kept_has_room_for_it(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that take A's first and B's second piece: a third tile of scratch."""
    found, original = [], split.allocate_scratch

    def noted(space: Any) -> Any:
        scratch = original(space)
        numbers = [[piece.number for piece in operand.pieces] for operand in space.kernel.operands]
        if space.kernel.splits_operands and numbers == [[0], [1]]:
            found.append(len(scratch))
        return scratch

    monkeypatch.setattr(split, "allocate_scratch", noted)
    own, chip, problem = scheme_of("bf16x3"), load(device), Problem.of("fp32", 256, 256, 256)
    dataflow(chip).map(record_of(own.plan(own.complete({}), problem), chip, problem), chip, {})
    assert found and min(found) >= 3


@pytest.mark.parametrize("device", ["h200", "b200", "a100", "v100", "mi300x"])
@pytest.mark.parametrize("scheme", ["native", "bf16x3", "ootomo-fp16"])
def test_the_bytes_that_parts_state_are_those_that_a_program_declares(device: str, scheme: str) -> None:
    chip, flow = load(device), dataflow(load(device))
    if scheme == "bf16x3" and device == "v100":
        pytest.skip("no bf16")
    problem = Problem.of("fp16" if scheme == "native" else "fp32", 256, 256, 256)
    plan = plan_for(chip, scheme_of(scheme), problem, None, {}).plan
    gemm = flow.map(record_of(plan, chip, problem), chip, {})
    program, family = flow.lower(gemm, chip), flow.family  # type: ignore[attr-defined]
    for mapping in gemm.mapping.kernels:
        declared: dict[str, int] = {}
        [kernel] = [kernel for kernel in program.kernels if kernel.name == mapping.name]
        for buffer in kernel.buffers:
            declared[buffer.memory] = declared.get(buffer.memory, 0) + buffer.slots * buffer.slot_bytes
        orders, sliced = recorded_orders(gemm), False
        partition = Partition(gemm, chip, family, mapping.instruction, orders, sliced)
        [part] = [x for x in partition.of([k.terms for k in gemm.mapping.kernels]) if x.terms == mapping.terms]
        shallow = replace(blocking_of(mapping), stages=1)  # what grows with the stages is stated for each
        stated = parts.footprint(parts.designed(chip, family, partition.kernel(part), shallow))
        assert {name: fixed + mapping.stages * stage for name, fixed, stage in stated.memories} == declared


def test_a_part_that_refuses_a_record_refuses_it_for_the_family(monkeypatch: pytest.MonkeyPatch) -> None:
    """The family asks its parts: what one of them does not carry, no program does."""
    gemm = mapped("h200", {})
    flow = dataflow(load("h200"))
    assert flow.refuses(gemm) == ""  # type: ignore[attr-defined]
    monkeypatch.setattr(parts, "REFUSALS", (*parts.REFUSALS, lambda gemm: "trapezoids"))
    with pytest.raises(UnsupportedError, match="the sm90 dataflow carries no trapezoids"):
        flow.lower(gemm, load("h200"))
