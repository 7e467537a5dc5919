"""The kernel of a softmax of whole rows: the largest, powers, their sum in the order of PyTorch's kernels, quotients.

It knows the order of the sum, the lanes and the special functions; it knows no product and no attention.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hwsim.dataflows.vector_ops import VectorOps, link_engine, vector_of
from hwsim.errors import UnsupportedError
from hwsim.gemm.softmax_sums import WORD, RowSum, SoftmaxKernels, SumStep
from hwsim.host.multiples import round_up
from hwsim.program.builder import KernelBuilder, Ring, StreamBuilder, blocks_of_share, distribute
from hwsim.program.ir import ZERO, Affine, GlobalArray, GlobalTile, Kernel, LocalTile, one_of

if TYPE_CHECKING:
    from hwsim.devices.device import Device

SLOTS = 2  # of rows: one is loaded or stored while the lanes have the other
ROWS, OUT, ARGUMENT, POWER = Ring("row"), Ring("out"), one_of("argument.full"), one_of("power.full")
RINGS = (ROWS, OUT)
INFINITY = float("inf")


def softmax_kernel(source: GlobalArray, target: GlobalArray, kernels: SoftmaxKernels, device: Device) -> Kernel:
    """The kernel target = softmax(source) of the rows of fp32 arrays, on all cores.

    Raises UnsupportedError where a row does not fit into the memory of the lanes.
    """
    return _RowSoftmax(source, target, kernels, device).kernel()


@dataclass(frozen=True, slots=True)
class _Room:
    """rows: computed at a time. slots: of loaded rows and of results. more: bytes behind a slot's rows, for a row that
    ends inside a vector. sizes: elements a row of the other buffers, by name.
    """

    rows: int
    slots: int
    more: int
    sizes: dict[str, int]


@dataclass(frozen=True, slots=True)
class _RowSoftmax:
    """Emits the kernel."""

    source: GlobalArray
    target: GlobalArray
    kernels: SoftmaxKernels
    device: Device

    @property
    def _has_powers(self) -> bool:
        """Whether powers have a place of their own: the kernel computes them twice of a row that it read once."""
        return self.kernels.computes_again(self.source.cols) and not self._reads_again

    @property
    def _reads_again(self) -> bool:
        """Whether rows are loaded anew for the sum and for the result."""
        return self.kernels.reads(self.source.cols) > 1

    def kernel(self) -> Kernel:
        count, kinds, cores = self.source.cols, self.kernels.kinds(self.source.cols), self.device.cores
        orders = [self.kernels.row_sum(count, kind) for kind in range(kinds)]
        room = self._room(orders)
        kernel = KernelBuilder(self.kernels.name(count))
        self._declare(kernel, room)
        block = room.rows if kinds == 1 else kinds
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

    def _room(self, orders: list[RowSum]) -> _Room:
        """The most rows that fit into the memory of the lanes. Raises UnsupportedError where not one does."""
        name = vector_of(self.device).memory
        memory, count, width = self.device.memories[name], self.source.cols, orders[0].width
        sizes = {"largest": 1, "sums": width, "warps": width // orders[0].lanes}
        if self._has_powers:
            sizes["powers"] = count
        more = self.kernels.vector * WORD
        spare = (len(RINGS) * SLOTS + len(sizes)) * (memory.align_bytes + more)
        for slots in range(SLOTS, 0, -1):
            of_row = (len(RINGS) * slots * count + sum(sizes.values())) * WORD
            rows = (memory.capacity_bytes - spare) // of_row
            if rows > 0:
                break
        else:
            raise UnsupportedError(
                f"attention: the softmax of rows of {count:,} elements has no program on {self.device.name}: a row "
                f"and its sums take {of_row + spare:,} bytes of {name}, which has {memory.capacity_bytes:,}; leave "
                "functional out: bits need no program"
            )
        if any(step.stride > 1 for order in orders for step in order.steps):
            rows = 1  # of which a column of vectors is one tile
        return _Room(min(rows, -(-self.source.rows // self.device.cores)), slots, more, sizes)

    def _declare(self, kernel: KernelBuilder, room: _Room) -> None:
        """Declare buffers and semaphores."""
        name = vector_of(self.device).memory
        align = self.device.memories[name].align_bytes

        def bytes_of_rows(columns: int) -> int:
            return round_up(room.rows * columns * WORD + room.more, align)

        for ring in RINGS:
            kernel.ring(ring.name, name, room.slots, bytes_of_rows(self.source.cols))
        for buffer, columns in room.sizes.items():
            kernel.buffer(buffer, name, 1, bytes_of_rows(columns))
        for sync in (ARGUMENT, POWER):
            kernel.semaphore(sync.semaphore)

    def _rows(self, s: StreamBuilder, start: Affine, rows: int, order: RowSum) -> None:
        """Emit the softmax of rows from `start` on, whose sums have this order."""
        vector = vector_of(self.device)
        ops, count = VectorOps(s, vector.engine), self.source.cols
        largest = LocalTile("largest", rows, 1, "fp32")
        scores = self._loaded(s, ops, start, rows)
        ops.op("fill", largest, scalar=-INFINITY, label="largest")
        ops.op("reduce_largest", largest, scores, largest, label="largest")
        if self._reads_again:
            scores = self._next(s, ops, start, rows)
        powers = LocalTile("powers", rows, count, "fp32") if self._has_powers else scores
        self._power(s, ops, powers, scores, largest)
        total = _Sum(ops, order).of(powers)
        if self._reads_again:
            scores = self._next(s, ops, start, rows)
        result = OUT.tile("push", rows, count, "fp32")
        ops.wait(OUT.free)
        if self.kernels.computes_again(count):
            self._power(s, ops, result, scores, largest)
            powers = result
        ops.op("divide", result, powers, total, label="quotient")
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
        """Emit e^(scores - largest) into a tile, for which the next instruction of the lanes waits."""
        special = self.device.special
        assert special is not None  # else refused before
        ops.op("sub", target, scores, largest, signals=[ARGUMENT], label="powers")
        s.emit(special.engine, "exp", target, [target], [ARGUMENT], [POWER], label="powers")
        ops.wait(POWER)


@dataclass(frozen=True, slots=True)
class _Sum:
    """Emits the sums of rows."""

    ops: VectorOps
    order: RowSum

    def of(self, powers: LocalTile) -> LocalTile:
        """Emit them; returns their column."""
        rows = powers.rows
        self.ops.op("fill", LocalTile("sums", rows, self.order.width, "fp32"), label="sums")
        for step in self.order.steps:
            self._add(powers, step)
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
