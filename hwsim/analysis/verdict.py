"""The verdict on a timed run in words: what bounds it, where time is lost, and what would save most.

It knows times and their shares; it does not know what was asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, cached_property, partial
from itertools import combinations
from typing import Any

from hwsim.analysis.advice import MOST_BESIDE, Advice, advice_on, affordable_runs, is_apart, matrix_unit_advice
from hwsim.analysis.better_numbers import saved_by
from hwsim.analysis.changed_numbers import InOutput, OnMatrixUnit
from hwsim.analysis.engine_shares import launch_cycles_of, rate_while_busy
from hwsim.analysis.fold_parts import fold_parts
from hwsim.analysis.program_times import Times
from hwsim.analysis.stall_words import engine_words
from hwsim.analysis.time_shares import (
    AFTER,
    BEFORE,
    BETWEEN,
    DRAIN,
    EPILOGUE,
    FILL,
    IDLE_CORES,
    IN_FLIGHT,
    ISSUE,
    LAST_EPILOGUE,
    LAST_WAVE,
    LAUNCHES,
    OF_FOLDS,
    OF_PASSES,
    OPERANDS,
    SKEW,
    START,
    SUMS,
    UNEVEN,
    PartUse,
    TimeShares,
    time_shares,
)

#: A part bounds a run if it is busy for at least this share. Nsight Compute's rule of its section "GPU Speed Of Light"
#: calls a kernel latency bound where compute and memory are both below 60 %.
BOUND_SHARE = 0.6
#: Of the time: a part other than the matrix units bounds a run only if the run would take so much less, were the part
#: twice as fast (an engine: infinitely fast). An L2 that is busy while the matrix units work bounds nothing.
MATTERS = 0.05
#: Of the time: a part that is busy for so long leaves no room for a wait. It bounds a run though another part at the
#: same rate, such as a link beside DRAM, hides what the part alone would save.
SATURATED = 0.95
WORTH_SAYING = 0.01  # of the time; smaller losses are in `lost` alone
MOST_LOSSES = 3  # that the first sentence names

_LOST_WORDS = {
    EPILOGUE: "waiting for a free accumulator (epilogue)",
    LAST_EPILOGUE: "in the epilogue of the last tile",
    LAST_WAVE: "in the last wave",
    UNEVEN: "on cores that finish early",
    IDLE_CORES: "on cores without a tile",
    OPERANDS: "waiting for operands",
    START: "until the cores start",
    ISSUE: "waiting for instructions",
    IN_FLIGHT: "waiting for bytes in flight",
    SUMS: "waiting for sums to come back",
    FILL: "filling PEs",
    SKEW: "in the skew",
    DRAIN: "draining PEs",
    BEFORE: "in passes before the products",
    BETWEEN: "in passes between the products",
    AFTER: "in passes after the products",
    LAUNCHES: "in launches",
}


@dataclass(frozen=True)
class Verdict:
    """What bounds a run, and where its time went. str() is the first line of a report.

    bound: "compute", "memory" (DRAM), "L2", "link", "elementwise", "copy", "tiles" (too few for the cores, or uneven),
    "passes" (kernels without products), "folds" (fill, skew and drain of systolic arrays), "launches", "latency" (no
    part is busy enough), or "unknown" without cycles. busy: share of all cores' time in which the matrix units work (of
    systolic arrays: elements enter), None without cycles. lost: {cause: share}; busy and they add up to 1. parts: how
    busy each part of the device is, the busiest first. sentences: the verdict, and what limits its meaning. advice:
    changes with their gains, the largest first; computed when first asked for.
    """

    bound: str
    busy: float | None
    lost: Mapping[str, float]
    parts: tuple[PartUse, ...]
    sentences: tuple[str, ...]
    shares: TimeShares | None = field(default=None, repr=False)
    _advise: Callable[[], tuple[Advice, ...]] = field(default=tuple, repr=False, compare=False)

    @cached_property
    def advice(self) -> tuple[Advice, ...]:
        """What would save most; empty where nothing was timed."""
        return self._advise()

    def __str__(self) -> str:
        return self.sentences[0]

    def to_dict(self) -> dict[str, Any]:
        """Plain data: `text` is the first sentence."""
        return {
            "text": str(self),
            "bound": self.bound,
            "busy": self.busy,
            "lost": [
                {"cause": cause, "share": share, "words": lost_words(cause)} for cause, share in self.lost.items()
            ],
            "parts": [asdict(part) | {"words": part_words(part)} for part in self.parts],
            "sentences": list(self.sentences),
            "advice": [advice.to_dict() for advice in self.advice],
        }


def verdict_of(
    times: Times,
    on_matrix_unit: Callable[[], OnMatrixUnit | None] = lambda: None,
    in_output: InOutput | None = None,
    *,
    advises: bool = True,
) -> Verdict:
    """The verdict on the times of a run. on_matrix_unit: the same GEMM there, where the run left that unit out.
    in_output: its times with C in another format, for the advice. advises: whether there is advice.
    """
    if times.timed is None or times.program is None or times.chip is None or not times.timed.cycles:
        return _without_cycles(times)
    tiles = {row.kernel: (row.tiles, row.cores - row.idle_cores) for row in times.occupancy}
    shares = time_shares(times.timed, times.program, times.chip, tiles=tiles, launch_cycles=launch_cycles_of(times))
    saves = cache(partial(saved_by, times))
    binding = binding_parts(shares, saves, affordable_runs(times))
    bound = bound_of(shares, binding)
    named = (*binding, *matrix_beside(binding, shares, saves))
    of = "the program is " if is_apart(times) else ""
    sentences = [of + _first(bound, named, shares, "DRAM" if times.chip.l2 is None else "L2")]
    if shares.padding * shares.busy >= WORTH_SAYING:
        sentences.append(
            f"products with the zeros of padded tiles take {_percent(shares.padding * shares.busy)} of the time"
        )
    if (rate := rate_while_busy(times)) is not None and (1 - rate) * shares.busy >= MATTERS:
        text = f"{engine_words(shares.engine)}: {_percent(rate)} of the peak's products per cycle while busy"
        sentences.append(text)
    if folds := fold_parts(times):
        parts = (f"{name} {_percent(share)}" for name, (_, share) in folds.shares().items())
        overlap = sum(share for _, share in folds.shares().values()) > 1 + WORTH_SAYING
        more = " (more than 100 %: one tile fills or drains while another streams)" if overlap else ""
        sentences.append(f"of the arrays' time: {', '.join(parts)}{more}")
    if times.by_library:
        sentences[1:1] = _beside_program(times, shares)
    return Verdict(
        bound=bound,
        busy=shares.busy,
        lost=shares.lost,
        parts=shares.parts,
        sentences=tuple(sentences),
        shares=shares,
        _advise=partial(_advice, times, shares, on_matrix_unit, in_output) if advises else tuple,
    )


def _advice(
    times: Times,
    shares: TimeShares,
    on_matrix_unit: Callable[[], OnMatrixUnit | None],
    in_output: InOutput | None,
) -> tuple[Advice, ...]:
    """All changes worth a try; a matrix unit that was left out comes first."""
    other = on_matrix_unit()
    others = advice_on(times, shares, in_output)
    if other is None or times.cycles is None or other.cycles >= times.cycles:
        return others
    return matrix_unit_advice(times.cycles, other), *others


def bound_of(shares: TimeShares, binding: Sequence[PartUse]) -> str:
    """What bounds a time: the busiest part that does, or where none does, the group of causes that loses most."""
    if binding:
        return {"matrix": "compute", "DRAM": "memory"}.get(binding[0].kind, binding[0].kind)
    groups = {
        "tiles": shares.tiles if shares.works_more_than_it_waits else 0.0,
        "passes": sum(shares.lost.get(cause, 0.0) for cause in OF_PASSES),
        "launches": shares.lost.get(LAUNCHES, 0.0),
        "latency": shares.waits,
        "folds": shares.folds,
    }
    return max(groups, key=lambda name: groups[name])


def binding_parts(shares: TimeShares, saves: Callable[..., float], most_runs: int) -> tuple[PartUse, ...]:
    """The parts that bound a time, the busiest first: one, or several in step, each of which hides what another one
    would save. saves(part, ...): what a run saves if these parts are faster. most_runs: how often it may be asked for
    parts to leave out of several.

    The busiest part that saves MATTERS bounds alone. Where none does, all busy parts may save it together: then, as
    long as they do, the part is left out whose absence costs least. Else a saturated part bounds, though it saves
    little.
    """
    busy = [part for part in shares.parts if part.share >= BOUND_SHARE]
    has_saturated = False
    for part in busy:
        if (part.kind == "matrix" and not has_saturated) or saves(part) >= MATTERS:
            return (part,)
        has_saturated = has_saturated or part.share >= SATURATED
    if len(busy) > 1 and saves(*busy) >= MATTERS:
        group = tuple(busy)
        while 2 < len(group) <= most_runs:
            most_runs -= len(group)
            fewer = max(combinations(group, len(group) - 1), key=lambda parts: saves(*parts))
            if saves(*fewer) < MATTERS:
                break
            group = fewer
        return group
    return tuple(busy[:1]) if has_saturated else ()


def matrix_beside(binding: Sequence[PartUse], shares: TimeShares, saves: Callable[..., float]) -> tuple[PartUse, ...]:
    """The matrix units, where another part alone bounds a time and twice their rate saves more still; else none."""
    matrix = next((part for part in shares.parts if part.kind == "matrix"), None)
    if len(binding) != 1 or matrix is None or binding[0].kind == "matrix":
        return ()
    gain = saves(matrix)
    return (matrix,) if gain >= MATTERS and gain > saves(binding[0]) else ()


def lost_words(cause: str) -> str:
    """A cause of `lost` in words that follow "7 % lost"."""
    return _LOST_WORDS[cause]


def part_words(part: PartUse) -> str:
    """What a part is called: tensor cores, DRAM, link GM_SMEM."""
    if part.kind == "link":
        return f"link {part.name}"
    return part.name if part.kind in ("L2", "DRAM") else engine_words(part.name)


def _beside_program(times: Times, shares: TimeShares) -> list[str]:
    """How far a library's fitted time is from the program's, whose shares these are; and what of it is known."""
    share = times.beside_program
    apart = "as long" if abs(share) < WORTH_SAYING / 2 else f"{_percent(abs(share))} {'more' if share > 0 else 'less'}"
    words = f"the shares are of the program's cycles; the library's fitted time is {apart}, and cannot be divided"
    if not is_apart(times):
        return [words]
    crossed = next((part.share for part in shares.parts if part.kind == "DRAM"), 0.0) / (1 + share)
    of_bytes = f"; the bytes of DRAM take {_percent(crossed)} of the fitted time" if crossed >= WORTH_SAYING else ""
    return [
        words,
        f"no change of the program is advised, as the two times differ by more than {_percent(MOST_BESIDE)}{of_bytes}",
    ]


def _without_cycles(times: Times) -> Verdict:
    if times.seconds is not None:
        share = "" if times.peak_fraction is None else f": {_percent(times.peak_fraction)} of the peak rate"
        text = f"fitted time of the library's kernel{share}; without a program it cannot be divided"
    else:
        text = f"no verdict on the time: {times.note}"
    return Verdict("unknown", None, {}, (), (text,))


def _first(bound: str, named: Sequence[PartUse], shares: TimeShares, outside_cores: str) -> str:
    """The first sentence. named: the parts that bound the time; several do so together."""
    does = "stream" if shares.is_array else "busy"
    matrix = f"{engine_words(shares.engine)} {does} {_percent(shares.busy)}" if shares.engine else "no products"
    heads = {
        "compute": "compute bound",
        "memory": "memory bound",
        "L2": "L2 bound",
        "link": f"bound by the link to {outside_cores}",
        "elementwise": "bound by elementwise work",
        "copy": "bound by copies within the cores",
        "tiles": "short of tiles",
        "passes": "bound by passes without products",
        "launches": "launch bound",
        "latency": "latency bound",
        "folds": f"bound by {_fold_words(shares)}",
    }
    others = [part for part in named if part.kind != "matrix"]
    facts = [*(_busy_words(part) for part in others), matrix]
    if not others and shares.parts and shares.parts[0].kind != "matrix":
        facts.append(_busy_words(shares.parts[0]))
    losses = [
        f"{_percent(share)}{' lost' if i == 0 else ''} {lost_words(cause)}{_names(cause, shares)}"
        for i, (cause, share) in enumerate(list(shares.lost.items())[:MOST_LOSSES])
        if share >= WORTH_SAYING
    ]
    head = heads[bound]
    if len(named) > 1:
        *first, last = (part_words(part) for part in named)
        head = f"bound by {', '.join(first)} and {last} together"
    return f"{head}: {', '.join(facts)}{'; ' if losses else ''}{', '.join(losses)}"


def _busy_words(part: PartUse) -> str:
    return f"{part_words(part)} busy {_percent(part.share)}"


def _fold_words(shares: TimeShares) -> str:
    """The parts of folds that matter: fill and skew."""
    parts = [cause for cause in OF_FOLDS if shares.lost.get(cause, 0.0) >= MATTERS]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts) or "folds"


def _names(cause: str, shares: TimeShares) -> str:
    names = shares.passes.get(cause, ())
    return f" ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})" if names else ""


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.01 or not share else f"{100 * share:.1f} %"
