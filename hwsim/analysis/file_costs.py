"""Energy and area of a run by the numbers of its device's file, as plain data. It knows no energies of other chips."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hwsim.analysis.area import area_of
from hwsim.analysis.energy import energy
from hwsim.errors import UnsupportedError

if TYPE_CHECKING:
    from hwsim.analysis.program_times import Times
    from hwsim.gemm.record import Gemm


def file_costs(times: Times, gemm: Gemm) -> dict[str, Any]:
    """{"energy": joules by part, watts, evidence, and why there are none; "area_mm2": of the chip}.

    None where there are no times, or the device's file gives none.
    """
    chip = times.chip
    costs: dict[str, Any] = {"energy": None, "area_mm2": None}
    if chip is None:
        return costs
    if chip.energy is not None:
        try:
            spent = energy(times, gemm)
        except UnsupportedError as error:
            costs["energy"] = {"joules": None, "joules_by": None, "watts": None, "evidence": None, "note": str(error)}
        else:
            costs["energy"] = {
                "joules": spent.joules,
                "joules_by": dict(spent.joules_by),
                "watts": spent.watts,
                "evidence": spent.evidence,
                "note": "",
            }
    if chip.area is not None:
        with suppress(UnsupportedError):  # an engine with an area, none of whose instructions has a rate
            costs["area_mm2"] = area_of(chip).mm2
    return costs
