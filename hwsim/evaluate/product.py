"""The bits of a record: operands are split, multiplied, combined, and the epilogue applied, without a program.

The module reads the record of a GEMM and its device; it knows no scheme, no tile and no time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hwsim.arithmetic.lanes import Lanes
from hwsim.arithmetic.vector import VectorUnit, gives_all_ones
from hwsim.backend.cpu import CPU
from hwsim.devices import dot_spec, instruction
from hwsim.errors import InputError, UnsupportedError
from hwsim.evaluate import chains, epilogue, split
from hwsim.evaluate.block_sizes import block_at_once, sums_at_once, takes_stacks
from hwsim.evaluate.evaluator import apply_epilogue, evaluate, evaluate_plan
from hwsim.evaluate.mixed import evaluate_mixed
from hwsim.evaluate.plan_evaluation import PlanEvaluation, plan_evaluation
from hwsim.evaluate.split import Pieces, bounds_of, exponents_from_product, is_piece, pieces_of, scaled
from hwsim.formats import array_of, code_dtype, format_of
from hwsim.gemm import refusals
from hwsim.gemm.layouts import K_MAJOR
from hwsim.gemm.plan import Mixed, Residue, TermValue, chain
from hwsim.gemm.schedule import Epilogue, has_integer_epilogue
from hwsim.host.threads import worth_starting
from hwsim.operands.added import checked_c
from hwsim.operands.operand import Operand, operand, selected_indices
from hwsim.operands.sparse import require_sparse, stored_mask

if TYPE_CHECKING:
    from hwsim.backend.operations import Backend
    from hwsim.devices.device import Device
    from hwsim.gemm.plan import Plan, Side
    from hwsim.gemm.record import Gemm
    from hwsim.gemm.schedule import KPartition, Schedule
    from hwsim.gemm.summation import Range

AnyArray = NDArray[Any]
MATRICES_AT_ONCE = 2  # of a stack, at least: fewer gain nothing
ELEMENTS_AT_ONCE = 1 << 20  # of a stack: what fits the caches


class Evaluator:
    """Computes the bits of one record on its device, by a backend. It keeps no operand data."""

    def __init__(self, gemm: Gemm, device: Device, backend: Backend = CPU) -> None:
        """plan: of a mixture the most general one. products: of its pieces.

        Raises UnsupportedError for a record that asks for more than its parts compute.
        """
        refused = refusals.joined(
            refusals.of_parts((split.refuses, chains.refuses, epilogue.refuses), gemm),
            refusals.sparsity_beside(gemm.problem, instruction(device, gemm.unit).sparsity),
        )
        if refused:
            raise UnsupportedError(f"the evaluator computes no {refused}")
        self.gemm, self.device, self.backend = gemm, device, backend
        self.plan: Plan = gemm.single
        self.schedule: Schedule = gemm.schedule
        self.products = self.plan.products
        self._evaluations: dict[bool, PlanEvaluation] = {}  # with and without a C
        self._partitions: dict[int, KPartition] = {}  # by K
        self._values: dict[tuple[bool, bool], bool] = {}  # by whether there is a C, and a bias

    @cached_property
    def _conversions(self) -> tuple[VectorUnit, str | None]:
        """Of operands: the device's conversions, and the rounding by which the instruction takes 32-bit words."""
        name = self.gemm.unit
        vector = VectorUnit(self.device.vector, self.backend, gives_all_ones(dot_spec(self.device, name)))
        return vector, instruction(self.device, name).operand_rounding

    def _partition(self, k: int) -> KPartition:
        partition = self._partitions.get(k)
        if partition is None:
            partition = self._partitions[k] = self.schedule.k_partition(k)
        return partition

    @property
    def by_rows(self) -> bool:
        """Whether each row of the result depends on no other row of A (in mixtures, the rows of a block depend on each
        other; where a product bounds the others, all rows).
        """
        return not (isinstance(self.gemm.plan, Mixed) or self.plan.bounds_product)

    def pieces(self, a: Operand, b: Operand, threads: int = 1) -> tuple[Pieces, Pieces]:
        """The plan's pieces of A and B."""
        vector, word_rounding = self._conversions
        sides: tuple[tuple[Operand, Side], ...] = ((a, "a"), (b, "b"))
        taken = [
            source if is_piece(source, self.plan, side) else source.converted(self.plan.input_format, self.backend)
            for source, side in sides
        ]
        exponents = self._joint_exponents(taken[0], taken[1], threads) if self.plan.bounds_product else (None, None)
        left, right = (
            pieces_of(
                source,
                self.plan,
                side,
                self.device,
                rounding=self.schedule.operand_rounding,
                word_rounding=word_rounding,
                vector=vector,
                exponents=of_side,
                is_k_major=layout == k_major,
                threads=threads,
            )
            for source, (_, side), of_side, layout, k_major in zip(
                taken, sides, exponents, self.gemm.problem.layouts, K_MAJOR, strict=True
            )
        )
        wanted = [side.scale is not None for side in self.gemm.problem.operands]
        if wanted != [source.scales is not None for source in (a, b)]:
            raise InputError(
                "the record's operands have scales; give scale_a and scale_b, and nothing else where it has none"
            )
        if not any(wanted):
            return left, right
        return dataclasses.replace(left, scales=a.scales), dataclasses.replace(right, scales=b.scales)

    def _joint_exponents(self, a: Operand, b: Operand, threads: int) -> tuple[AnyArray, AnyArray]:
        """The exponents of A's rows and B's columns by the product of bounds, as the unit adds it up."""
        plan, backend = self.plan, self.backend
        whole = tuple(
            dataclasses.replace(piece, residue=Residue(piece.residue.modulus)) for piece in plan.a_pieces[-1:]
            if piece.residue is not None
        )  # fmt: skip
        alone = dataclasses.replace(
            plan,
            a_pieces=whole,
            b_pieces=whole,
            terms=(dataclasses.replace(plan.terms[-1], stages=chain((0, 0)).stages),),
            combine=TermValue(0),
            specials="unit",
            output_format="fp64",
        )
        schedule = dataclasses.replace(self.schedule, epilogue=Epilogue())
        bounds = [bounds_of(a, plan, "a", backend)], [bounds_of(b, plan, "b", backend)]
        product = evaluate(alone, schedule, self.device, *bounds, threads=threads, backend=backend).view(np.float64)
        return (
            exponents_from_product(a, plan, "a", product, backend),
            exponents_from_product(b, plan, "b", product, backend),
        )

    def scaled(self, source: Operand, side: Side, exponent: int, threads: int = 1) -> Operand:
        """A finite fp32 operand times 2^exponent, for `product` and `stack`: in the format of its piece, where the plan
        has one and it is the operand rounded, else in fp32.
        """
        rounding = self.schedule.operand_rounding
        return scaled(
            source,
            exponent,
            self.plan,
            side,
            self.device,
            rounding=rounding,
            threads=threads,
            backend=self.backend,
        )

    def c_codes(self, c: Any, shape: tuple[int, ...]) -> AnyArray:
        """Codes of C in the output format, on the host. Raises InputError for another shape, or values that are not
        real.
        """
        fmt = format_of(self.gemm.output)
        x = checked_c(c, shape)
        if x.dtype.kind == "u" and x.dtype.itemsize * 8 == max(fmt.bits, 8):
            return operand("C", x, input_format=self.gemm.output).codes
        addend = operand("C", x)
        if addend.format == self.gemm.output:
            return addend.codes
        if fmt.is_integer:
            low, high = -(1 << (fmt.bits - 1)), 1 << (fmt.bits - 1)
            if x.dtype.kind not in "iu" or int(x.min(initial=0)) < low or int(x.max(initial=0)) >= high:
                raise InputError(f"C has dtype {x.dtype}; allowed: integers that {fmt.name} holds, as the output does")
            return np.ascontiguousarray(x.astype(fmt.dtype_name)).view(f"u{fmt.bits // 8}")
        lanes = Lanes(self.device, dot_spec(self.device, self.gemm.unit), self.backend)
        on_backend = Operand(self.backend.from_host(addend.codes), addend.format)
        whole = x.dtype.kind in "iu"
        values = self.backend.from_host(x.astype(np.float64)) if whole else on_backend.values(self.backend)
        wide = values.astype(np.float32) if values.dtype == np.float16 else values
        return self.backend.to_host(lanes.store(wide, fmt, "RNE"))

    def evaluate(
        self,
        a: Pieces | Sequence[AnyArray],
        b: Pieces | Sequence[AnyArray],
        *,
        c: AnyArray | None = None,
        bias: AnyArray | None = None,
        partition: KPartition | None = None,
        threads: int = 1,
        progress: Callable[[float], None] | None = None,
    ) -> AnyArray:
        """Codes of the result; arguments as of hwsim.evaluate.evaluator.evaluate.

        Raises UnsupportedError for mixtures, whose pieces differ from block to block.
        """
        if isinstance(self.gemm.plan, Mixed):
            raise UnsupportedError(f"scheme {self.gemm.scheme}: its blocks follow different plans; take `product`")
        job = self._evaluation(c is not None)
        return evaluate_plan(job, a, b, c=c, bias=bias, partition=partition, threads=threads, progress=progress)

    def _evaluation(self, has_c: bool) -> PlanEvaluation:
        job = self._evaluations.get(has_c)
        if job is None:
            job = plan_evaluation(self.plan, self.schedule, self.device, self.backend, has_c)
            self._evaluations[has_c] = job
        return job

    def has_whole_epilogue(self, has_c: bool) -> bool:
        """Whether alpha, C and the bias are applied to integers."""
        job = self._evaluation(has_c)
        return has_integer_epilogue(job.plan.arithmetic, job.output)

    @property
    def are_words_rounded(self) -> bool:
        """Whether 32-bit words that are operands already are rounded, as the instruction reads them."""
        return self._conversions[1] is not None

    def makes_values(self, c: AnyArray | None, bias: AnyArray | None) -> bool:
        """Whether more than the codes of the result is held of an element of C: the values that it is made of."""
        is_scaled = any(side.scale is not None for side in self.gemm.problem.operands)
        if isinstance(self.gemm.plan, Mixed) or self.schedule.regions or is_scaled:
            return True
        kind = c is not None, bias is not None
        known = self._values.get(kind)
        if known is None:
            slices = len(self._partition(self.gemm.problem.k).slices)
            known = self._values[kind] = self._evaluation(kind[0]).makes_values(slices, bias)
        return known

    def product(
        self,
        a: Operand,
        b: Operand,
        *,
        c: AnyArray | None = None,
        bias: AnyArray | None = None,
        at: tuple[AnyArray, AnyArray] | None = None,
        threads: int = 1,
        progress: Callable[[float], None] | None = None,
    ) -> AnyArray:
        """Codes (m, n) of the result. a (m, k), b (k, n); c: codes (m, n) of the output format; bias: (n,) values.

        at: the rows and columns of the whole product that these are, where its order of summation differs by region.
        """
        threads = worth_starting(threads, a.shape[0] * a.shape[1] * b.shape[1] * self.products)
        if not isinstance(self.gemm.plan, Mixed):
            if self.plan.k_parts:
                return self._by_parts_of_k(a, b, c, bias, threads)
            left, right = self.pieces(a, b, threads)
            if self.schedule.regions:
                return self._by_region(left, right, c, bias, at, threads)
            partition = self._partition(left.shape[1])
            codes = self.evaluate(left, right, c=c, bias=bias, partition=partition, threads=threads, progress=progress)
            if self.gemm.problem.sparsity is not None:
                self._without_missing_products(codes, left, right, c, bias)
            return codes
        fmt = self.plan.input_format
        backend = self.backend
        operands = a.converted(fmt, backend), b.converted(fmt, backend)
        codes = evaluate_mixed(
            self.device, self.gemm.plan, *operands, threads=threads, progress=progress, backend=backend
        )
        fixed = self.plan, self.schedule, self.device
        return apply_epilogue(*fixed, codes, c=c, bias=bias, threads=threads, backend=backend)

    def _without_missing_products(
        self, codes: AnyArray, a: Pieces, b: Pieces, c: AnyArray | None, bias: AnyArray | None
    ) -> None:
        """Compute anew, in place, the columns of a sparse A's product in which B has infinities or NaNs.

        An element of A that is not stored has no product, where a zero would make a NaN of them. Raises InputError for
        an A that is not so sparse.
        """
        fmt = self.plan.a_pieces[0].format
        of_host = Operand(self.backend.to_host(a.codes[0]), fmt)
        require_sparse(of_host)
        if format_of(fmt).is_integer:
            return
        of_b = format_of(self.plan.b_pieces[0].format)
        values = self.backend.decode(b.codes[0], of_b, np.float64 if of_b.bits > 32 else np.float32)
        columns = np.nonzero(self.backend.to_host(self.backend.specials(values)[1]))[0]
        if not columns.size:
            return
        stored = stored_mask(of_host)
        special = self.backend.to_host(b.picked("b", columns).codes[0])
        for row in range(len(stored)):
            left = a.picked("a", slice(row, row + 1))
            right = self.backend.from_host(np.where(stored[row][:, None], special, special.dtype.type(0)))
            of_c = None if c is None else c[row : row + 1, columns]
            of_bias = None if bias is None else bias[columns]
            codes[row, columns] = self.evaluate(left, [right], c=of_c, bias=of_bias)[0]

    def _by_parts_of_k(
        self, a: Operand, b: Operand, c: AnyArray | None, bias: AnyArray | None, threads: int
    ) -> AnyArray:
        """Every part of K split alone, and its scaled value added to the output (see Plan.k_parts)."""
        plan = dataclasses.replace(self.plan, k_parts=())
        alone = dataclasses.replace(self.schedule, epilogue=Epilogue())
        job = self._evaluation(c is not None)
        lanes, alpha, start = job.join.lanes, self.schedule.epilogue.alpha, 0
        total: AnyArray | None = None
        for length in self.plan.k_parts:
            some = slice(start, start + length)
            pieces = self.pieces(Operand(a.codes[:, some], a.format), Operand(b.codes[some], b.format), threads)
            codes = evaluate(plan, alone, self.device, *pieces, threads=threads, backend=self.backend)
            value = lanes.load(codes)
            total = job.epilogue.scaled_sum(value, c, 1) if total is None else lanes.fused(alpha, value, total)
            start += length
        assert total is not None
        return job.epilogue.biased_codes(total, lanes, bias, threads)

    def _orders(self) -> tuple[Schedule, list[tuple[Schedule, Range, Range]]]:
        """The order of summation outside of all regions, and that of each with its rows and columns."""
        plain = dataclasses.replace(self.schedule, regions=())
        return plain, [
            (dataclasses.replace(plain, sum=region.sum, split_k=1, slice_k=None), region.rows, region.cols)
            for region in self.schedule.regions
        ]

    def schedule_at(self, row: int, column: int) -> Schedule:
        """The order of summation of one element of the product: the schedule, or that of the last region it is in."""
        plain, orders = self._orders()
        at = [
            schedule
            for schedule, rows, cols in orders
            if _within(np.array([row]), rows).size and _within(np.array([column]), cols).size
        ]
        return at[-1] if at else plain

    def _by_region(
        self,
        a: Pieces,
        b: Pieces,
        c: AnyArray | None,
        bias: AnyArray | None,
        at: tuple[AnyArray, AnyArray] | None,
        threads: int,
    ) -> AnyArray:
        """Every region in its own order of summation."""
        rows, cols = (np.arange(a.shape[0]), np.arange(b.shape[1])) if at is None else at
        plain, orders = self._orders()
        out = self.backend.zeros((len(rows), len(cols)), code_dtype(format_of(self.gemm.output)))
        left = np.ones(out.shape, bool)
        for schedule, of_rows, of_cols in orders:
            mine = np.ix_(_within(rows, of_rows), _within(cols, of_cols))
            if mine[0].size and mine[1].size:
                out[mine] = self._part(schedule, a, b, c, bias, mine, threads)
                left[mine] = False
        if left.any():
            mine = np.ix_(np.nonzero(left.any(1))[0], np.nonzero(left.any(0))[0])
            rest = self._part(plain, a, b, c, bias, mine, threads)
            is_done = ~left[mine]
            rest[is_done] = out[mine][is_done]
            out[mine] = rest
        return out

    def _part(
        self,
        schedule: Schedule,
        a: Pieces,
        b: Pieces,
        c: AnyArray | None,
        bias: AnyArray | None,
        mine: tuple[AnyArray, ...],
        threads: int,
    ) -> AnyArray:
        rows, cols = (x.ravel() for x in mine)
        return evaluate(
            self.plan,
            schedule,
            self.device,
            a.picked("a", rows),
            b.picked("b", cols),
            c=None if c is None else c[mine],
            bias=None if bias is None else bias[cols],
            threads=threads,
            backend=self.backend,
        )

    def at_once(self, count: int, sizes: tuple[int, int, int]) -> int:
        """How many of a stack's products with sizes (m, n, k) one call takes; 1: each is computed alone."""
        m, n, k = sizes
        is_alone = isinstance(self.gemm.plan, Mixed) or self.plan.k_parts or self.gemm.problem.sparsity is not None
        if is_alone or not takes_stacks(self.schedule) or not m * n:
            return 1
        sums = sums_at_once(self.plan, self.schedule, len(self.schedule.k_partition(k).slices))
        rows, cols = block_at_once(self.products, n, k, sums)
        most = min(rows // m if cols >= n else 0, max(MATRICES_AT_ONCE, ELEMENTS_AT_ONCE // max(m * n, m * k, k * n)))
        return max(1, min(count, most))

    def stack(
        self,
        a: Operand,
        b: Operand,
        *,
        c: AnyArray | None = None,
        bias: AnyArray | None = None,
        threads: int = 1,
        progress: Callable[[float], None] | None = None,
    ) -> AnyArray:
        """Codes (count, m, n) of the products of two stacks, a (count, m, k) and b (count, k, n), `at_once` in a call.

        c: codes (count, m, n). bias: (n,) values. For schedules and plans for which that is more than one.
        """
        count, (m, k), n = len(a.codes), a.shape, b.shape[1]
        at_once = self.at_once(count, (m, n, k))
        out = self.backend.empty((count, m, n), code_dtype(format_of(self.gemm.output)))
        threads = worth_starting(threads, min(count, at_once) * m * n * k * self.plan.products)
        for start in range(0, count, at_once):
            some = slice(start, start + at_once)
            left, right = self.pieces(Operand(a.codes[some], a.format), Operand(b.codes[some], b.format), threads)
            codes_c = None if c is None else c[some]
            out[some] = self.evaluate(left, right, c=codes_c, bias=bias, threads=threads)
            del left, right  # before the next ones are made
            if progress is not None:
                progress(min(1.0, (start + at_once) / count))
        return out

    def typed(self, codes: AnyArray) -> AnyArray:
        """The result's codes as an array of the output format's dtype."""
        return array_of(codes, format_of(self.gemm.output))


def _within(index: AnyArray, part: Range) -> AnyArray:
    """Where in `index` the indices are that a range names."""
    inside = (index >= part.start) & (index < part.stop) & ((index - part.start) % part.step < part.block)
    return np.nonzero(inside)[0]


def subset(source: Operand, *, rows: Any = None, cols: Any = None) -> Operand:
    """Some rows, or some columns, of an operand. Raises InputError for indices out of range."""
    codes, scales = source.codes, source.scales
    if rows is not None:
        index = selected_indices("rows", rows, codes.shape[-2])
        codes, scales = codes[..., index, :], scales and scales.picked(index)
    if cols is not None:
        index = selected_indices("cols", cols, codes.shape[-1])
        codes, scales = codes[..., index], scales and scales.picked(index)
    return Operand(codes, source.format, scales=scales)
