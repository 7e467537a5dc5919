"""The kernel of a softmax of whole rows: the largest, powers, their sum in the order of PyTorch's kernels, the quotient.

It knows the order of the sum, the lanes and the special functions; it knows no product and no attention.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hwsim.dataflows.vector_ops import VectorOps, link_engine, vector_of
from hwsim.errors import UnsupportedError
from hwsim.gemm.softmax_sums import WORD, RowSum, SoftmaxKernels, Step
from hwsim.program.builder import KernelBuilder, Ring, Span, StreamBuilder, blocks_of_share, distribute
from hwsim.program.ir import ZERO, GlobalArray, GlobalTile, Kernel, LocalTile, Sync, one_of

if TYPE_CHECKING:
    from hwsim.devices.device import Device

PARTS = 4  # of a row, whose powers are computed behind one another, so that lanes and special functions overlap
SLOTS = 2  # of rows: one is loaded or stored while the lanes have the other
ROWS, ARGUMENT, POWER, RESULT = Ring("rows"), one_of("argument"), one_of("power"), one_of("result")
INFINITY = float("inf")


def refuses(count: int, kernels: SoftmaxKernels) -> str:
    """Why rows of so many elements have no kernel, in words; empty where they have one."""
    kinds = kernels.kinds(count)
    if kinds > 1:
        return f"rows of {count} elements are added in {kinds} orders by turns, because no vector divides them"
    return ""


def softmax_kernel(source: GlobalArray, target: GlobalArray, kernels: SoftmaxKernels, device: Device) -> Kernel:
    """The kernel target = softmax(source) of the rows of fp32 arrays, on all cores.

    Raises UnsupportedError where a row does not fit into the memory of the lanes.
    """
    return _RowSoftmax(source, target, kernels, kernels.row_sum(source.cols), device).kernel()


@dataclass(frozen=True, slots=True)
class _RowSoftmax:
    """Emits the kernel. order: of a row's sum."""

    source: GlobalArray
    target: GlobalArray
    kernels: SoftmaxKernels
    order: RowSum
    device: Device

    @property
    def _keeps_scores(self) -> bool:
        """Whether powers have a place of their own, because the last part of the kernel computes them anew."""
        count = self.source.cols
        return count > self.kernels.most and self.kernels.reads(count) == 1

    def kernel(self) -> Kernel:
        memory_name = vector_of(self.device).memory
        memory = self.device.memories[memory_name]
        count, align = self.source.cols, memory.align_bytes
        warps = self.order.width // self.order.lanes
        per_row = (self._keeps_scores * count + self.order.width + warps + 1) * WORD
        capacity = memory.capacity_bytes - (4 + SLOTS) * align
        slots = SLOTS if capacity >= SLOTS * count * WORD + per_row else 1
        rows = min(capacity // (slots * count * WORD + per_row), -(-self.source.rows // self.device.cores))
        if not rows:
            raise UnsupportedError(
                f"attention: the softmax of rows of {count:,} elements has no program on {self.device.name}: a row "
                f"and its sums take {count * WORD + per_row:,} bytes of {memory_name}, which has {capacity:,}"
            )
        if any(step.stride > 1 for step in self.order.steps):
            rows = 1  # of which a column of vectors is one tile
        kernel = KernelBuilder(self.kernels.name(count))
        kernel.ring(ROWS.name, memory_name, slots, _up(rows * count * WORD, align))
        sizes = {"largest": 1, "sums": self.order.width, "warps": warps, "powers": count * self._keeps_scores}
        for name, columns in sizes.items():
            if columns:
                kernel.buffer(name, memory_name, 1, _up(rows * columns * WORD, align))
        for sync in (ARGUMENT, POWER, RESULT):
            kernel.semaphore(sync.semaphore)
        cores = self.device.cores
        for share in distribute(self.source.rows, rows, cores):
            stream = StreamBuilder("main")
            for span in blocks_of_share(stream, "rows", share, rows, cores):
                self._rows(stream, span)
            kernel.group(share.first, share.count, stream)
        return kernel.finish()

    def _rows(self, s: StreamBuilder, span: Span) -> None:
        """Emit the softmax of a block of rows."""
        vector = vector_of(self.device)
        ops, rows, count = VectorOps(s, vector.engine), span.size, self.source.cols
        reads_again, keeps = self.kernels.reads(count) > 1, self._keeps_scores
        largest = LocalTile("largest", rows, 1, "fp32")
        scores = self._loaded(s, ops, span)
        ops.op("fill", largest, scalar=-INFINITY, label="largest")
        ops.op("reduce_largest", largest, scores, largest, label="largest")
        if reads_again:
            scores = self._next(s, ops, span)
        powers = LocalTile("powers", rows, count, "fp32") if keeps else scores
        total = self._sum(s, ops, scores, powers, largest)
        if reads_again:
            scores = self._next(s, ops, span)
        if reads_again or keeps:
            for part in self._parts(scores):
                self._power(s, ops, part, part, largest)
                ops.wait(POWER)
                ops.op("divide", part, part, total, label="quotient")
        else:
            ops.op("divide", scores, scores, total, label="quotient")
        ops.signal(RESULT)
        place = GlobalTile(self.target.name, span.start, ZERO, rows, count)
        s.emit(link_engine(self.device, vector.memory, "GM"), "copy", place, [scores], [RESULT], [ROWS.free])
        s.popped(ROWS)

    def _loaded(self, s: StreamBuilder, ops: VectorOps, span: Span) -> LocalTile:
        """Emit the load of a block of rows, for which the next instruction of the lanes waits."""
        rows, count = span.size, self.source.cols
        engine = link_engine(self.device, "GM", vector_of(self.device).memory)
        place = GlobalTile(self.source.name, span.start, ZERO, rows, count)
        s.emit(engine, "copy", ROWS.tile("push", rows, count, "fp32"), [place], [ROWS.free], [ROWS.full])
        s.pushed(ROWS)
        ops.wait(ROWS.full)
        return ROWS.tile("pop", rows, count, "fp32")

    def _next(self, s: StreamBuilder, ops: VectorOps, span: Span) -> LocalTile:
        """Emit another load of the same rows, once they are no longer needed."""
        ops.signal(ROWS.free)
        s.popped(ROWS)
        return self._loaded(s, ops, span)

    def _parts(self, whole: LocalTile) -> list[LocalTile]:
        """The parts of rows."""
        lanes, count = self.order.lanes, whole.cols
        step = -(-count // (PARTS * lanes)) * lanes
        return [
            replace(whole, col=start, cols=min(step, count - start), width=count) for start in range(0, count, step)
        ]

    def _power(
        self, s: StreamBuilder, ops: VectorOps, target: LocalTile, scores: LocalTile, largest: LocalTile
    ) -> None:
        """Emit e^(scores - largest) into a tile; a signal of POWER says that it is there."""
        special = self.device.special
        assert special is not None  # else refused before
        ops.op("sub", target, scores, largest, signals=[ARGUMENT], label="powers")
        s.emit(special.engine, "exp", target, [target], [ARGUMENT], [POWER], label="powers")

    def _sum(
        self, s: StreamBuilder, ops: VectorOps, scores: LocalTile, powers: LocalTile, largest: LocalTile
    ) -> LocalTile:
        """Emit the powers of rows and their sums, part by part: a part's arguments come before the sums of the one
        before. Returns the column of the sums.
        """
        rows, width = scores.rows, self.order.width
        ops.op("fill", LocalTile("sums", rows, width, "fp32"), label="sums")
        steps, pending, ready = list(self.order.steps), 0, 0
        targets = self._parts(powers)
        for number in range(len(targets) + 1):
            if number < len(targets):
                self._power(s, ops, targets[number], self._parts(scores)[number], largest)
            if number:
                before = targets[number - 1]
                pending, ready = pending + 1, before.col + before.cols
            while steps and steps[0].column + (steps[0].count - 1) * steps[0].stride < ready:
                if pending:
                    ops.wait(Sync(POWER.semaphore, pending))
                    pending = 0
                self._add(ops, powers, steps.pop(0))
        return self._met(ops, rows)

    def _add(self, ops: VectorOps, powers: LocalTile, step: Step) -> None:
        """Emit a step of the sum."""
        rows, width = powers.rows, self.order.width
        if step.stride == 1:
            some = replace(powers, col=step.column, cols=step.count, width=powers.cols)
            sums = LocalTile("sums", rows, step.count, "fp32", col=step.thread, width=width)
        else:  # of one row: a column of its vectors
            row, col = divmod(step.column, step.stride)
            some = replace(powers, rows=step.count, cols=1, row=row, col=col, width=step.stride)
            sums = LocalTile("sums", step.count, 1, "fp32", row=step.thread)
        ops.op("add", sums, sums, some, label="sums")

    def _met(self, ops: VectorOps, rows: int) -> LocalTile:
        """Emit the sums of threads: in each warp in halves, then of warps. Returns the column of the sums."""
        lanes, warps = self.order.lanes, self.order.width // self.order.lanes
        self._in_halves(ops, "sums", rows * warps, lanes)
        if warps == 1:
            return LocalTile("sums", rows, 1, "fp32", width=lanes)
        sums = LocalTile("sums", rows * warps, 1, "fp32", width=lanes)
        ops.op("copy", LocalTile("warps", rows * warps, 1, "fp32"), sums, label="sums")
        self._in_halves(ops, "warps", rows, warps)
        return LocalTile("warps", rows, 1, "fp32", width=warps)

    @staticmethod
    def _in_halves(ops: VectorOps, name: str, rows: int, width: int) -> None:
        half = width
        while half > 1:
            half //= 2
            low, high = (LocalTile(name, rows, half, "fp32", col=col, width=width) for col in (0, half))
            ops.op("add", low, low, high, label="sums")


def _up(value: int, quantum: int) -> int:
    return -(-value // quantum) * quantum
