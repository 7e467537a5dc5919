"""Energies by hand: how often a matrix unit reads the elements of A and of B from shared memory."""

from __future__ import annotations

import pytest

import hwsim
from hwsim.analysis import energy as energies
from hwsim.devices import find

EDGE = 512
PICO = 1e-12


def shared_bytes() -> float:
    """Bytes that the products of a square GEMM read from shared memory on an H200: joules of shared memory over those
    of a byte, less the bytes that copies move. Its instruction is wgmma.m64n32k16 on 16-bit elements.
    """
    result = hwsim.run(m=EDGE, n=EDGE, k=EDGE, device="h200", format="bf16", exact=False, tile=(64, 32, 64))
    assert result.gemm is not None and result.gemm.mapping is not None
    assert result.gemm.mapping.kernels[0].instruction.startswith("wgmma.m64n32k16")
    pj_per_byte = energies.energies_of("h200").shared_pj_per_byte.typical
    copied = sum(size for name, size in result.traffic_bytes.items() if "SMEM" in name)
    return energies.energy(result.times, result.gemm).joules_by["shared"] / (pj_per_byte * PICO) - copied


def test_an_element_of_a_is_read_once_for_the_columns_of_an_instruction_and_one_of_b_for_its_rows() -> None:
    assert shared_bytes() == pytest.approx(EDGE**3 * 2 * (1 / 32 + 1 / 64))


@pytest.mark.parametrize(("memories", "products"), [(("RF", "SMEM", "RF"), 64), (("SMEM", "RF", "RF"), 32)])
def test_an_operand_in_registers_is_not_read_from_shared_memory(
    memories: tuple[str, str, str], products: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An element of B serves the 64 rows of an instruction, one of A its 32 columns."""
    monkeypatch.setattr(energies, "find", lambda chip, unit: find(chip, unit).model_copy(update={"memories": memories}))
    assert shared_bytes() == pytest.approx(EDGE**3 * 2 / products)
