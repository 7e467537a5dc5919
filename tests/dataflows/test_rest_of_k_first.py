"""Programs whose chains take the rest of K before whole tiles of it: bits, orders, cycles of one record."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hwsim
from hwsim.dataflows.tiled.products import zero_at
from hwsim.devices import load
from hwsim.errors import InputError, UnsupportedError
from hwsim.machines import functional, reference
from hwsim.program.builder import StreamBuilder
from hwsim.resolve.mapping_choice import program_of

FIRST = {"remainder": "first", "tile_k": 32}


def operands(m: int, n: int, k: int, dtype: type = np.float16) -> tuple[Any, Any]:
    rng = np.random.default_rng(m + n + k)
    return rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)


@pytest.mark.parametrize("device", ["v100", "a100", "h200", "b200", "mi300x"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stages": 1},
        {"schedule": {**FIRST, "tile_k": 200}, "tile": {"m": 64, "n": 64, "k": 64}},  # the rest is several blocks
        {"schedule": {**FIRST, "slice_k": 101}},
        {"a_layout": "columns", "alpha": 0.75},
    ],
)
def test_a_program_gives_the_evaluators_bits(device: str, options: dict[str, Any]) -> None:
    a, b = operands(70, 50, 305)
    call: dict[str, Any] = {"device": device, "format": "fp16", "schedule": FIRST} | options
    plain, program = hwsim.run(a, b, **call), hwsim.run(a, b, functional=True, **call)
    assert plain.result_sha256 == program.result_sha256
    assert plain.cycles is not None and plain.cycles == program.cycles
    in_order = {key: value for key, value in call["schedule"].items() if key not in FIRST}
    assert hwsim.run(a, b, **call | {"schedule": in_order}).result_sha256 != plain.result_sha256


def test_without_staging() -> None:
    a, b = operands(40, 30, 77)
    call: dict[str, Any] = {"device": "a100", "format": "fp16", "schedule": FIRST, "staging": "none"}
    assert hwsim.run(a, b, **call).result_sha256 == hwsim.run(a, b, functional=True, **call).result_sha256


@pytest.mark.parametrize("device", ["a100", "h200"])
def test_every_legal_order_gives_the_same_bits(device: str) -> None:
    a, b = operands(20, 18, 75)
    result, chip = hwsim.run(a, b, device=device, format="fp16", schedule=FIRST), load(device)
    program = program_of(result.gemm, chip)
    inputs = {"A": a.view(np.uint16), "B": b.view(np.uint16)}
    wanted = np.asarray(result.c).view(np.uint32)
    assert np.array_equal(functional.run(program, chip, inputs), wanted)
    for order in range(3):
        assert np.array_equal(reference.run(program, chip, inputs, order=order), wanted)


def test_the_steps_of_an_element_begin_with_the_rest() -> None:
    a, b = operands(20, 18, 75)
    result = hwsim.run(a, b, device="a100", format="fp16", schedule=FIRST, values=[(3, 5)])
    first, *_, last = [step for step in result.values[3, 5] if step.opcode == "mma"]
    assert [float(x) for x in first.operands["a"]] == a[3, :11].tolist()
    assert [float(x) for x in last.operands["a"]] == a[3, 59:].tolist()


@pytest.mark.parametrize("scheme", ["tf32x3", "bf16x9", "ape-fp32-f", "markidis"])
def test_products_of_a_library_are_one_program(scheme: str) -> None:
    """At 37 x 29 x 83 the kernels for 16-bit pieces take the rest of K first."""
    for sizes in ((37, 29, 83), (130, 100, 264)):
        a, b = operands(*sizes, dtype=np.float32)
        call: dict[str, Any] = {"device": "h200", "library": "cublas", "scheme": scheme}
        plain, program = hwsim.run(a, b, **call), hwsim.run(a, b, functional=True, **call)
        assert plain.result_sha256 == program.result_sha256
        assert (plain.cycles, plain.seconds) == (program.cycles, program.seconds)
        assert plain.seconds and plain.cycles


def test_a_block_that_continues_a_chain_never_starts_it() -> None:
    stream = StreamBuilder("x")
    for block in stream.blocks("k", 64, 32):
        assert zero_at((block,)) == block.zero_at == (block.loop,)
        later = type(block)(block.index, block.start, block.size, block.loop, block.last, continues=True)
        assert zero_at((later,)) is None is later.zero_at


def test_it_is_refused_where_sums_leave_the_unit_or_accumulators_spill() -> None:
    a, b = operands(20, 18, 75, dtype=np.float32)
    call: dict[str, Any] = {"device": "h200", "schedule": FIRST, "functional": True}
    with pytest.raises(UnsupportedError, match=r"carries no remainder='first' with promotion"):
        hwsim.run(a, b, scheme="ootomo-fp16", **call)
    with pytest.raises(InputError, match="spill: the rest of K first"):
        hwsim.run(a, b, format="fp16", spill=True, tile={"m": 256, "n": 256, "k": 32}, **call | {"device": "a100"})
