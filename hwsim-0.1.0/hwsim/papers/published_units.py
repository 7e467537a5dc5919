"""Counts and rates of units that device files do not have, as vendors publish them: for claims about peaks.

It knows chips by name and no claim. None of these numbers is used by a simulated run.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LaneRates:
    """fmas_per_cycle: fused multiply-adds of one core and cycle, by format. source: who publishes them."""

    fmas_per_cycle: dict[str, int]
    source: str


@dataclass(frozen=True, slots=True)
class Processor:
    """A chip without a device file. bits: of one core's vectors; pipes: such vectors of FMAs a core issues a cycle."""

    cores: int
    bits: int
    pipes: int
    clock_mhz: float
    source: str

    def peak_tflops(self, bits: int) -> float:
        """2 operations for each FMA of numbers of so many bits, all cores."""
        return 2e-6 * self.cores * self.pipes * (self.bits // bits) * self.clock_mhz


CUDA_GUIDE = "the CUDA C++ Programming Guide, table of the throughput of arithmetic instructions"
#: The ordinary cores: of one SM or compute unit.
LANES = {
    "a100": LaneRates({"fp32": 64, "fp64": 32}, f"{CUDA_GUIDE}, compute capability 8.0"),
    "h100": LaneRates({"fp32": 128, "fp64": 64}, f"{CUDA_GUIDE}, compute capability 9.0"),
    "mi300x": LaneRates(
        {"fp32": 128, "fp64": 64}, "AMD's white paper on CDNA 3: 256 and 128 operations per clock and unit"
    ),
}
SW26010_PRO = Processor(
    384, 512, 1, 2250, "reports from SC23 (Chips and Cheese, Tom's Hardware): 6 x 64 cores, 512-bit vectors, 2.25 GHz"
)
#: Tensor Cores of one SM: NVIDIA's white papers on the V100 (640 on 80 SMs), A100 (432 on 108) and H100 (528 on 132).
TENSOR_CORES = {"v100": 8, "a100": 4, "h100": 4}
