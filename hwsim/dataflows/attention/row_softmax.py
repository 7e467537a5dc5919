"""The kernel of a softmax of whole rows: the largest, powers, their sum in the order of PyTorch's kernels, quotients.

It knows the order of the sum, the lanes and the special functions; it knows no product and no attention.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hwsim.dataflows.vector_ops import VectorOps, link_engine, vector_of
from hwsim.errors import UnsupportedError
from hwsim.gemm.softmax_sums import WORD, RowSum, SoftmaxKernels, SumStep
from hwsim.host.multiples import round_up
from hwsim.program.builder import KernelBuilder, Ring, StreamBuilder, blocks_of_share, distribute
from hwsim.program.ir import ZERO, Affine, GlobalArray, GlobalTile, Kernel, LocalTile, Sync, one_of

if TYPE_CHECKING:
    from hwsim.devices.device import Device

PARTS = 4  # of a row, whose powers are computed behind one another, so that lanes and special functions overlap
SLOTS = 2  # of rows: one is loaded or stored while the lanes have the other
ROWS, OUT, ARGUMENT, POWER = Ring("row"), Ring("out"), one_of("argument.full"), one_of("power.full")
INFINITY = float("inf")


def softmax_kernel(source: GlobalArray, target: GlobalArray, kernels: SoftmaxKernels, device: Device) -> Kernel:
    """The kernel target = softmax(source) of the rows of fp32 arrays, on all cores.

    Raises UnsupportedError where a row does not fit into the memory of the lanes.
    """
    return _RowSoftmax(source, target, kernels, device).kernel()


@dataclass(frozen=True, slots=True)
class _RowSoftmax:
    """Emits the kernel."""

    source: GlobalArray
    target: GlobalArray
    kernels: SoftmaxKernels
    device: Device

    @property
    def _keeps_scores(self) -> bool:
        """Whether powers have a place of their own, because the last part of the kernel computes them anew."""
        count = self.source.cols
        return count > self.kernels.most and not self._reads_again

    @property
    def _reads_again(self) -> bool:
        """Whether rows are loaded anew for the sum and for the result."""
        return self.kernels.reads(self.source.cols) > 1

    def kernel(self) -> Kernel:
        memory_name = vector_of(self.device).memory
        memory = self.device.memories[memory_name]
        count, align, kinds = self.source.cols, memory.align_bytes, self.kernels.kinds(self.source.cols)
        orders = [self.kernels.row_sum(count, kind) for kind in range(kinds)]
        width, warps = orders[0].width, orders[0].width // orders[0].lanes
        per_row = (self._keeps_scores * count + width + warps + 1) * WORD
        more = self.kernels.vector * WORD  # behind a row that ends inside a vector
        capacity = memory.capacity_bytes - 4 * (align + more)
        rings = (ROWS, OUT)
        capacity -= len(rings) * SLOTS * (align + more)
        slots = SLOTS if capacity >= len(rings) * SLOTS * count * WORD + per_row else 1
        of_row = len(rings) * slots * count * WORD + per_row
        rows = min(capacity // of_row, -(-self.source.rows // self.device.cores))
        if not rows:
            raise UnsupportedError(
                f"attention: the softmax of rows of {count:,} elements has no program on {self.device.name}: a row "
                f"and its sums take {of_row:,} bytes of {memory_name}, which has {capacity:,}"
            )
        if any(step.stride > 1 for order in orders for step in order.steps):
            rows = 1  # of which a column of vectors is one tile
        kernel = KernelBuilder(self.kernels.name(count))
        for ring in rings:
            kernel.ring(ring.name, memory_name, slots, round_up(rows * count * WORD + more, align))
        sizes = {"largest": 1, "sums": width, "warps": warps, "powers": count * self._keeps_scores}
        for name, columns in sizes.items():
            if columns:
                kernel.buffer(name, memory_name, 1, round_up(rows * columns * WORD + more, align))
        for sync in (ARGUMENT, POWER):
            kernel.semaphore(sync.semaphore)
        cores, block = self.device.cores, rows if kinds == 1 else kinds
        for share in distribute(self.source.rows, block, cores):
            stream = StreamBuilder("main")
            for span in blocks_of_share(stream, "rows", share, block, cores):
                if kinds == 1:
                    self._rows(stream, span.start, span.size, orders[0])
                    continue
                for kind in range(span.size):  # a block begins at a row of the first order
                    self._rows(stream, span.start + kind, 1, orders[kind])
            kernel.group(share.first, share.count, stream)
        return kernel.finish()

    def _rows(self, s: StreamBuilder, start: Affine, rows: int, order: RowSum) -> None:
        """Emit the softmax of rows from `start` on, whose sums have this order."""
        vector = vector_of(self.device)
        ops, count = VectorOps(s, vector.engine), self.source.cols
        keeps = self._keeps_scores
        largest = LocalTile("largest", rows, 1, "fp32")
        scores = self._loaded(s, ops, start, rows)
        ops.op("fill", largest, scalar=-INFINITY, label="largest")
        ops.op("reduce_largest", largest, scores, largest, label="largest")
        if self._reads_again:
            scores = self._next(s, ops, start, rows)
        powers = LocalTile("powers", rows, count, "fp32") if keeps else scores
        total = _Sum(s, ops, order, self._power).of(scores, powers, largest)
        if self._reads_again:
            scores = self._next(s, ops, start, rows)
        result = OUT.tile("push", rows, count, "fp32")
        ops.wait(OUT.free)
        if self._reads_again or keeps:
            for source, target in zip(_parts(scores, order.lanes), _parts(result, order.lanes), strict=True):
                self._power(s, ops, target, source, largest)
                ops.wait(POWER)
                ops.op("divide", target, target, total, label="quotient")
        else:
            ops.op("divide", result, scores, total, label="quotient")
        ops.signal(ROWS.free, OUT.full)
        s.popped(ROWS)
        s.pushed(OUT)
        place, result = GlobalTile(self.target.name, start, ZERO, rows, count), OUT.tile("pop", rows, count, "fp32")
        engine = link_engine(self.device, vector.memory, "GM")
        s.emit(engine, "copy", place, [result], [OUT.full], [OUT.free], label="weights")
        s.popped(OUT)

    def _loaded(self, s: StreamBuilder, ops: VectorOps, start: Affine, rows: int) -> LocalTile:
        """Emit the load of rows, for which the next instruction of the lanes waits."""
        count = self.source.cols
        engine = link_engine(self.device, "GM", vector_of(self.device).memory)
        place = GlobalTile(self.source.name, start, ZERO, rows, count)
        s.emit(engine, "copy", ROWS.tile("push", rows, count, "fp32"), [place], [ROWS.free], [ROWS.full])
        s.pushed(ROWS)
        ops.wait(ROWS.full)
        return ROWS.tile("pop", rows, count, "fp32")

    def _next(self, s: StreamBuilder, ops: VectorOps, start: Affine, rows: int) -> LocalTile:
        """Emit another load of the same rows, once they are no longer needed."""
        ops.signal(ROWS.free)
        s.popped(ROWS)
        return self._loaded(s, ops, start, rows)

    def _power(
        self, s: StreamBuilder, ops: VectorOps, target: LocalTile, scores: LocalTile, largest: LocalTile
    ) -> None:
        """Emit e^(scores - largest) into a tile; a signal of POWER says that it is there."""
        special = self.device.special
        assert special is not None  # else refused before
        ops.op("sub", target, scores, largest, signals=[ARGUMENT], label="powers")
        s.emit(special.engine, "exp", target, [target], [ARGUMENT], [POWER], label="powers")


@dataclass(frozen=True, slots=True)
class _Sum:
    """Emits the powers of rows and their sums. power: emits e^(scores - largest) into a tile."""

    s: StreamBuilder
    ops: VectorOps
    order: RowSum
    power: Callable[[StreamBuilder, VectorOps, LocalTile, LocalTile, LocalTile], None]

    def of(self, scores: LocalTile, powers: LocalTile, largest: LocalTile) -> LocalTile:
        """Emit them part by part: a part's arguments come before the sums of the one before. Returns the column of the
        sums.
        """
        rows, lanes = scores.rows, self.order.lanes
        self.ops.op("fill", LocalTile("sums", rows, self.order.width, "fp32"), label="sums")
        steps, pending = deque(self.order.steps), 0
        sources, targets = _parts(scores, lanes), _parts(powers, lanes)
        for number in range(len(targets) + 1):
            if number < len(targets):
                self.power(self.s, self.ops, targets[number], sources[number], largest)
            if not number:
                continue
            before, pending = targets[number - 1], pending + 1
            while steps and steps[0].last < before.col + before.cols:
                if pending:
                    self.ops.wait(Sync(POWER.semaphore, pending))
                    pending = 0
                self._add(powers, steps.popleft())
        return self._met(rows)

    def _add(self, powers: LocalTile, step: SumStep) -> None:
        """Emit a step of the sum."""
        rows, width = powers.rows, self.order.width
        if step.stride == 1:
            some = replace(powers, col=step.column, cols=step.threads, width=powers.cols)
            sums = LocalTile("sums", rows, step.threads, "fp32", col=step.first, width=width)
        else:  # of one row: a column of its vectors
            row, col = divmod(step.column, step.stride)
            some = replace(powers, rows=step.threads, cols=1, row=row, col=col, width=step.stride)
            sums = LocalTile("sums", step.threads, 1, "fp32", row=step.first)
        self.ops.op("add", sums, sums, some, label="sums")

    def _met(self, rows: int) -> LocalTile:
        """Emit the sums of threads: in each warp in halves, then of warps. Returns the column of the sums."""
        lanes, warps = self.order.lanes, self.order.width // self.order.lanes
        self._in_halves("sums", rows * warps, lanes)
        if warps == 1:
            return LocalTile("sums", rows, 1, "fp32", width=lanes)
        sums = LocalTile("sums", rows * warps, 1, "fp32", width=lanes)
        self.ops.op("copy", LocalTile("warps", rows * warps, 1, "fp32"), sums, label="sums")
        self._in_halves("warps", rows, warps)
        return LocalTile("warps", rows, 1, "fp32", width=warps)

    def _in_halves(self, name: str, rows: int, width: int) -> None:
        half = width
        while half > 1:
            half //= 2
            low, high = (LocalTile(name, rows, half, "fp32", col=col, width=width) for col in (0, half))
            self.ops.op("add", low, low, high, label="sums")


def _parts(whole: LocalTile, lanes: int) -> list[LocalTile]:
    """The parts of rows."""
    count = whole.cols
    step = -(-count // (PARTS * lanes)) * lanes
    return [replace(whole, col=start, cols=min(step, count - start), width=count) for start in range(0, count, step)]
