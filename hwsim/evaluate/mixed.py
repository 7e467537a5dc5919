"""GEMMs whose blocks use different plans (Ape, section 5): the plan of each block, and the bits.

Blocks are classified by the range of their elements; a product of two blocks uses the more general of their plans. The
module knows plans and devices; it knows no scheme's split, no program (hwsim.dataflows.mixed) and no time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.arithmetic.lanes import Lanes
from hwsim.arithmetic.vector import VectorUnit, gives_all_ones
from hwsim.backend.cpu import CPU
from hwsim.devices import dot_spec, instruction
from hwsim.evaluate.defaults import first_unit, resolved
from hwsim.evaluate.evaluator import evaluate
from hwsim.evaluate.split import Pieces, pieces_of
from hwsim.gemm.mixed_plan import BlockCounts, one_for_all
from hwsim.gemm.plan import SIDES, Mixed, Plan
from hwsim.gemm.schedule import Schedule

if TYPE_CHECKING:
    from hwsim.backend.operations import Backend
    from hwsim.devices.device import Device
    from hwsim.operands.operand import Operand

AnyArray = NDArray[Any]


# --- which block takes which plan ------------------------------------------------------------------------------------


def types_of(
    values: AnyArray, block: tuple[int, int], ranges: Sequence[tuple[float, float]], zeros_fit: bool = True
) -> NDArray[np.int8]:
    """The index of the first plan that handles each block of rows x columns; len(ranges) where none does.

    values: (..., rows, columns), fp32. ranges: smallest and largest magnitude that each plan handles, and 0 where
    zeros fit; NaN and infinity never.
    """
    if values.ndim > 2:
        parts = [types_of(matrix, block, ranges, zeros_fit) for matrix in values.reshape(-1, *values.shape[-2:])]
        return np.stack(parts).reshape(*values.shape[:-2], *parts[0].shape)
    rows, columns = values.shape
    starts = np.arange(0, columns, block[1])
    type_rows = []
    with np.errstate(invalid="ignore"):  # signalling NaNs
        for row in range(0, rows, block[0]):
            part = np.abs(values[row : row + block[0]])
            largest = np.maximum.reduceat(part.max(axis=0), starts).astype(np.float64)
            part = np.where(part == 0, np.inf, part) if zeros_fit else part
            least = np.minimum.reduceat(part.min(axis=0), starts).astype(np.float64)
            fits = [(least >= low) & (largest <= high) for low, high in ranges]  # not met by NaN
            type_rows.append(np.select(fits, range(len(ranges)), len(ranges)))
    return np.stack(type_rows).astype(np.int8)


def count_block_products(a: AnyArray, b: AnyArray, plans: int) -> BlockCounts:
    """Number of block products per plan, from the blocks' plan indices of A (..., rows, K) and B (..., K, columns).

    Each count is the sum over all elements of the product of two masks (1: this plan or a cheaper one suffices), as in
    section 5.3.
    """
    upto = [int(((a <= p).sum(axis=-2) * (b <= p).sum(axis=-1)).sum()) for p in range(plans)]
    return BlockCounts(tuple(int(x) for x in np.diff(upto, prepend=0)))


def types_of_operands(mixed: Mixed, a: Operand, b: Operand, backend: Backend = CPU) -> tuple[AnyArray, AnyArray]:
    """The plan index of each block of A and of B. backend: converts them to fp32; blocks are looked at on the host."""
    m, n, k = mixed.block
    left, right = (backend.to_host(x.fp32(backend).array) for x in (a, b))
    blocks = types_of(left, (m, k), mixed.ranges, mixed.zeros_fit)
    return blocks, types_of(right, (k, n), mixed.ranges, mixed.zeros_fit)


def with_equal_stacks(a: AnyArray, b: AnyArray) -> tuple[AnyArray, AnyArray]:
    """The plans of blocks of A and B, each for every matrix of the product's stack."""
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return np.broadcast_to(a, (*lead, *a.shape[-2:])), np.broadcast_to(b, (*lead, *b.shape[-2:]))


def written_types(types: AnyArray) -> tuple[str, ...]:
    """The plans of an operand's blocks as a record holds them (`Mixed.a_types`)."""
    return tuple("".join(map(str, line)) for line in types.reshape(-1, types.shape[-1]).tolist())


# --- bits ------------------------------------------------------------------------------------------------------------


def evaluate_mixed(
    chip: Device,
    mixed: Mixed,
    a: Operand,
    b: Operand,
    *,
    threads: int = 1,
    progress: Callable[[float], None] | None = None,
    backend: Backend = CPU,
) -> AnyArray:
    """The fp32 codes (m, n) of A (m, k) times B (k, n) under a mixed plan.

    For every block of the output, each plan computes its blocks of K, concatenated in order; the plans' results are
    added in their order, fp32, nearest even. Plans without a block add nothing. backend: computes the bits.
    """
    parts = {plan.scheme: _PlanProducts(chip, plan, (a, b), backend, threads) for plan in mixed.plans}
    whole = one_for_all(mixed)
    if whole is not None:
        return parts[whole.scheme].codes(None, None, None, progress)
    lanes = Lanes(chip, parts[mixed.plans[-1].scheme].spec, backend)
    out = backend.empty((a.shape[0], b.shape[1]), np.uint32)
    regions = list(_regions(*types_of_operands(mixed, a, b, backend)))
    for index, (rows, columns, pattern) in enumerate(regions):
        at_m, at_n = (
            _elements(blocks, size, limit)
            for blocks, size, limit in ((rows, mixed.block[0], out.shape[0]), (columns, mixed.block[1], out.shape[1]))
        )
        codes: AnyArray | None = None
        for number, plan in enumerate(mixed.plans):
            blocks = np.flatnonzero(pattern == number)
            if not len(blocks):
                continue
            part = parts[plan.scheme].codes(at_m, at_n, _elements(blocks, mixed.block[2], a.shape[1]), None)
            codes = part if codes is None else lanes.add(lanes.load(codes), lanes.load(part)).view(np.uint32)
        assert codes is not None
        out[np.ix_(at_m, at_n)] = codes
        if progress is not None:
            progress((index + 1) / len(regions))
    return out


class _PlanProducts:
    """Products by one plan; operands are split on first use."""

    def __init__(
        self, chip: Device, plan: Plan, operands: tuple[Operand, Operand], backend: Backend, threads: int
    ) -> None:
        self.chip, self.plan, self.operands, self.backend, self.threads = chip, plan, operands, backend, threads
        self.schedule = resolved(Schedule(), plan, chip)
        self.unit = first_unit(plan, self.schedule, chip)
        self.spec = dot_spec(chip, self.unit)
        self._pieces: tuple[Pieces, Pieces] | None = None

    def pieces(self) -> tuple[Pieces, Pieces]:
        """The pieces of A and B."""
        if self._pieces is None:
            word_rounding = instruction(self.chip, self.unit).operand_rounding
            vector = VectorUnit(self.chip.vector, self.backend, gives_all_ones(self.spec))
            a, b = (
                pieces_of(
                    operand,
                    self.plan,
                    side,
                    self.chip,
                    word_rounding=word_rounding,
                    vector=vector,
                    threads=self.threads,
                )
                for operand, side in zip(self.operands, SIDES, strict=True)
            )
            self._pieces = a, b
        return self._pieces

    def codes(
        self,
        rows: AnyArray | None,
        columns: AnyArray | None,
        depth: AnyArray | None,
        progress: Callable[[float], None] | None,
    ) -> AnyArray:
        """Codes of these rows and columns, over this part of K (None: all)."""
        a, b = self.pieces()
        if rows is not None:
            a, b = (
                Pieces(tuple(_some(x, rows, depth) for x in a.codes)),
                Pieces(tuple(_some(x, depth, columns) for x in b.codes)),
            )
        fixed = self.plan, self.schedule, self.chip
        return evaluate(*fixed, a, b, threads=self.threads, progress=progress, backend=self.backend)


def _some(codes: AnyArray, rows: AnyArray | None, columns: AnyArray | None) -> AnyArray:
    if rows is not None and len(rows) < codes.shape[0]:
        codes = codes[rows]
    if columns is not None and len(columns) < codes.shape[1]:
        codes = codes[:, columns]
    return codes


def _elements(blocks: AnyArray, size: int, limit: int) -> AnyArray:
    """Indices of the elements in these blocks."""
    indices: AnyArray = (blocks[:, None] * size + np.arange(min(size, limit))).ravel()
    return indices[indices < limit]


def _regions(a: AnyArray, b: AnyArray) -> Iterator[tuple[AnyArray, AnyArray, AnyArray]]:
    """Groups of output blocks with the same plans along K: (rows of blocks, columns of blocks, plan of each block of
    K).
    """
    kinds, which = np.unique(a, axis=0, return_inverse=True)
    for number, kind in enumerate(kinds):
        along, column = np.unique(np.maximum(kind[:, None], b), axis=1, return_inverse=True)
        for index in range(along.shape[1]):
            yield np.flatnonzero(which.ravel() == number), np.flatnonzero(column.ravel() == index), along[:, index]
