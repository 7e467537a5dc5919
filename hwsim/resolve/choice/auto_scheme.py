"""scheme="auto": selects the fastest scheme on a device whose predicted error meets a target.

The error is predicted from the operands (hwsim.resolve.choice.predicted_error), the time by the timing machine. The
module knows schemes by their declarations alone, and reports every candidate with the reason why it was not selected.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from hwsim.errors import HwsimError, InputError, UnsupportedError
from hwsim.evaluate.defaults import resolved
from hwsim.formats import format_of
from hwsim.gemm.plan import Mixed, Plan
from hwsim.gemm.problem import Problem
from hwsim.gemm.schedule import Schedule
from hwsim.resolve.choice.cost import cost
from hwsim.resolve.choice.predicted_error import Sample, normal_sample, predicted_error, sample_of
from hwsim.resolve.planning import plan_for
from hwsim.resolve.record_cost import PlanCost
from hwsim.schemes import Scheme, schemes

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.operands.operand import Operand

AUTO = "auto"
METRIC = "relative_frobenius"
LARGE = 1 << 36  # m n k beyond which the time is a straight line through two samples: a quarter and a half of K
SAMPLE_K = 8192  # of operands that are not given
GRANULE = 64  # of the samples' K
TAKEN, ERROR, SLOWER, CANNOT, NO_TIME = "taken", "error above the target", "slower", "does not run", "no time"


@dataclass(frozen=True, slots=True)
class SchemeCandidate:
    """One scheme with its options. error: predicted, relative to C in the Frobenius norm; None where it does not run.

    seconds, cycles: predicted, without launches; None where they were not needed, or are not known. verdict: one of the
    constants of this module; detail: its explanation.
    """

    scheme: str
    options: dict[str, Any]
    verdict: str
    error: float | None = None
    cycles: int | None = None
    seconds: float | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class SchemeChoice:
    """The selected candidate, and all of them: the selected one first, then by time and error."""

    taken: SchemeCandidate
    error_target: float
    basis: str
    candidates: list[SchemeCandidate] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """The selection as a result's options show it, ready for JSON."""
        return {
            "error_target": self.error_target,
            "metric": METRIC,
            "basis": self.basis,
            "candidates": [asdict(candidate) for candidate in self.candidates],
        }


@dataclass(slots=True)
class _Draft:
    """A candidate under evaluation."""

    scheme: Scheme
    options: dict[str, Any]
    plan: Plan | Mixed | None = None
    error: float = math.inf
    cost: PlanCost | None = None
    why_not: str = ""


def choose(
    chip: Device,
    sizes: tuple[int, int, int],
    error_target: float,
    operands: tuple[Operand, Operand] | None,
    *,
    input_format: str = "fp32",
    progress: Callable[[float], None] | None = None,
) -> SchemeChoice:
    """Select the fastest candidate for C[m, n] = A[m, k] B[k, n] whose predicted error is at most `error_target`.

    sizes: m, n, k. operands: A and B; None: N(0, 1) of `input_format` is assumed. Candidates are all schemes that take
    the operands' format or one that they are rounded to, with their default options, and the native formats.
    Raises InputError for a target that is no positive number, UnsupportedError where no candidate meets it, or none of
    those has a time.
    """
    if isinstance(error_target, bool) or not isinstance(error_target, int | float) or not 0 < error_target < math.inf:
        raise InputError(f"error_target = {error_target!r}; allowed: a number above 0, relative to C (Frobenius norm)")
    if operands is not None:
        input_format, sample = operands[0].format, sample_of(*operands)
    else:
        sample = normal_sample(min(sizes[2], SAMPLE_K), input_format)
    drafts = [_Draft(scheme, options) for scheme, options in _combinations(chip, input_format)]
    for index, draft in enumerate(drafts):
        _foresee(draft, chip, sizes, operands, input_format, sample)
        if draft.plan is not None and draft.error <= error_target:
            _time(draft, chip, sizes)
        if progress is not None:
            progress((index + 1) / len(drafts))
    able = [draft for draft in drafts if draft.cost is not None]
    if not able:
        raise UnsupportedError(_none_meets(drafts, chip, error_target))
    first = min(able, key=lambda draft: (_seconds(draft), draft.error))
    candidates = [_candidate(draft, first, error_target) for draft in drafts]
    candidates.sort(
        key=lambda candidate: (candidate.verdict != TAKEN, candidate.seconds or math.inf, candidate.error or math.inf)
    )
    basis = "N(0, 1) assumed" if operands is None else "a sample of A and B"
    return SchemeChoice(candidates[0], float(error_target), basis, candidates)


def _combinations(chip: Device, input_format: str) -> list[tuple[Scheme, dict[str, Any]]]:
    """The schemes and options that are tried: each with its defaults, and native with every native format."""
    combinations: list[tuple[Scheme, dict[str, Any]]] = []
    whole = format_of(input_format).is_integer
    for scheme in schemes().values():
        integers_only = all(format_of(fmt).is_integer for fmt in scheme.input_formats)
        if integers_only and input_format not in scheme.input_formats:
            continue
        if scheme.takes_native_formats:
            formats = [fmt for fmt in chip.native if format_of(fmt).is_integer <= whole]
            combinations += [(scheme, {"format": fmt}) for fmt in formats]
        else:
            combinations.append((scheme, {}))
    return combinations


def _foresee(
    draft: _Draft,
    chip: Device,
    sizes: tuple[int, int, int],
    operands: tuple[Operand, Operand] | None,
    input_format: str,
    sample: Sample,
) -> None:
    """Fill in the plan and the predicted error of a candidate, or the reason why there are none."""
    options = dict(draft.options)
    try:
        planned = plan_for(
            chip, draft.scheme, Problem.of(input_format, *sizes), options.pop("format", None), options, operands
        )
        if isinstance(planned.plan, Plan):
            resolved(Schedule(), planned.plan, chip)  # refuses what the device's units cannot add
        draft.plan = planned.plan
        draft.error = predicted_error(planned.plan, chip, sample)
    except HwsimError as error:
        draft.plan, draft.why_not = None, str(error)


def _time(draft: _Draft, chip: Device, sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    assert draft.plan is not None
    try:
        if m * n * k <= LARGE or k < 4 * GRANULE:
            draft.cost = cost(draft.plan, chip, sizes)
            return
        lengths = [k // parts // GRANULE * GRANULE for parts in (4, 2)]
        short, long = (cost(draft.plan, chip, (m, n, length)) for length in lengths)
    except HwsimError as error:
        draft.why_not = str(error)
        return
    steps = (k - lengths[1]) / (lengths[1] - lengths[0])
    seconds = long.seconds + steps * (long.seconds - short.seconds)
    cycles = round(long.cycles + steps * (long.cycles - short.cycles))
    draft.cost = PlanCost(cycles, seconds, 0, long.facts)


def _seconds(draft: _Draft) -> float:
    return math.inf if draft.cost is None else draft.cost.seconds


def _candidate(draft: _Draft, first: _Draft, target: float) -> SchemeCandidate:
    error = None if draft.plan is None else draft.error
    if draft.cost is not None:
        costs = (error, draft.cost.cycles, draft.cost.seconds)
        if draft is first:
            return SchemeCandidate(
                draft.scheme.name, draft.options, TAKEN, *costs, "the cheapest that meets the target"
            )
        ratio = draft.cost.seconds / _seconds(first)
        return SchemeCandidate(draft.scheme.name, draft.options, SLOWER, *costs, f"{ratio:.2f} times the time")
    if draft.plan is None:
        return SchemeCandidate(draft.scheme.name, draft.options, CANNOT, detail=draft.why_not)
    if draft.error > target:
        detail = "a piece overflows" if draft.error == math.inf else f"{draft.error / target:.3g} times the target"
        return SchemeCandidate(draft.scheme.name, draft.options, ERROR, error, detail=detail)
    return SchemeCandidate(draft.scheme.name, draft.options, NO_TIME, error, detail=draft.why_not)


def _none_meets(drafts: list[_Draft], chip: Device, target: float) -> str:
    able = [draft for draft in drafts if draft.plan is not None]
    timeless = [draft for draft in able if draft.error <= target]
    if timeless:
        return (
            f"scheme=auto: device {chip.name} has no times to choose by for {timeless[0].scheme.name}: "
            f"{timeless[0].why_not}; name a scheme"
        )
    if not able:
        return f"scheme=auto: no scheme takes these operands on device {chip.name}"
    best = min(able, key=lambda draft: draft.error)
    return (
        f"scheme=auto: none of {len(able)} schemes on device {chip.name} is predicted to meet {target:g}; the most "
        f"accurate is {_named(best)} with {best.error:.2g}"
    )


def _named(draft: _Draft) -> str:
    fmt = draft.options.get("format")
    return draft.scheme.name if fmt is None else f"{draft.scheme.name} {fmt}"
