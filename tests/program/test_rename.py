"""Copies of kernels with other names: equal to what is lowered for itself, in their tables too; lost when changed."""

import dataclasses
from dataclasses import replace

import numpy as np
import pytest

import hwsim
from hwsim.dataflows.registry import dataflow
from hwsim.dataflows.tiled import program as tiled
from hwsim.devices import load
from hwsim.errors import ProgramError
from hwsim.machines.tables import tables_of
from hwsim.program.check import check
from hwsim.program.flat import flattened
from hwsim.program.ir import Buffer, GlobalArray, Kernel, Program, Semaphore, Stream
from hwsim.program.rename import renamed

CASES = [
    (device, scheme, sizes)
    for device, scheme in (("h200", "tf32x3"), ("a100", "bf16x9"), ("b200", "tf32x4"), ("mi300x", "bf16x6"))
    for sizes in ((213, 287, 301), (256, 384, 128))
]


def program_of(device: str, scheme: str, sizes: tuple[int, int, int]) -> Program:
    m, n, k = sizes
    result = hwsim.run(m=m, n=n, k=k, device=device, scheme=scheme, exact=False)
    chip = load(device)
    return dataflow(chip).lower(result.gemm, chip)


def alone(kernel: Kernel) -> Kernel:
    """The same kernel, no copy of any."""
    return Kernel(kernel.name, kernel.groups, kernel.buffers, kernel.semaphores)


@pytest.mark.parametrize(("device", "scheme", "sizes"), CASES)
def test_copies_are_what_would_be_written(device, scheme, sizes, monkeypatch):
    program = program_of(device, scheme, sizes)
    assert any(kernel.original is not None for kernel in program.kernels)
    monkeypatch.setattr(tiled, "numbers_between", lambda one, other: None)
    written = program_of(device, scheme, sizes)
    assert all(kernel.original is None for kernel in written.kernels)
    assert program == written


@pytest.mark.parametrize(("device", "scheme", "sizes"), CASES)
def test_tables_of_copies(device, scheme, sizes):
    chip, program = load(device), program_of(device, scheme, sizes)
    plain = replace(program, kernels=tuple(alone(kernel) for kernel in program.kernels))
    for one, other in zip(tables_of(program, chip).kernels, tables_of(plain, chip).kernels, strict=True):
        assert one.engines == other.engines and one.causes == other.causes and one.links == other.links
        assert one.flat.instrs == other.flat.instrs and one.flat.forms == other.flat.forms
        assert one.tables.keys() == other.tables.keys()
        assert all(np.array_equal(one.tables[name], other.tables[name]) for name in one.tables)
        assert np.array_equal(one.sums, other.sums) and np.array_equal(one.cost_at(chip), other.cost_at(chip))


def test_a_copy_keeps_all_but_the_names():
    """Every field of a buffer and a semaphore differs from its default."""
    fields = {"memory": "rf", "slots": 3, "slot_bytes": 64, "spread": 2, "spilled": 32, "element_bits": 6}
    buffers = (Buffer("x", **fields), Buffer("y", **fields | {"spilled": 48}))
    flags = {"initial": 4, "pieces": True, "peers": True}
    copy = renamed(
        Kernel("k", (), buffers, (Semaphore("x.full", **flags), Semaphore("s", **flags))), "l", {}, {"x": "z"}
    )
    assert copy.buffers == (Buffer("z", **fields), buffers[1])
    assert copy.semaphores == (Semaphore("z.full", **flags), Semaphore("s", **flags))
    assert all(
        getattr(one, x.name) != x.default for one in (*copy.buffers, *copy.semaphores) for x in dataclasses.fields(one)
    )


def test_a_changed_copy_is_checked_for_itself():
    chip, program = load("h200"), program_of("h200", "tf32x3", (213, 287, 301))
    *others, copy = program.kernels
    assert copy.original is others[-1]
    check(program, chip)
    broken = replace(copy, buffers=(replace(copy.buffers[0], slot_bytes=1), *copy.buffers[1:]))
    assert broken.original is None
    with pytest.raises(ProgramError, match="slots of 1 bytes"):
        check(replace(program, kernels=(*others, broken)), chip)


def test_arrays_that_are_not_alike():
    chip, program = load("h200"), program_of("h200", "tf32x3", (213, 287, 301))
    copy = program.kernels[-1]
    ((name, _), *_) = ((a, b) for a, b in copy.names.items() if a != b)
    mine = copy.names[name]
    arrays = tuple(
        GlobalArray(one.name, one.rows, one.cols - 1, one.format, one.order) if one.name == mine else one
        for one in program.arrays
    )
    with pytest.raises(ProgramError, match=f"kernel 'gemm_3'.*array '{mine}'|kernel 'split_.*array '{mine}'"):
        check(replace(program, arrays=arrays), chip)
    with pytest.raises(ProgramError, match="kernel 'gemm_3'"):
        check(replace(program, arrays=arrays, kernels=program.kernels[-2:]), chip)
    own = flattened(copy, arrays, chip.engines)[1]
    assert np.array_equal(own.tile, flattened(alone(copy), arrays, chip.engines)[1].tile)


def test_nodes_of_a_copy_are_made_when_they_are_read():
    chip, program = load("h200"), program_of("h200", "tf32x3", (213, 287, 301))
    tables_of(program, chip)
    copy = program.kernels[-1]
    stream = copy.groups[0].streams[0]
    read = type(stream).body.__get__
    with pytest.raises(AttributeError):
        read(stream)
    plain = Stream(stream.name, stream.body, stream.derived)
    assert read(stream) is stream.body and stream == plain == stream and hash(stream) == hash(plain)
    assert replace(stream, name="other") == replace(plain, name="other") != stream
