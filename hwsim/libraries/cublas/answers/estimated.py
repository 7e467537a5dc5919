"""What a library's calls run on a chip that it was not asked on: by estimate, and how often the estimate is right.

The kernels follow from rules of the library file that the device names (`CallsModel`), slices of K and tile from an
estimate of time, which `Estimator` stands for. How often both are cuBLASLt's was measured where its answers are known:
lab/tools/library/measure_estimates.py asks the same estimate for them and writes the shares (configs/libraries).
The module knows calls, rules and shares; no dataflow and no program.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from hwsim.devices import find
from hwsim.errors import UnsupportedError
from hwsim.libraries.cublas.answer import HOPPER, Answer, Generation
from hwsim.libraries.cublas.calls import LINE_BYTES, REDUCTION_COMPUTE_TYPE, VECTOR_BYTES, CublasGemm
from hwsim.libraries.cublas.orders.families import tables_in
from hwsim.libraries.cublas.tables import records
from hwsim.libraries.cublas.versions import Version, chips_text
from hwsim.libraries.gemm_call import GemmCall
from hwsim.libraries.model import library_of

if TYPE_CHECKING:
    from hwsim.devices.device import Device
    from hwsim.libraries.model.kernels import CallRuleModel, CallsModel
    from hwsim.libraries.protocol import Estimator

FIELDS = ("operand", "rows", "call", "sizes", "limit", "slices", "answers", "right")
SLICE_BYTES = 4  # of a result that a slice leaves in the workspace
FEWEST = 20  # answers that a share is taken of


class Estimate(NamedTuple):
    """What a call runs by estimate. tile: (m, n). stages: of shared memory. kind: whose share `confidence` is."""

    answer: Answer
    tile: tuple[int, int]
    stages: int
    kind: GemmKind
    confidence: float


class GemmKind(NamedTuple):
    """A kind of GEMM of which a share is known: columns of the file of shares.

    rows: of A, B and D are multiples of so many bytes ("16", "4" or "1"). call: "single", "columns" (A by columns) or
    "batch". sizes: "vector" where m or n is 1, else "matrix". limit: "yes" where a rule says the fewest tiles of K in a
    slice, else "no". slices: "one" or "several", by the estimate.
    """

    operand: str
    rows: str
    call: str
    sizes: str
    limit: str
    slices: str


def calls_on(chip: Device, library: str, version: str) -> CallsModel | None:
    """What the library file of a chip says of a library's calls; None where it says nothing."""
    file = library_of(chip)
    calls = None if file is None else file.calls
    return None if calls is None or (calls.library, calls.version) != (library, version) else calls


def generation_of(chip: Device, library: str) -> Generation:
    """How the library's kernels add on a chip, as far as the library file that it names says; else as on Hopper."""
    file = library_of(chip)
    calls = None if file is None else file.calls
    if calls is None or calls.library != library:
        return HOPPER
    names = {rule.algorithm: rule.name for rule in calls.rules.values() if rule.name}
    return Generation(
        calls.promotes,
        None if calls.known_options is None else frozenset(calls.known_options),
        frozenset(calls.open_options),
        tuple(sorted(names.items())),
        calls.published,
    )


@dataclass(frozen=True, eq=False)
class Estimates:
    """Estimated choices on a chip. version: has the file of how often they are right, and names the chips on which that
    was measured. has_shares: else it is not asked for, and every confidence is 0.
    """

    chip: Device
    calls: CallsModel
    generation: Generation
    estimator: Estimator
    version: Version
    has_shares: bool = True

    def __post_init__(self) -> None:
        if self.calls.needs and all(find(self.chip, name) is None for name in self.calls.needs):
            raise UnsupportedError(
                f"{self.calls.library} {self.calls.version} on {self.chip.name}: {self.calls.needs_text}; leave "
                "library out"
            )

    def of(self, call: CublasGemm, fast: bool | None, batch: int, workspace_bytes: int) -> Estimate:
        """The estimate for a call. fast: of e4m3, else None. workspace_bytes: in which slices must fit.

        Raises UnsupportedError for operands that no rule is for, and where the estimate is never right.
        """
        rule, promoted = self._rule(call, fast), fast is False
        whole = self._answer(rule, 1, LINE_BYTES // call.element_bytes)
        instruction = tables_in(self.version.sums).order_of(call, whole).schedule.instruction
        closed = promoted and self.generation.promotes
        gemm = _gemm(call, batch, "promoted" if closed else None)
        slices = 1
        if rule.in_slices and (batch == 1 or self.calls.sliced_batches):
            slices = self.estimator.slices(gemm, instruction)
            slices = max(1, min(slices, _most_slices(call, rule, batch, workspace_bytes)))
        tile = self.estimator.tile(gemm, slices, instruction)
        answer = self._answer(rule, slices, tile.k)
        kind = kind_of(call, slices, batch, rule.slice_tiles is not None)
        return Estimate(answer, (tile.m, tile.n), tile.stages, kind, self._share(kind) if self.has_shares else 0.0)

    def _rule(self, call: CublasGemm, fast: bool | None) -> CallRuleModel:
        row_bytes, accumulate = call.row_bytes, None if fast is None else "fast" if fast else "promoted"
        for rule in self.calls.rules.values():
            is_kind = call.operand in rule.operands and row_bytes % rule.row_bytes == 0
            if is_kind and (not rule.accumulate or accumulate in rule.accumulate):
                return rule
        rows = _rows_text(row_bytes)
        how = "" if accumulate is None else f", {accumulate}"
        raise UnsupportedError(
            f"{self.calls.library} {self.calls.version} on {self.chip.name}: which kernels it has for {call.operand}"
            f"{how}{rows} is not known; leave library out, or record its choices on such a GPU (hwsim library record)"
        )

    def _answer(self, rule: CallRuleModel, slices: int, tile_k: int) -> Answer:
        algorithm = rule.sliced_algorithm if slices > 1 and rule.sliced_algorithm else rule.algorithm
        reduction = REDUCTION_COMPUTE_TYPE if slices > 1 else 0
        stage_k = tile_k if rule.tile_k is None else rule.tile_k
        return Answer(algorithm, stage_k, slices, reduction, 0, cores=self.chip.cores, generation=self.generation)

    def _share(self, kind: GemmKind) -> float:
        share = shares(self.version.shares).get(kind)
        if share is None or share[1] == 0:
            reason = f"there are fewer than {FEWEST}" if share is None else f"the estimate gives none of {share[0]}"
            raise UnsupportedError(
                f"{self.calls.library} {self.calls.version} on {self.chip.name}: {_text(kind)} cannot be estimated: of "
                f"its answers to such GEMMs on {chips_text(self.version.devices)} {reason}; leave "
                "library out, or record its choices on such a GPU (hwsim library record)"
            )
        return share[1] / share[0]


def _gemm(call: CublasGemm, batch: int, accumulate: str | None) -> GemmCall:
    """The call as hwsim's own estimate takes it."""
    return GemmCall(
        m=call.m,
        n=call.n,
        k=call.k,
        format=call.operand,
        output=call.output,
        accumulate=accumulate,
        a_layout=call.a_layout,
        b_layout=call.b_layout,
        batch=batch,
    )


def kind_of(call: CublasGemm, slices: int, batch: int, is_limited: bool) -> GemmKind:
    """The kind of a call whose K is cut into so many slices by the estimate. is_limited: by a rule, too."""
    return GemmKind(
        call.operand,
        str(call.row_bytes),
        "batch" if batch > 1 else "columns" if call.a_layout == "columns" else "single",
        "vector" if min(call.m, call.n) == 1 else "matrix",
        "yes" if is_limited else "no",
        "several" if slices > 1 else "one",
    )


@cache
def shares(name: str) -> dict[GemmKind, tuple[int, int]]:
    """Answers, and how many of them the estimate gives, by kind, where there are FEWEST at least.

    Raises InputError where the file cannot be read, ConfigError where a row is none.
    """
    return {kind: counts for kind, counts in records(name, "library", FIELDS, _share_of) if counts[0] >= FEWEST}


def _share_of(fields: Mapping[str, str]) -> tuple[GemmKind, tuple[int, int]]:
    """A line's kind, and its answers and right ones."""
    answers, right = int(fields["answers"]), int(fields["right"])
    if not 0 <= right <= answers:
        raise ValueError(f"right = {right} of {answers} answers")
    return GemmKind(*(fields[field] for field in GemmKind._fields)), (answers, right)


def _most_slices(call: CublasGemm, rule: CallRuleModel, batch: int, workspace_bytes: int) -> int:
    """The most slices that a rule and the workspace allow."""
    most = workspace_bytes // (SLICE_BYTES * batch * call.m * call.n)
    if rule.slice_tiles is not None:
        tiles = math.ceil(call.k * call.element_bytes / LINE_BYTES)
        most = min(most, (tiles - 1) // rule.slice_tiles)
    return most


def _text(kind: GemmKind) -> str:
    """A kind in words."""
    words = {"single": "", "columns": ", A by columns", "batch": " in batches"}[kind.call]
    vector = "matrix-vector products" if kind.sizes == "vector" else "products"
    slices = "several slices" if kind.slices == "several" else "one piece"
    return f"{kind.operand} {vector}{words}{_rows_text(int(kind.rows))}, K in {slices}"


def _rows_text(row_bytes: int) -> str:
    return "" if row_bytes == VECTOR_BYTES else f", rows that are not whole {VECTOR_BYTES} bytes"
