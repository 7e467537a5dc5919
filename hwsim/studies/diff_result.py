"""The result of a comparison of two ways of computing a product. It knows its parts; it computes no bits."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from hwsim.report.notebook import card
from hwsim.studies.diff_parts import DifferingBlocks, Divergence, ElementDifference, ElementErrors, SideAccuracy
from hwsim.studies.diff_sizes import SizeHistogram
from hwsim.studies.diff_text import SIDES, accuracy_text, element_lines, evidence_text, histogram_lines, place_text

if TYPE_CHECKING:
    from hwsim.analysis.run_records import Evidence
    from hwsim.analysis.unit_difference import UnitDifference

NOT_DATA = ("where",)  # fields that `to_dict` leaves out
MOST_REASONS = 3  # in text
RECORDS = ("worst", "largest", "step", "errors", "sizes")  # fields that may be None


@dataclass(frozen=True, slots=True)
class Difference:
    """The result of `diff`. largest_ulps, largest_relative: over differing elements that are finite on both sides.

    special: number of differing elements with an infinity or NaN on either side. first: the first positions by row and
    column. worst: the largest distance in ulps; largest: the largest |left - right| (both: infinities and NaNs first).
    step: divergence of the chosen element, or of `largest`; None if equal there. schedules: both, resolved, as plain
    data. errors: of that element over all of K. where: block by block; not in `to_dict`. sizes: the histogram of
    |left - right| / RMS. accuracy, evidence, instructions, confidence: of the left and the right side; confidence is
    the least probability that a library's choice is right, None: no library was asked. reason: why the sides differ,
    with the share and the size of the differences. operands: what A and B are, in words. notes: what the reader should
    know of the sides.
    """

    left: str
    right: str
    m: int
    n: int
    k: int
    output: str
    elements: int
    differing: int
    special: int
    largest_ulps: int
    mean_ulps: float
    largest_relative: float
    first: tuple[ElementDifference, ...]
    worst: ElementDifference | None
    step: Divergence | None
    schedules: tuple[dict[str, Any], dict[str, Any]]
    errors: ElementErrors | None
    where: DifferingBlocks
    largest: ElementDifference | None
    sizes: SizeHistogram
    accuracy: tuple[SideAccuracy, SideAccuracy]
    evidence: tuple[Evidence, Evidence]
    confidence: tuple[float | None, float | None]
    instructions: tuple[str, str]
    reason: UnitDifference
    operands: str = ""
    notes: tuple[str, ...] = ()

    @property
    def share(self) -> float:
        """Differing elements over all elements, 0 to 1."""
        return self.differing / self.elements if self.elements else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON once infinities and NaNs among the values are replaced."""
        plain = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name not in NOT_DATA}
        plain |= {name: tuple(asdict(part) for part in plain[name]) for name in ("first", "accuracy")}
        plain |= {name: None if plain[name] is None else asdict(plain[name]) for name in RECORDS}
        plain["reason"] = self.reason.to_dict()
        return {"schema": "hwsim.diff/1"} | plain | {"share": self.share}

    def _repr_html_(self) -> str:
        pairs: list[tuple[str, object]] = [("verdict", self.reason), ("left", self.left), ("right", self.right)]
        pairs.append(("differ", f"{self.differing:,} of {self.elements:,} elements ({100 * self.share:.3g} %)"))
        if self.sizes.counts:
            pairs.append(("largest difference", f"{self.sizes.largest:.2g} of the RMS; median {self.sizes.median:.2g}"))
        if self.step is not None:
            s = self.step
            pairs.append((f"C[{s.row}, {s.column}] first differs", f"at k = {s.k_first} to {s.k_end - 1}"))
        rows = [(p.row, p.column, p.left_code, p.left, p.right_code, p.right, p.ulps) for p in self.first]
        head = ("row", "column", "left code", "left", "right code", "right", "ulps")
        return card(f"C[{self.m} x {self.n}], K = {self.k}, {self.output}", pairs, head, rows)

    def __str__(self) -> str:
        return self.to_text()

    def side_facts(self) -> list[tuple[str, str]]:
        """(left or right, its errors and its evidence in words)."""
        sides = zip(SIDES, self.accuracy, self.evidence, self.confidence, strict=True)
        return [
            (name, "; ".join(filter(None, [accuracy_text(accuracy), evidence_text(evidence, confidence)])))
            for name, accuracy, evidence, confidence in sides
        ]

    def to_text(self) -> str:
        """The comparison in words, with the histogram of sizes."""
        lines = [
            f"verdict  {self.reason}",
            *(f"also     {reason}" for reason in self.reason.reasons[1:MOST_REASONS]),
            f"left   {self.left}",
            f"right  {self.right}",
            f"C[{self.m} x {self.n}], K = {self.k}, {self.output}: {self.differing} of {self.elements} elements differ "
            f"({100 * self.share:.3g} %)",
        ]
        lines += [f"operands: {self.operands}"] if self.operands else []
        lines += [f"note: {note}" for note in self.notes]
        lines += [f"{name:5}  {text}" for name, text in self.side_facts()]
        if self.differing:
            lines.append(
                f"largest difference {self.largest_ulps} ulps, mean of the differing {self.mean_ulps:.3g}; "
                f"largest relative {self.largest_relative:.3g}; {self.special} with an infinity or NaN"
            )
        lines += histogram_lines(self.sizes, self.elements)
        lines += [f"  {place_text(place)}" for place in self.first]
        for name, place in (("largest", self.largest), ("most ulps", self.worst)):
            lines += [f"{name}: {place_text(place)}"] if place is not None else []
        return "\n".join([*lines, *element_lines(self.errors, self.step)])
