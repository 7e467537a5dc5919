"""cuBLAS on a device: the choice, the order of summation and the times of a GEMM, by one version's data.

It joins a checked call (`calls`), where its answer comes from (`answers`) and what the answer says (`choice`, `orders`,
`times`); it knows no rule of any, and computes no bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from hwsim.errors import InputError, UnsupportedError
from hwsim.formats import format_of
from hwsim.gemm.record import LibraryId
from hwsim.libraries.cublas.answer import HOPPER, Generation
from hwsim.libraries.cublas.answers.estimated import Estimates
from hwsim.libraries.cublas.answers.fitted import BIAS
from hwsim.libraries.cublas.answers.lookup import AnswerSources, kind_of
from hwsim.libraries.cublas.answers.sweeps import CallKind, Sweeps
from hwsim.libraries.cublas.calls import (
    REDUCTION_MASKS,
    CublasGemm,
    Extrapolation,
    HeuristicQuery,
    Preference,
    check_mixed,
    checked_call,
    is_fast,
    operand_of,
)
from hwsim.libraries.cublas.choice import CublasChoice, choice_of
from hwsim.libraries.cublas.orders.families import OrderTables, tables_in
from hwsim.libraries.cublas.pytorch import NARROW, PytorchCall, pytorch_call
from hwsim.libraries.cublas.scaled_kernels import TENSORS, scaled_choice
from hwsim.libraries.cublas.times.factor import networks_of
from hwsim.libraries.cublas.times.fitted_times import FittedTimes, key_of, row_of
from hwsim.libraries.cublas.versions import ASSUMED, Version, has_seen_rules, rules_text
from hwsim.libraries.gemm_call import PYTORCH, GemmCall, OperationCall
from hwsim.libraries.kernel_choice import LibraryChoice, SummationOrder
from hwsim.libraries.protocol import ChoicesByM, LibraryRules, gemm_of

CACHED = 4096  # choices
#: What is asked for where nothing is said: 32 MiB, slices reduced in any type.
USUAL = Preference(32 << 20, "any")


@dataclass(frozen=True, slots=True)
class CublasRules(LibraryRules):
    """One version of cuBLAS on one chip."""

    version: Version
    device: str  # the name under which answers for the chip stand
    workspace_bytes: int | None = None  # None: the caller of a product says them
    answers: Sweeps | None = None  # the library's own, of a user's file; they stand before what is shipped
    estimates: Estimates | None = None  # where the chip was not asked; they stand for the choices
    generation: Generation = HOPPER  # of the chip, which says how the kernels add
    chip_name: str = ""  # of the device, where that is another than `device`

    @property
    def cores(self) -> int:
        """SMs of the device that was asked."""
        if self.estimates is not None:
            return self.estimates.chip.cores
        return (self.version.devices if self.answers is None else self.answers.cores)[self.device]

    @property
    def id(self) -> LibraryId:
        """As the record names it."""
        return self.version.id

    @property
    def sources(self) -> AnswerSources:
        """Where its answers come from."""
        return AnswerSources(self.version, self.device, self.answers, self.estimates)

    @property
    def tables(self) -> OrderTables:
        """The rules of its kernels' sums."""
        return tables_in(self.version.sums)

    def choose(self, call: OperationCall) -> CublasChoice:
        """What cuBLAS runs for a GEMM.

        Fitted choices do not tell a bias apart: with 32 MiB of workspace the choice is hardly ever another
        (docs/library.md). A file's answer for one product stands for a batch of it with evidence "assumption". Of
        batches of matrix-vector products the confidence is of the kernel's variant, too. On a chip that the library was
        not asked on the choice is an estimate, the same for any reductions and bias.

        Raises InputError for values that are not allowed, UnsupportedError where cuBLASLt refuses the GEMM, where
        PyTorch has no such call, and where the choice is not known.
        """
        gemm = gemm_of(call, self.id)
        if gemm.scales is not None:
            return self._scaled(gemm)
        operand, query = self._query(gemm)
        choice = _chosen(self, query)
        if not operand == gemm.format == (gemm.format_b or gemm.format):
            check_mixed(self.version.taken, query.call, gemm.format, gemm.format_b)
            choice = self._for_two_formats(choice, gemm)
        return self._finished(choice, gemm)

    def order(self, call: OperationCall, choice: LibraryChoice) -> SummationOrder:
        """The order of summation of a chosen kernel, with the format to which it rounds before it adds a bias or C."""
        gemm = gemm_of(call, self.id)
        assert isinstance(choice, CublasChoice)
        return replace(choice.order, product_format=self._product_format(gemm, choice))

    def times(self, call: OperationCall, choice: LibraryChoice) -> FittedTimes | None:
        """What such kernels were recorded to take; None where none was recorded, as on chips that were not asked. Times
        of a kernel that is assumed are assumed too.
        """
        gemm = gemm_of(call, self.id)
        assert isinstance(choice, CublasChoice)
        if choice.is_estimated:
            return None
        row, networks = row_of(self.version.times, key_of(choice, gemm)), networks_of(self.version.factors)
        if row is None or networks is None:
            return None
        seen_on = row.chips if gemm.batch == 1 else row.batch_chips
        is_of_one_format = gemm.format_b in (None, gemm.format)
        is_recorded = self.version.is_asked and is_of_one_format and self.device in seen_on
        return FittedTimes(
            row=row,
            networks=networks,
            choice=choice,
            call=gemm,
            cores=self.cores,
            evidence="fitted" if is_recorded and choice.evidence != ASSUMED else ASSUMED,
            launch_us=self.version.launch_us,
        )

    def choose_each(
        self, call: GemmCall, sizes_m: Sequence[int], progress: Callable[[float], None] | None = None
    ) -> ChoicesByM:
        """The choices for a call with each m, those that differ in their order once."""
        if call.format_b not in (None, call.format):
            return LibraryRules.choose_each(self, call, sizes_m, progress)
        least, most = min(sizes_m, default=1), max(sizes_m, default=1)
        _, query = self._query(replace(call, m=least))
        self._query(replace(call, m=most))
        places: dict[tuple[Any, ...], int] = {}
        choices: list[LibraryChoice] = []
        index: list[int] = []
        confidence: list[float] = []
        for answer, m in zip(self.sources.of(query, sizes_m, progress), sizes_m, strict=True):
            family = self.tables.families.get(answer.order[0])
            sized = query.call._replace(m=int(m))
            _, _, slices, _, custom = answer.order
            key = (answer.order, 0 if family is None else family.order_of_m(sized, slices, custom))
            if key not in places:
                places[key] = len(choices)
                choices.append(self._finished(_chosen(self, query._replace(call=sized)), call))
            index.append(places[key])
            confidence.append(answer.confidence)
        return ChoicesByM(choices, index, confidence)

    def other_calls(self, call: GemmCall) -> list[GemmCall]:
        """For which other calls of operands of this format the user's file has a weight, where it has none for this
        call; errors as of `choose`.
        """
        if self.answers is None:
            return []
        _, query = self._query(replace(call, m=1))
        kinds = self.answers.kinds(self.device, query.call.n, query.call.k)
        if kind_of(query) in kinds:
            return []
        return [_call_of(kind, query.call) for kind in kinds if kind.operand == query.call.operand]

    def layouts(self, format: str, layouts: tuple[str, str]) -> tuple[str, str]:
        """8-bit operands are K-major; of others any layout is taken."""
        return ("rows", "columns") if format in self.version.taken.k_major else layouts

    def _scaled(self, gemm: GemmCall) -> CublasChoice:
        """The choice for operands with scales. Raises UnsupportedError for scales that cuBLAS does not take there."""
        if self.estimates is not None and gemm.scales != TENSORS:
            raise UnsupportedError(
                f"{self.id.name} on {self.device}: its kernels for scales of {' and '.join(gemm.scales or ())} are not "
                "known but on Hopper; leave library out"
            )
        return scaled_choice(gemm, self.choose(replace(gemm, scales=None)))

    def _query(self, gemm: GemmCall) -> tuple[str, HeuristicQuery]:
        """The format whose kernels multiply, and the call with what was said of workspace and reductions, and for the
        rest what the caller says, or what the answers at hand were asked with.
        """
        if not isinstance(gemm.bias, bool):
            raise InputError(f"bias = {gemm.bias!r}; allowed: True, False")
        operand = operand_of(self.version.taken, gemm.format, gemm.format_b)
        of_caller = self._by_caller(gemm, operand) if gemm.caller == PYTORCH else None
        usual = USUAL if of_caller is None else of_caller.told
        call = checked_call(self.version.taken, replace(gemm, format=operand, format_b=None))
        if gemm.reductions is not None and (
            not isinstance(gemm.reductions, str) or gemm.reductions not in REDUCTION_MASKS
        ):
            raise InputError(f"reductions = {gemm.reductions!r}; allowed: {', '.join(REDUCTION_MASKS)}, None")
        if self.answers is not None:
            usual = pytorch_call((call.n, call.k), format=operand, output=call.output, has_bias=gemm.bias).told
        is_lt = of_caller.is_lt if of_caller is not None else gemm.bias
        asked_bytes = gemm.lt_workspace_bytes if is_lt else gemm.workspace_bytes
        sizes = (asked_bytes, self.workspace_bytes, usual.workspace_bytes)
        told = Preference(
            next(size for size in sizes if size is not None),
            usual.reductions if gemm.reductions is None else gemm.reductions,
        )
        return operand, HeuristicQuery(call, told, is_fast(call, gemm.accumulate), gemm.bias, gemm.batch)

    def _by_caller(self, gemm: GemmCall, operand: str) -> PytorchCall:
        """How PyTorch calls cuBLAS for a GEMM. Raises UnsupportedError for a call that it does not make."""
        if gemm.bias and gemm.has_c:
            raise UnsupportedError(
                f"library = {self.id.name!r}: PyTorch has no call with a bias and a C; leave one of them out"
            )
        return pytorch_call((gemm.n, gemm.k), format=operand, output=gemm.result, has_bias=gemm.bias)

    def _for_two_formats(self, choice: CublasChoice, gemm: GemmCall) -> CublasChoice:
        """The choice for operands of the first of two formats, as it stands for both."""
        confidence = choice.confidence * self.version.mixed_alike
        if choice.is_estimated:
            return replace(choice, confidence=confidence)
        parts = tuple(dict.fromkeys([*choice.unasked.parts, *([BIAS] if gemm.bias else [])]))
        chips = choice.unasked.chips or self.version.chips_instead(self.device, "mixed_formats")
        is_asked = not parts and not chips and choice.evidence != ASSUMED
        evidence = self.version.evidence if is_asked else ASSUMED
        return replace(choice, confidence=confidence, evidence=evidence, unasked=Extrapolation(parts, chips))

    def _finished(self, choice: CublasChoice, gemm: GemmCall) -> CublasChoice:
        """The choice with what a call adds to its product: a C, alpha and beta, and 8-bit accumulation as asked for."""
        if gemm.accumulate is not None and not self.generation.promotes:
            choice = replace(choice, accumulate="fast")
        if choice.is_estimated or gemm.format in self.version.same_with_c:  # there they change nothing
            return choice
        parts = ["a C"] if gemm.has_c and gemm.result in NARROW else []  # of wide results a C changes nothing
        parts += ["alpha and beta"] if gemm.is_scaled else []
        if not parts:
            return choice
        unasked = choice.unasked._replace(parts=(*choice.unasked.parts, *parts))
        return replace(choice, unasked=unasked, evidence=ASSUMED)

    def _product_format(self, gemm: GemmCall, choice: CublasChoice) -> str | None:
        """To which format the sum is rounded before the bias or C is added; None: its own."""
        family = self.tables.families.get(choice.algorithm)
        has_added = gemm.bias or (gemm.has_c and gemm.is_c_whole)
        if family is None or not has_added or gemm.result not in NARROW:
            return None
        is_lt = self._by_caller(gemm, choice.operand).is_lt if gemm.caller == PYTORCH else gemm.bias
        is_rounded = family.is_rounded_before_bias(choice.split_k, choice.reduction, is_lt)
        return gemm.result if is_rounded else None


def _call_of(kind: CallKind, call: CublasGemm) -> GemmCall:
    """A kind of call of a user's file, with the weight of another call."""
    reductions = next((name for name, mask in REDUCTION_MASKS.items() if mask == kind.reductions), None)
    return GemmCall(
        m=1,
        n=call.n,
        k=call.k,
        format=kind.operand,
        output=kind.output,
        accumulate=None if kind.fast is None else "fast" if kind.fast else "promoted",
        a_layout=kind.a_layout,
        b_layout=kind.b_layout,
        bias=kind.bias,
        reductions=reductions,  # type: ignore[arg-type]
    )


@lru_cache(maxsize=CACHED)
def _chosen(rules: CublasRules, query: HeuristicQuery) -> CublasChoice:
    """The choice for a call; asked for again and again by layers of a network."""
    sources = rules.sources
    (source,) = sources.of(query, [query.call.m])
    answer, stages = sources.full(query, source, rules.cores, rules.generation)
    choice = choice_of(query, source, answer, stages, rules.tables)
    is_seen = format_of(query.call.operand).is_integer or (
        rules.estimates is None and has_seen_rules(rules.id, rules.device, rules.cores)
    )
    order = replace(choice.order, seen=is_seen, assumed="" if is_seen else _assumed(rules))
    return replace(choice, order=order, asked_on=tuple(rules.version.devices))


def _assumed(rules: CublasRules) -> str:
    """By which rules an order of summation is assumed."""
    published = f"; published is {rules.generation.published}" if rules.generation.published else ""
    on = rules.chip_name or rules.device
    return f"{rules.id.name} {rules.id.version} on {on} by the rules of {rules_text()}{published}"
