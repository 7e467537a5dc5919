"""Chooses the mapping of a record: of those that the dataflow likes best by estimate, the one with the fewest cycles.

All give the same bits, unless stream-K is asked for: its cuts follow the tile. The module knows records, dataflows and
predicted cycles; it knows no tile and no estimate.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any

from hwsim.dataflows import parts_of_k
from hwsim.dataflows.options import LAYOUT_OPTIONS, asks_for_stream_k
from hwsim.dataflows.protocol import BoundedDataflow, RasteredDataflow, SearchedDataflow, StagedDataflow
from hwsim.dataflows.registry import dataflow
from hwsim.errors import UnsupportedError
from hwsim.gemm.plan import Mixed
from hwsim.gemm.record import Decision, Gemm
from hwsim.program.executed import executed
from hwsim.resolve.mapping_choice import mapped, program_of, without_stack
from hwsim.resolve.record_cost import PlanCost, cost_of

if TYPE_CHECKING:
    from hwsim.devices.device import Device

LEAST_GAIN = 0.97  # cycles of another mapping over the first one's, at most: nearer ones are not told apart
MOST_INSTRUCTIONS = 600_000  # of one core where cores are alike, after which a search ends
DEEPENED = 2  # of the fastest tiles are tried with more stages, too
REORDERED = 2  # of the fastest are tried in other orders, too
SHORT_INSTRUCTIONS = 150_000  # of one core: longer programs are timed with shorter K
STEP_K = 512  # of which shorter K are multiples: whole blocks and promotion intervals
WHY = "the fewest cycles of the best mappings by estimate"
CHANGED_BEFORE = ("split_k", *LAYOUT_OPTIONS)  # options that change the record, not the mapping


def searched(gemm: Gemm, device: Device, options: Mapping[str, Any]) -> Gemm:
    """The record with its mapping, as `mapped`, with what `options` leave open chosen by predicted cycles.

    A device without times has the dataflow's first choice. Raises as `mapped`.
    """
    if parts_of_k.is_in_parts(gemm) and not asks_for_stream_k(options):  # that, `mapped` refuses
        return parts_of_k.with_mapping_of(gemm, searched(parts_of_k.longest(gemm), device, options))
    first = mapped(gemm, device, options)
    flow = dataflow(device)
    if isinstance(first.plan, Mixed) or not isinstance(flow, SearchedDataflow):
        return first
    asked = {name: value for name, value in options.items() if value is not None and name not in CHANGED_BEFORE}
    key = f"{first.digest} {sorted(asked.items())!r}"
    chosen = _CACHE.get(device, key)
    if chosen is None:
        chosen = _fastest(flow, first, device, asked)
        _CACHE.put(device, key, chosen)
    return first if chosen.mapping == first.mapping else _with_decisions(first, chosen)


def _fastest(flow: SearchedDataflow, first: Gemm, device: Device, asked: Mapping[str, Any]) -> Gemm:
    """Of a record, the dataflow's alternatives and other orders of the best tiles, the one with the fewest cycles;
    those that cannot be it are not timed.
    """
    search = _MappingSearch(flow, first, device, keeps_order=not asks_for_stream_k(asked))
    try:
        search.begin()
    except UnsupportedError:  # no times
        return first
    search.go_through(flow.alternatives(without_stack(replace(first, mapping=None, decisions=()), flow), device, asked))
    if isinstance(flow, StagedDataflow):
        for gemm in search.fastest(DEEPENED):
            search.go_through(flow.deeper(without_stack(gemm, flow), device, asked))
    if isinstance(flow, RasteredDataflow):
        for gemm in search.fastest(REORDERED):
            search.go_through(flow.orders(without_stack(gemm, flow), device, asked))
    return search.best


class _MappingSearch:
    """A search that times records one after another and keeps the best."""

    def __init__(self, flow: SearchedDataflow, first: Gemm, device: Device, *, keeps_order: bool) -> None:
        """keeps_order: candidates with another order of summation are left out."""
        self.flow, self.first, self.best, self.device = flow, first, first, device
        self.keeps_order, self.predictor = keeps_order, _Predictor(first, device)
        self.least = 0.0  # cycles that a better one stays below
        self.timed: list[tuple[float, Gemm]] = []

    def begin(self) -> None:
        """Time the first one, which the others have to beat by LEAST_GAIN."""
        cycles = self.predictor.cycles(self.first)
        self.least = LEAST_GAIN * cycles
        self.timed.append((cycles, self.first))

    def fastest(self, count: int) -> list[Gemm]:
        """The records with the fewest cycles so far."""
        return [gemm for _, gemm in sorted(self.timed, key=lambda pair: pair[0])[:count]]

    def go_through(self, candidates: Iterable[Gemm]) -> None:
        """Time those that may be better, until the search has taken its time."""
        left = iter(candidates)
        while self.predictor.timed <= MOST_INSTRUCTIONS:
            try:
                candidate = next(left, None)
                if candidate is None:
                    return
                self._try(replace(candidate, problem=self.first.problem))
            except UnsupportedError:
                continue

    def _try(self, candidate: Gemm) -> None:
        is_other = self.keeps_order and candidate.schedule != self.first.schedule
        if is_other or candidate.mapping == self.first.mapping:
            return
        flow, of_one = self.flow, without_stack(candidate, self.flow)
        if isinstance(flow, BoundedDataflow) and flow.least_cycles(of_one, self.device) >= self.least:
            return
        cycles = self.predictor.cycles(candidate)
        self.timed.append((cycles, candidate))
        if cycles < self.least:
            self.best, self.least = candidate, cycles


def _with_decisions(first: Gemm, best: Gemm) -> Gemm:
    """The best mapping with the first one's decisions, as far as they hold for it."""
    values = {decision.name: decision for decision in best.decisions}
    decisions = []
    for decision in first.decisions:
        other = values.pop(decision.name, None)
        if other is None or other.value == decision.value:
            decisions.append(decision if other is None or other.by != decision.by else other)
        else:
            decisions.append(Decision(decision.name, other.value, "estimate", decision.evidence, WHY))
    decisions += [Decision(other.name, other.value, "estimate", why=WHY) for other in values.values()]
    return replace(best, decisions=tuple(decisions))


class _Predictor:
    """Predicted cycles of mappings of one record. Those of long programs are extrapolated from two shorter K.

    timed: instructions that were timed so far, of one core where cores are alike. Raises UnsupportedError where the
    device has no times.
    """

    def __init__(self, first: Gemm, device: Device) -> None:
        self.device, self.timed = device, 0
        k, instructions = first.problem.k, executed(program_of(first, device, is_checked=False)).longest
        short = max(STEP_K, k * SHORT_INSTRUCTIONS // max(1, 3 * instructions) // STEP_K * STEP_K)
        self.lengths: tuple[int, ...] = (k,) if instructions <= SHORT_INSTRUCTIONS else (short, 2 * short)
        if self.lengths[-1] > k // 2 or len(first.schedule.slice_lengths(k)) > 1:
            self.lengths = (k,)

    def cycles(self, gemm: Gemm) -> float:
        """The cycles of a mapped record."""
        k, of_lengths = gemm.problem.k, []
        lengths = (k,) if gemm.schedule.regions else self.lengths  # regions say where K of this length is cut
        for length in lengths:
            of_length = gemm if length == k else replace(gemm, problem=replace(gemm.problem, k=length))
            cost = cost_of(of_length, self.device)
            self.timed += self._stepped(of_length, cost)
            of_lengths.append(cost.cycles)
        if len(of_lengths) == 1:
            return float(of_lengths[0])
        short, twice = of_lengths
        return short + (twice - short) * (k / self.lengths[0] - 1)

    def _stepped(self, gemm: Gemm, cost: PlanCost) -> int:
        """The instructions that the timing machine steps through: of all cores where each has a range of its own."""
        if not gemm.schedule.regions:
            return cost.timed_instructions
        return executed(program_of(gemm, self.device, is_checked=False)).total


class _ChosenCache:
    """The records that searches chose, by device and the record with the dataflow's first choice."""

    def __init__(self, most: int) -> None:
        self.most, self.lock = most, Lock()
        self.entries: OrderedDict[tuple[int, str], tuple[Device, Gemm]] = OrderedDict()

    def get(self, device: Device, key: str) -> Gemm | None:
        """The chosen record, None where no search was done. Devices are identified by object identity."""
        with self.lock:
            entry = self.entries.get((id(device), key))
        return None if entry is None else entry[1]

    def put(self, device: Device, key: str, chosen: Gemm) -> None:
        """Add an entry, which keeps the device alive, and drop the oldest beyond the most."""
        with self.lock:
            self.entries[id(device), key] = device, chosen
            while len(self.entries) > self.most:
                self.entries.popitem(last=False)


_CACHE = _ChosenCache(1024)
