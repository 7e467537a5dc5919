"""The dataflow of GPUs over the resolved record: who decided what, a program that is a reading of it, refusals."""

import json
from dataclasses import replace

import numpy as np
import pytest
from operands import bits

import hwsim
from hwsim.dataflows.protocol import Dataflow
from hwsim.dataflows.registry import dataflow
from hwsim.dataflows.tiled.design import KernelDesign
from hwsim.dataflows.tiled.kernel import gemm_kernel
from hwsim.dataflows.tiled.partition import Partition
from hwsim.dataflows.tiled.program import blocking_of
from hwsim.dataflows.tiles import CoreWaves, places, slices_of, tile_grids
from hwsim.devices import load
from hwsim.devices.templates import new_device_file
from hwsim.errors import InputError, UnsupportedError
from hwsim.evaluate import evaluator
from hwsim.gemm.problem import Problem
from hwsim.gemm.record import Decision, Gemm
from hwsim.gemm.schedule import Epilogue, Schedule
from hwsim.gemm.summation import Chain, Range, Region
from hwsim.machines import functional
from hwsim.program.check import check
from hwsim.resolve.gemm_record import record_of
from hwsim.schemes import scheme_of

FAMILIES = ("v100", "a100", "h200", "b200", "mi210")


def flow_of(device):
    return dataflow(load(device))


def record(device, scheme="native", problem=None, schedule=None, **options):
    """An unmapped record; the native scheme takes fp16."""
    given = {"format": "fp16"} | options if scheme == "native" else options
    problem = problem or Problem.of("fp16" if scheme == "native" else "fp32", 70, 40, 300)
    chosen = scheme_of(scheme)
    return record_of(chosen.plan(chosen.complete(given), problem), load(device), problem, schedule)


def mapped(device, *args, mapping=None, **given):
    return flow_of(device).map(record(device, *args, **given), load(device), mapping or {})


def test_every_family_is_a_dataflow():
    for device in FAMILIES:
        flow = flow_of(device)
        assert isinstance(flow, Dataflow) and flow.name == load(device).family
        assert ("cta_group" in {option.name for option in flow.options}) is (device == "b200")


@pytest.mark.parametrize("device", FAMILIES)
@pytest.mark.parametrize(
    ("scheme", "schedule"),
    [
        ("native", Schedule(split_k=2, epilogue=Epilogue(alpha=2.0))),
        ("native", Schedule(promotion_k=64)),
        ("ootomo-fp16", Schedule()),
        ("sgemm-cube", Schedule(split_k=3)),
    ],
)
def test_a_program_is_a_reading_of_the_record(device, scheme, schedule):
    """The same from the record's JSON, and what `facts` says is what the record holds."""
    chip, flow = load(device), flow_of(device)
    problem = Problem.of("fp16" if scheme == "native" else "fp32", 130, 96, 512, lead=(4,), has_c=True, bias="fp32")
    gemm = mapped(device, scheme, problem, schedule)
    program = flow.lower(gemm, chip)
    check(program, chip)
    again = flow.lower(Gemm.from_dict(json.loads(gemm.to_json())), chip)
    assert repr(again) == repr(program)
    facts, [kernel, *_] = flow.facts(gemm), gemm.mapping.kernels
    assert facts["kernels"] == len(program.kernels) and facts["split_k"] == schedule.split_k
    assert facts["tile"] == kernel.tile.to_dict() and facts["stages"] == kernel.stages
    assert {instr.unit for x in program.kernels for instr in x.instrs() if instr.opcode == "mma"} >= {facts["unit"]}


def test_who_decided_is_said():
    free = mapped("h200", problem=Problem.of("fp16", 512, 512, 1024))
    assert {x.name: x.by for x in free.decisions} == {
        "kernels": "default", "tile": "estimate", "stages": "default", "instruction": "device", "swizzle": "default",
    }  # fmt: skip
    assert free.decided("tile").why == "best kernel of this dataflow by estimate"
    given = {"tile": (128, 128, 64), "stages": 3, "swizzle": 2, "instruction": "mma.m16n8k16.f32.f16.f16.f32"}
    asked = mapped("h200", problem=Problem.of("fp16", 512, 512, 1024), mapping=given)
    assert {x.by for x in asked.decisions if x.name != "kernels"} == {"user"}
    [kernel] = asked.mapping.kernels
    assert (kernel.tile.to_dict(), kernel.stages, kernel.swizzle) == ({"m": 128, "n": 128, "k": 64}, 3, 2)
    assert asked.decided("swizzle").value == "2" and kernel.instruction == given["instruction"]
    cut = mapped("h200", problem=Problem.of("tf32", 256, 256, 4096), schedule=Schedule(split_k=4), format="tf32")
    assert cut.decided("instruction").by == "library" and cut.mapping.kernels[0].instruction.startswith("mma.")


def test_default_stages_say_what_bounds_them(tmp_path):
    """A scratchpad of 512 KiB holds 16 stages of 128 x 128 x 64; the family tries 8."""
    sizes = {"format": "fp16", "exact": False, "m": 1024, "n": 1024, "k": 1024, "tile": (128, 128, 64)}
    device = str(new_device_file(tmp_path / "mine.yaml", "accelerator", {}))
    free, more = (hwsim.run(device=device, **sizes, **given) for given in ({}, {"stages": 16}))
    assert more.options["stages"] == 16 > free.options["stages"] == 8
    assert free.gemm.decided("stages").why == "as many as fit, at most 8"
    of_library = mapped("h200", problem=Problem.of("fp16", 512, 512, 1024)).decided("stages").why
    assert of_library == "as many as fit, at most 16, or as many as the library's kernel has"


@pytest.mark.parametrize("asked", [None, "wgmma.sp.m64n256k32.f32.f16.f16"])
def test_the_instruction_for_a_sparse_a_is_the_devices_unless_it_was_asked_for(asked):
    given = {} if asked is None else {"schedule": {"instruction": asked}}
    result = hwsim.run(device="h100", format="fp16", sparsity="2:4", m=64, n=256, k=128, exact=False, **given)
    decided = result.gemm.decided("instruction")
    assert decided.value.startswith("wgmma.sp.") and decided.by == ("device" if asked is None else "user")


def test_terms_in_kernels_of_their_own_stand_one_by_one():
    gemm = mapped("b200", "ootomo-fp16", Problem.of("fp32", 300, 200, 128))
    terms = [kernel.terms for kernel in gemm.mapping.kernels]
    assert sorted(t for group in terms for t in group) == list(range(len(gemm.single.terms)))
    pair = mapped("b200", problem=Problem.of("fp16", 512, 128, 256), mapping={"cta_group": 2})
    assert pair.mapping.kernels[0].cta_group == 2 and pair.decided("cta_group").by == "user"
    assert flow_of("b200").facts(pair)["cta_group"] == 2


SCHEDULES = [
    Schedule(promotion_k=64),
    Schedule(promotion_k=128, split_k=2),
    Schedule(slice_k=128),
    Schedule(slice_k=(100, 40, 160)),
    Schedule(slice_k=(200, 100), promotion_k=96, merge_order=(0, 1)),
    Schedule(split_k=2, epilogue=Epilogue(alpha=1.5, output_format="fp16")),
]


@pytest.mark.parametrize("device", FAMILIES)
@pytest.mark.parametrize("schedule", SCHEDULES, ids=range(len(SCHEDULES)))
def test_what_it_carries_of_a_schedule_has_the_evaluators_bits(device, schedule):
    chip, flow, problem = load(device), flow_of(device), Problem.of("fp16", 37, 21, 300)
    a, b = (
        bits(shape, 3 + i, -6, 6).astype(np.float16).view(np.uint16) for i, shape in enumerate([(37, 300), (300, 21)])
    )
    gemm = mapped(device, problem=problem, schedule=schedule)
    program = flow.lower(gemm, chip)
    check(program, chip)
    got = functional.run(program, chip, dict(zip(program.inputs, (a, b), strict=True)))
    expected = evaluator.evaluate(gemm.plan, gemm.schedule, chip, [a], [b])
    assert np.array_equal(got, expected)
    whole = mapped(device, problem=problem)
    other = functional.run(flow.lower(whole, chip), chip, dict(zip(program.inputs, (a, b), strict=True)))
    assert other.dtype != got.dtype or not np.array_equal(got, other)


def test_the_instruction_of_a_schedule_is_that_of_the_program():
    name = "mma.m16n8k8.f32.f16.f16.f32"
    gemm = mapped("h200", schedule=Schedule(instruction=name))
    assert gemm.mapping.kernels[0].instruction == name
    assert gemm.decided("instruction").by == "user"
    with pytest.raises(InputError, match="with the bits of"):
        mapped("h200", schedule=Schedule(instruction=name), mapping={"instruction": "wgmma.m64n256k16.f32.f16.f16"})


PROBLEM = Problem.of("fp16", 70, 40, 300)


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (Schedule(k_permutation=(1, 0)), "k_permutation"),
        (Schedule(operand_rounding="RZ"), "operand_rounding"),
        (Schedule(split_k=2, merge_order="descending"), "merge_order"),
        (Schedule(split_k=2, merge_order="pairwise"), "merge_order"),
        (Schedule(split_k=2, partial_format="fp16"), "partial_format"),
        (Schedule(split_k=2, merge_format="fp64"), "merge_format"),
        (Schedule(split_k=2, merge_into="output"), "merge_into"),
        (Schedule(sum=Chain((Range(0, 300),))), "written-out sum"),
        (
            Schedule(regions=(Region(Range(0, 70), Range(0, 40), Chain((Range(0, 300),))),), split_k=2),
            "regions with slices of K",
        ),
    ],
)
def test_what_no_program_carries_of_a_schedule_is_refused_by_name(schedule, words):
    with pytest.raises(UnsupportedError, match=f"the sm90 dataflow carries no {words}"):
        mapped("h200", problem=PROBLEM, schedule=schedule)


def test_c_in_the_accumulator_is_refused():
    with pytest.raises(UnsupportedError, match="carries no start"):
        mapped("h200", problem=Problem.of("fp16", 64, 64, 64, has_c=True), schedule=Schedule(start="c"))


def test_a_schedule_of_more_slices_than_there_are_has_fewer_and_the_option_is_refused():
    one = mapped("a100", problem=Problem.of("fp16", 64, 64, 64), schedule=Schedule(split_k=2))
    assert flow_of("a100").facts(one)["split_k"] == 1
    with pytest.raises(InputError, match="split_k = 2: K = 64 has 1 slice of 64; allowed: at most 1"):
        hwsim.run(device="a100", format="fp16", m=64, n=64, k=64, split_k=2, exact=False)


def test_advice_on_slices_follows_the_record():
    flow, chip = flow_of("h200"), load("h200")
    few = flow.split_k(record("h200", problem=Problem.of("fp16", 128, 128, 8192)), chip, {})
    full = flow.split_k(record("h200", problem=Problem.of("fp16", 4096, 4096, 1024)), chip, {})
    assert few.slices > 1 and few.share < 0.6
    assert full.slices == 1 and full.share == 1.0


def test_another_device_of_one_name_is_not_taken_for_it():
    """Candidates are kept by device: a smaller shared memory holds fewer stages."""
    chip, flow = load("h200"), flow_of("h200")
    gemm = record("h200", problem=Problem.of("fp16", 4096, 4096, 4096))
    before = flow.map(gemm, chip, {}).mapping.kernels[0]
    memories = dict(chip.memories)
    memories["SMEM"] = memories["SMEM"].model_copy(update={"capacity_bytes": memories["SMEM"].capacity_bytes // 2})
    small = chip.model_copy(update={"memories": memories})
    after = flow.map(gemm, small, {}).mapping.kernels[0]
    assert after.stages * (after.tile.m + after.tile.n) < before.stages * (before.tile.m + before.tile.n)
    assert flow.map(gemm, chip, {}).mapping.kernels[0] == before


EIGHT_BITS = [("e4m3", {}), ("e5m2", {}), ("int8", {})]


@pytest.mark.parametrize(("fmt", "options"), EIGHT_BITS)
@pytest.mark.parametrize("device", ["h100", "h200"])
def test_wgmma_of_8_bits_takes_k_major_operands_only(device, fmt, options):
    """Storage left open is K-major, and said to be; B by rows, or A by columns, that was asked for is refused."""
    chip, flow = load(device), flow_of(device)
    gemm = record(device, problem=Problem.of(fmt, 512, 256, 256), format=fmt)
    left_open = flow.map(gemm, chip, {})
    assert (left_open.decided("b_layout").value, left_open.decided("b_layout").by) == ("columns", "device")
    assert flow.facts(left_open)["b_layout"] == "columns" and left_open.decided("a_layout") is None
    program = flow.lower(left_open, chip)
    assert {array.name: array.order for array in program.arrays} == {"A": "rows", "B": "columns", "C": "rows"}
    assert repr(program) == repr(flow.lower(Gemm.from_dict(json.loads(left_open.to_json())), chip))
    columns = record(device, problem=Problem.of(fmt, 512, 256, 256, b_layout="columns"), format=fmt)
    assert repr(flow.lower(flow.map(columns, chip, {}), chip)) == repr(program)
    for name, order in (("b_layout", "rows"), ("a_layout", "columns")):
        problem = gemm.problem.with_layouts(**{name[0]: order})
        asked = replace(gemm, problem=problem, decisions=(Decision(name, order, "user"),))
        with pytest.raises(UnsupportedError, match=f"{name} = '{order}': wgmma.*needs K-major operands; allowed"):
            flow.map(asked, chip, {})
        with pytest.raises(UnsupportedError, match="needs K-major"):
            flow.map(replace(asked, decisions=()), chip, {name: order})


def test_other_instructions_take_either_storage():
    """16 bits transpose themselves, tf32 has a rate for it, mma.sync reads fragments."""
    chip, flow = load("h200"), flow_of("h200")
    for fmt, unit in (("fp16", None), ("tf32", None), ("int8", "mma.m16n8k32.s32.s8.s8.s32")):
        gemm = record("h200", problem=Problem.of(fmt, 256, 256, 256), format=fmt)
        given = {"b_layout": "rows"} | ({} if unit is None else {"instruction": unit})
        made = flow.map(gemm, chip, given)
        assert made.decided("b_layout") is None
        orders = {array.name: array.order for array in flow.lower(made, chip).arrays}
        assert orders["B"] == "rows"


def test_passes_write_pieces_as_the_instruction_needs_them():
    """Slices of int8 come from a pass: it reads B by rows and writes K-major pieces."""
    for device, order in (("h200", "columns"), ("a100", "rows")):
        problem = Problem.of("fp64", 96, 64, 128)
        gemm = mapped(device, "ozaki-int8", problem, slices=2)
        arrays = {array.name: array.order for array in flow_of(device).lower(gemm, load(device)).arrays}
        assert arrays["B.in"] == "rows" and arrays["B1"] == arrays["B2"] == order


class LastTileFirst:
    """A scheduler of another order: core 0 takes all tiles of the static one, its grids from the last."""

    flags = ()

    def __init__(self, grids):
        self.grids = grids

    @property
    def tile_count(self):
        return sum(grid.tiles for grid in self.grids)

    def cores(self):
        return [CoreWaves(0, 1, (1,))]

    def tiles(self, stream, cores):
        for grid in reversed(self.grids):
            yield from places(stream, [grid], CoreWaves(0, 1, (grid.tiles,)), 1, 1)


@pytest.mark.parametrize("device", FAMILIES)
def test_a_kernel_runs_over_the_tiles_of_any_scheduler(device):
    chip, flow = load(device), flow_of(device)
    gemm = mapped(device, problem=Problem.of("fp16", 150, 70, 96), mapping={"tile": (64, 64, 32)})
    own, [mapping] = flow.lower(gemm, chip), gemm.mapping.kernels
    partition = Partition(gemm, chip, flow.family, mapping.instruction, ("rows", "rows"), False)
    [kernel] = partition.kernels(partition.preferred())
    design = KernelDesign(chip, flow.family, kernel, blocking_of(mapping))
    grids = tile_grids(150, 70, slices_of([96]), 1, (64, 64), 1, 1)
    other = replace(own, kernels=(gemm_kernel(design, LastTileFirst(grids), gemm.problem.sizes, 1),))
    check(other, chip)
    assert other.kernels != own.kernels
    a, b = (bits(shape, i, -6, 6).astype(np.float16).view(np.uint16) for i, shape in enumerate([(150, 96), (96, 70)]))
    first, second = (functional.run(x, chip, {"A": a, "B": b}) for x in (own, other))
    assert first.any() and np.array_equal(first, second)


def edited(gemm, **given):
    """The record with its first kernel changed."""
    first, *rest = gemm.mapping.kernels
    return replace(gemm, mapping=replace(gemm.mapping, kernels=(replace(first, **given), *rest)))


def test_records_that_no_program_can_be_read_from_are_refused():
    flow, chip = flow_of("h200"), load("h200")
    gemm = mapped("h200", "ootomo-tf32", Problem.of("fp32", 300, 200, 128))
    for bad, words in (
        (record("h200"), "needs a mapping of dataflow sm90, it has none"),
        (mapped("a100"), "it has one of sm80"),
        (edited(gemm, warp=None), "has no warp"),
        (edited(gemm, settings=()), "lacks the settings k_group, launches"),
        (edited(gemm, terms=(7,)), r"kernels of terms \[\[7\]"),
    ):
        with pytest.raises(InputError, match=words):
            flow.lower(bad, chip)


@pytest.mark.parametrize("scheme", ["native", "ootomo-fp16", "sgemm-cube", "bf16x9"])
@pytest.mark.parametrize("device", FAMILIES)
def test_as_many_stages_as_fit(device, scheme):
    """By the bytes of buffers that a program with so many, and with one more, has."""
    chip, flow = load(device), flow_of(device)
    if scheme == "bf16x9" and device == "v100":
        pytest.skip("no bf16")
    unmapped = record(device, scheme, Problem.of("fp16" if scheme == "native" else "fp32", 512, 512, 512))
    options = {"tile": (64, 64, 32)}
    found = flow.map(unmapped, chip, options)
    [stages] = {kernel.stages for kernel in found.mapping.kernels}

    def most_used(count):
        """Bytes of shared memory of the program with so many stages, whether they fit or not."""
        changed = replace(found, mapping=replace(found.mapping, kernels=tuple(
            replace(kernel, stages=count) for kernel in found.mapping.kernels
        )))  # fmt: skip
        kernels = [x for x in flow.lower(changed, chip).kernels if x.name.startswith("gemm")]
        return max(sum(b.own_bytes for b in kernel.buffers if b.memory == flow.family.shared) for kernel in kernels)

    capacity = chip.memories[flow.family.shared].capacity_bytes
    assert most_used(stages) <= capacity
    assert stages == flow.family.stages or most_used(stages + 1) > capacity
