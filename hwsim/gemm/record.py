"""The resolved record of a GEMM: everything that fixes the bits and the cycles of one GEMM on one device.

Records are made by hwsim.resolve only, once per request. The evaluator computes the bits from it, a dataflow writes the
program from it, reports print it, `hwsim run --gemm FILE` runs it again. It holds no array and computes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from hwsim.errors import InputError
from hwsim.gemm import codec, plan, record_checks, summation
from hwsim.gemm.mapping import GemmMapping, KernelMapping, Setting, Tile
from hwsim.gemm.plan import Mixed, Plan
from hwsim.gemm.problem import Image, OperandDescription, OperandScale, Problem, Windows
from hwsim.gemm.schedule import Epilogue, Schedule
from hwsim.report.notebook import card

DEEPEST = 2000  # levels of a record's data
SCHEMA = "hwsim.gemm/1"
By = Literal["user", "scheme", "device", "library", "estimate", "default"]


@dataclass(frozen=True, slots=True)
class Decision:
    """One choice in the record: what was decided, by whom, and on which evidence.

    by: the user's request, the scheme, the device file, a library's data, an estimate of hwsim's, or hwsim's default.
    evidence: a level of hwsim.datafiles.provenance, for choices that claim to be what a chip or its library does; empty
    where there is no such claim. confidence: the probability that the choice is right; None: it is not known.
    """

    name: str
    value: str
    by: By
    evidence: str = ""
    why: str = ""
    confidence: float | None = None


@dataclass(frozen=True, slots=True)
class DeviceId:
    """Identity of a device: name, SHA-256 of its data, and a core clock in MHz where it is not the file's."""

    name: str
    sha256: str
    clock_mhz: float | None = None


@dataclass(frozen=True, slots=True)
class LibraryId:
    """Identity of a library whose choices the record follows: name and version."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class Gemm:
    """One GEMM on one device, resolved: the record that fixes its bits and cycles.

    scheme_options: complete. plan: with its result formats filled in. unit: the matrix instruction of the first
    product. schedule: complete: split-K, order of summation and epilogue. mapping: None where no program was asked for
    or none exists. parts: for blocks that use different plans (`Mixed`), the GEMM of each plan. decisions: who chose
    what; they affect neither bits nor cycles and are left out of `digest`.
    """

    device: DeviceId
    problem: Problem
    scheme: str
    scheme_options: tuple[Setting, ...]
    plan: Plan | Mixed
    unit: str
    output: str
    schedule: Schedule
    mapping: GemmMapping | None = None
    parts: tuple[Gemm, ...] = ()
    library: LibraryId | None = None
    decisions: tuple[Decision, ...] = field(default=(), compare=False)

    @property
    def epilogue(self) -> Epilogue:
        """The epilogue of the schedule."""
        return self.schedule.epilogue

    @property
    def single(self) -> Plan:
        """The plan; of a mixture the most general one, which gives the format of the results."""
        return self.plan.plans[-1] if isinstance(self.plan, Mixed) else self.plan

    def _repr_html_(self) -> str:
        pairs = [
            ("device", self.device.name),
            ("scheme", self.scheme),
            ("problem", self.problem),
            ("digest", self.digest),
        ]
        rows = [
            (decision.name, decision.value, decision.by, decision.evidence, decision.why) for decision in self.decisions
        ]
        return card("hwsim resolved GEMM", pairs, ("decision", "value", "by", "evidence", "why"), rows)

    @property
    def digest(self) -> str:
        """SHA-256 of everything that fixes bits and cycles."""
        return codec.digest(replace(self, decisions=()))

    def check(self, where: str = "gemm record") -> None:
        """Raise InputError, which names the place, where the parts of the record do not fit together.

        Every record that the resolver makes passes; one from a file or made by hand may not.
        """
        record_checks.check_problem(self.problem, f"{where}.problem")
        record_checks.check_settings(self.scheme_options, f"{where}.scheme_options")
        record_checks.check_format(self.output, f"{where}.output")
        if isinstance(self.plan, Mixed):
            record_checks.check_mixed(self.plan, f"{where}.plan")
        else:
            record_checks.check_plan(self.plan, f"{where}.plan")
        record_checks.check_schedule(self.schedule, self.problem, f"{where}.schedule")
        if self.mapping is not None:
            if isinstance(self.plan, Mixed) and not self.parts:
                raise InputError(f"{where}.parts: there are none; allowed beside a mapping: a GEMM for each plan")
            of = self.parts[-1] if isinstance(self.plan, Mixed) else self  # whose mapping it is
            record_checks.check_mapping(self.mapping, len(of.single.terms), f"{where}.mapping")
        for index, part in enumerate(self.parts):
            part.check(f"{where}.parts[{index}]")

    @property
    def is_order_known(self) -> bool:
        """Whether the order of summation is what was asked for; False: hwsim's own stands for a library's."""
        order = self.decided("order of summation")
        return self.library is None or order is None or order.by != "default"

    def decided(self, name: str) -> Decision | None:
        """The decision of that name, or None."""
        return next((decision for decision in self.decisions if decision.name == name), None)

    def to_dict(self) -> dict[str, Any]:
        """The record as plain data, ready for JSON; `from_dict` reads it. Fields at their defaults are left out."""
        data: dict[str, Any] = {"schema": SCHEMA, "digest": self.digest}
        data.update(codec.encode(self))
        return data

    def to_json(self, indent: int | None = 1) -> str:
        """`to_dict` as JSON text."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    @staticmethod
    def from_dict(document: Mapping[str, Any]) -> Gemm:
        """The record that `to_dict` wrote.

        Raises InputError for another schema, unknown or missing fields, a digest that is not the data's, and parts that
        do not fit together.
        """
        if not isinstance(document, Mapping) or document.get("schema") != SCHEMA:
            schema = document.get("schema") if isinstance(document, Mapping) else type(document).__name__
            raise InputError(f"gemm record: schema = {schema!r}; allowed: {SCHEMA!r}")
        written_digest = document.get("digest")
        data = {name: value for name, value in document.items() if name not in ("schema", "digest")}
        try:  # a program may have raised Python's own limit
            record = None if _is_deeper(data, DEEPEST) else codec.decode(data, CLASSES, "gemm record", NEVER_COMPUTED)
        except RecursionError:
            record = None
        if record is None:
            raise InputError("gemm record: nested deeper than any that hwsim writes")
        if not isinstance(record, Gemm):
            raise InputError(f"gemm record: got a {type(record).__name__}; allowed: a Gemm")
        if written_digest is not None and written_digest != record.digest:
            raise InputError("gemm record: its digest is of other data; leave `digest` out of a file edited by hand")
        record.check()
        return record


#: Fields that older records of this schema may hold, with their only values: nothing ever computed another.
NEVER_COMPUTED: Mapping[str, Mapping[str, object]] = {"Problem": {"group": [], "scales": [], "sparsity": None}}
CLASSES: tuple[type, ...] = (
    *(Gemm, Decision, DeviceId, LibraryId, Problem, OperandDescription, OperandScale, Image, Windows, Setting, Tile),
    *(KernelMapping, GemmMapping, Schedule, Epilogue, summation.Region, summation.Range),
    *(summation.Chain, summation.Reduction, Plan, Mixed, plan.Piece, plan.Stage, plan.Term),
    *(plan.TermValue, plan.Sum, plan.Scaled, plan.OperandSum, plan.Depth),
    *(plan.Residue, plan.Congruence, plan.ChineseRemainder),
)


def _is_deeper(data: Any, levels: int) -> bool:
    """Whether mappings and lists lie in one another deeper than so many levels."""
    inside: list[Any] = [data]
    for _ in range(levels):
        inside = [
            part
            for whole in inside
            for part in (whole.values() if isinstance(whole, Mapping) else whole)
            if isinstance(part, Mapping | list | tuple)
        ]
        if not inside:
            return False
    return True
