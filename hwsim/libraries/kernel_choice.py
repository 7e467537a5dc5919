"""What a library runs for a call: the kernel, its order of summation and what it takes, as plain records.

It knows schedules; no library, no device and no rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from hwsim.gemm.schedule import Schedule

if TYPE_CHECKING:
    from hwsim.devices.least_time import LeastTime

ASSUMED = "assumption"  # a level of hwsim.datafiles.provenance


@dataclass(frozen=True, slots=True)
class SummationOrder:
    """A kernel's order of summation."""

    schedule: Schedule  # its instruction is None for the device's own
    known: bool = True  # is the rule of this kernel's sums known? Else the schedule stands for it
    lost_k: int = 0  # how many of the last products of K are in no sum
    product_format: str | None = None  # to which the sum is rounded before a bias or C is added; None: its own
    seen: bool = True  # was the rule found with this version on this chip?
    assumed: str = ""  # where it was not: by which rules it is assumed, in words


PLAIN_ORDER = SummationOrder(Schedule())  # one chain in order of K


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryChoice:
    """What a library runs for one call. A library may add numbers of its own in a record derived from this one."""

    family: str  # of the kernel, by the library's name
    kernel: str  # the same, with the tile as its own name has it
    operand: str  # format of the operands for which the kernel is
    split_k: int = 1  # into how many slices of K the library cuts, by its own number; at least 1
    tile: tuple[int, int] | None = None  # (m, n) of the row-major product; None: not known
    tile_k: int = 0  # K of a stage, elements; 0: not stated
    stages: int | None = None  # of shared memory; None: the kernel decides
    cluster: tuple[int, int] | None = None  # (m, n) of the row-major product; None: not known
    accumulate: str | None = None  # of 8-bit floats, as the kernel does it; None: as the call asks
    order: SummationOrder = PLAIN_ORDER
    order_by_m: bool = False  # may the order be another one for other m, although kernel and slices are the same?
    confidence: float = 1.0  # the probability that kernel and slices are right
    evidence: str = ASSUMED  # of the choice: a level of hwsim.datafiles.provenance
    is_estimated: bool = False  # the library was not asked on such a chip: hwsim's estimate of time stands for it

    @property
    def schedule(self) -> Schedule:
        """The order of summation, as `hwsim.matmul(schedule=, format=)` takes it."""
        return self.order.schedule

    @property
    def slices(self) -> int:
        """The number of slices of K that run: rounding their length up may leave the last of `split_k` empty."""
        lengths = self.schedule.slice_k
        return len(lengths) if isinstance(lengths, tuple) else self.split_k

    @property
    def known(self) -> bool:
        """Whether the rule of the kernel's sums is known."""
        return self.order.known

    @property
    def lost_k(self) -> int:
        """How many of the last products of K the kernel does not add."""
        return self.order.lost_k

    @property
    def seen(self) -> bool:
        """Whether the rule of the kernel's sums was found with this version on this chip."""
        return self.order.seen

    @property
    def order_evidence(self) -> str:
        """Evidence of the order of summation: the kernel's, or none better than an assumption for its rule."""
        return self.evidence if self.known and self.seen else ASSUMED

    @property
    def numbers(self) -> dict[str, int]:
        """The library's own numbers of the kernel, by name, as reports show them."""
        return {}

    @property
    def why(self) -> str:
        """How the choice is known, in words."""
        return f"right with a probability of {self.confidence:.2f}"

    @property
    def share_text(self) -> str:
        """Of an estimated choice: how often such estimates are right, in words."""
        return f"{self.confidence:.0%} of the library's answers"

    def pin_text(self, m: int) -> str:
        """How a caller asks the library for this kernel, chosen for a number of rows, with every other one; "": not
        known.
        """
        return ""


class KernelTimes(Protocol):
    """What a library's kernel takes. evidence, why: of the numbers, for the record's decision."""

    @property
    def evidence(self) -> str: ...

    @property
    def why(self) -> str: ...

    @property
    def launch_us(self) -> float | None:
        """Microseconds of one launch, which `seconds` leaves out; None: not known."""

    def seconds(self, program_us: float, least: LeastTime) -> float:
        """Seconds of the call beyond a launch; less than its least time counts as that.

        program_us: of the kernel's program, 0 where there is none. least: what the chip needs at least. Both are of all
        products of the call.
        """
