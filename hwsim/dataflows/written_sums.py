"""The program of one fp32 product on CUDA cores whose order of summation is written out: chains over chosen elements of
K, and reductions of their results, as matrix-vector kernels and kernels that cut K by threads have them.

Each chain has a sum of its own in registers, to which the unit adds its elements of K in order; then lanes add sums.
The module knows the order as data, tiles and engines; it knows no library and chooses no order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hwsim.dataflows.elementwise import matrices_of
from hwsim.dataflows.vector_ops import VectorOps, bytes_of, link_engine, vector_of
from hwsim.devices import instruction
from hwsim.errors import UnsupportedError
from hwsim.gemm.record import Gemm
from hwsim.gemm.schedule import Schedule
from hwsim.gemm.summation import Chain, Reduction
from hwsim.host.multiples import round_up
from hwsim.program.builder import KernelBuilder, Ring, Span, StreamBuilder, blocks_of_share, distribute
from hwsim.program.ir import Affine, GlobalArray, GlobalTile, Kernel, LocalTile, Program, Sync

if TYPE_CHECKING:
    from hwsim.devices.device import Device

FORMAT = "fp32"
ROWS, COLS = 8, 32  # of a tile of C, at most: a thread of a warp for each column
DEPTH = 64  # of K that is loaded at a time, at most
SLOTS = 2
A, B, FREE, DONE, RESULT = Ring("A.load"), Ring("B.load"), Sync("acc.free"), Sync("acc.full"), Sync("out.full")


def refuses(gemm: Gemm) -> str:
    """Why a record has no program here, in words; empty where it has one."""
    schedule, epilogue = gemm.schedule, gemm.epilogue
    if schedule.sum is None:
        return "its order of summation is not written out"
    plain = Schedule(sum=schedule.sum, instruction=schedule.instruction, shape=schedule.shape)
    others = ("slice_k", "promotion_k", "k_permutation", "operand_rounding", "start", "regions", "tile_k")
    is_plain = all(getattr(schedule, name) == getattr(plain, name) for name in others) and schedule.split_k == 1
    is_bare = (epilogue.alpha, epilogue.beta or 0.0) == (1.0, 0.0) and gemm.problem.bias is None
    if not (is_plain and is_bare and gemm.output == FORMAT and gemm.single.is_one_term):
        return "only a plain product of fp32 has a program with a written-out order"
    return _refuses_tree(schedule.sum)


def _refuses_tree(node: Chain | Reduction) -> str:
    if isinstance(node, Chain):
        spans = [span for part in node.ranges for span in part.spans()]
        return "" if spans == sorted(spans) else "a chain of its order goes back along K"
    if node.format not in (None, FORMAT) or node.stored not in (None, FORMAT):
        return f"its sums are rounded to {node.format or node.stored} between"
    if node.start != "first":
        return "its sums begin at zero"
    return next(filter(None, map(_refuses_tree, node.parts)), "")


def written_sum_program(gemm: Gemm, device: Device) -> Program:
    """The program of a stack of products: A (matrices x m, k), B (matrices x k, n), C (matrices x m, n).

    Raises UnsupportedError where `refuses` says why, or no tile fits into registers.
    """
    reason = refuses(gemm)
    if reason:
        raise UnsupportedError(reason)
    (m, n, k), matrices = gemm.problem.sizes, gemm.problem.matrices
    layouts = [operand.layout for operand in gemm.problem.operands]
    a = GlobalArray("A", matrices * m, k, FORMAT, layouts[0])
    b = GlobalArray("B", matrices * k, n, FORMAT, layouts[1])
    c = GlobalArray("C", matrices * m, n, FORMAT)
    return Program((a, b, c), (_WrittenSum(gemm, device).kernel(),), ("A", "B"), "C")


@dataclass(frozen=True, slots=True)
class _Parts:
    """The chains of a tree in order; each has rows of its own in the sums, by its number."""

    chains: tuple[Chain, ...]

    @classmethod
    def of(cls, node: Chain | Reduction) -> _Parts:
        return cls(tuple(_chains(node)))

    def spans(self, first: int, last: int) -> Iterator[tuple[int, int, int, bool]]:
        """(chain, start, stop, whether the chain begins there) of the elements of K from `first` to before `last`."""
        for number, chain in enumerate(self.chains):
            begin = None
            for start, stop in (span for part in chain.ranges for span in part.spans()):
                begin = start if begin is None else begin
                low, high = max(start, first), min(stop, last)
                if low < high:
                    yield number, low, high, low == begin


def _chains(node: Chain | Reduction) -> Iterator[Chain]:
    if isinstance(node, Chain):
        yield node
        return
    for part in node.parts:
        yield from _chains(part)


class _WrittenSum:
    """Emits the kernel."""

    def __init__(self, gemm: Gemm, device: Device) -> None:
        self.gemm, self.device = gemm, device
        self.m, self.n, self.k = gemm.problem.sizes
        self.tree = gemm.schedule.sum
        assert self.tree is not None  # else refused
        self.parts, self.unit = _Parts.of(self.tree), instruction(device, gemm.unit)
        self.vector = vector_of(device)
        self.rows, self.cols, self.depth = min(ROWS, self.m), min(COLS, self.n), min(DEPTH, self.k)

    def kernel(self) -> Kernel:
        """The kernel: blocks of columns, or whole matrices where there are more, dealt to the cores in turn."""
        memory = self.device.memories[self.vector.memory]
        kernel, size = KernelBuilder("written_sum"), bytes_of(FORMAT)

        def up(elements: int) -> int:
            return round_up(elements * size, memory.align_bytes)

        sums = up(len(self.parts.chains) * self.rows * self.cols)
        slots = up(self.rows * self.depth), up(self.depth * self.cols)
        used = sums + SLOTS * sum(slots)
        if used > memory.capacity_bytes:
            raise UnsupportedError(
                f"its {len(self.parts.chains)} chains take {used:,} bytes of {self.vector.memory}, which has "
                f"{memory.capacity_bytes:,}"
            )
        kernel.ring(A.name, self.vector.memory, SLOTS, slots[0])
        kernel.ring(B.name, self.vector.memory, SLOTS, slots[1])
        kernel.buffer("acc", self.vector.memory, 1, sums)
        for sync, initial in ((DONE, 0), (RESULT, 0), (FREE, 1)):
            kernel.semaphore(sync.semaphore, initial)
        matrices, cores = self.gemm.problem.matrices, self.device.cores
        by_matrix = matrices > -(-self.n // self.cols)
        extent, block = (matrices, 1) if by_matrix else (self.n, self.cols)
        for share in distribute(extent, block, cores):
            stream = StreamBuilder("main")
            for span in blocks_of_share(stream, "block", share, block, cores):
                if by_matrix:
                    for col in stream.blocks("columns", self.n, self.cols):
                        self._column(stream, span.start, col)
                else:
                    for matrix in matrices_of(stream, matrices):
                        self._column(stream, matrix, span)
            kernel.group(share.first, share.count, stream)
        return kernel.finish()

    def _column(self, s: StreamBuilder, matrix: Affine, col: Span) -> None:
        for row in s.blocks("rows", self.m, self.rows):
            self._tile(s, matrix, row, col)

    def _tile(self, s: StreamBuilder, matrix: Affine, row: Span, col: Span) -> None:
        """Emit a tile of C of one matrix."""
        load = link_engine(self.device, "GM", self.vector.memory)
        ops = VectorOps(s, self.vector.engine)
        ops.wait(FREE)
        ops.op("fill", self._sums(range(len(self.parts.chains)), row, col), label="sums")
        for first in range(0, self.k, self.depth):
            depth = min(self.depth, self.k - first)
            a, b = A.tile("push", row.size, depth, FORMAT), B.tile("push", depth, col.size, FORMAT)
            places = (
                GlobalTile("A", matrix * self.m + row.start, Affine(first), row.size, depth),
                GlobalTile("B", matrix * self.k + first, col.start, depth, col.size),
            )
            for ring, tile, place in ((A, a, places[0]), (B, b, places[1])):
                s.emit(load, "copy", tile, [place], [ring.free], [ring.full], label=ring.name[0])
                s.pushed(ring)
            self._chunk(s, ops, row, col, first, depth)
            for ring in (A, B):
                s.popped(ring)
        self._store(s, ops, matrix, row, col)

    def _chunk(self, s: StreamBuilder, ops: VectorOps, row: Span, col: Span, first: int, depth: int) -> None:
        """Emit the products of a part of K."""
        waits, spans = [A.full, B.full], list(self.parts.spans(first, first + depth))
        for chain, start, stop, begins in spans:
            some = stop - start
            a = self._in_slot(A, row.size, some, col=start - first, width=depth)
            b = self._in_slot(B, some, col.size, row=start - first, width=col.size)
            target = self._sums(range(chain, chain + 1), row, col)
            zero_at = () if begins else None
            label = "product"
            s.emit(
                self.unit.engine, "mma", target, [a, b], waits, (), unit=self.gemm.unit, zero_at=zero_at, label=label
            )
            waits = []
        s.emit(self.unit.engine, "sync", None, (), waits, [A.free, B.free, DONE])
        ops.wait(DONE)

    @staticmethod
    def _in_slot(ring: Ring, rows: int, cols: int, row: int = 0, col: int = 0, width: int = 0) -> LocalTile:
        whole = ring.tile("pop", rows, cols, FORMAT)
        return LocalTile(whole.buffer, rows, cols, FORMAT, whole.slot, row=row, col=col, width=width)

    def _sums(self, chains: range, row: Span, col: Span) -> LocalTile:
        """The sums of chains behind one another."""
        return LocalTile("acc", len(chains) * row.size, col.size, FORMAT, row=chains.start * row.size, width=col.size)

    def _store(self, s: StreamBuilder, ops: VectorOps, matrix: Affine, row: Span, col: Span) -> None:
        """Emit the reductions, and the store of the tile."""
        assert self.tree is not None  # else refused
        place, _ = self._reduced(ops, self.tree, 0, row, col)
        ops.signal(RESULT)
        target = GlobalTile("C", matrix * self.m + row.start, col.start, row.size, col.size)
        tile, engine = self._sums(range(place, place + 1), row, col), link_engine(self.device, self.vector.memory, "GM")
        s.emit(engine, "copy", target, [tile], [RESULT], [FREE], label="C")

    def _reduced(self, ops: VectorOps, node: Chain | Reduction, first: int, row: Span, col: Span) -> tuple[int, int]:
        """Emit the sum of a node, whose first chain has the number `first`; returns the chain in whose place it is, and
        the number of the chain behind.
        """
        if isinstance(node, Chain):
            return first, first + 1
        places, behind = [], first
        for part in node.parts:
            place, behind = self._reduced(ops, part, behind, row, col)
            places.append(place)
        if isinstance(node.order, tuple):
            places = [places[index] for index in node.order]
        elif node.order == "descending":
            places = places[::-1]
        for left, right in _pairs(places, node.order):
            self._add(ops, left, right, row, col)
        return places[0], behind

    def _add(self, ops: VectorOps, left: range, right: range, row: Span, col: Span) -> None:
        low, high = self._sums(left, row, col), self._sums(right, row, col)
        ops.op("add", low, low, high, label="sums")


def _pairs(places: Sequence[int], order: object) -> Iterator[tuple[range, range]]:
    """Which places are added to which, one step after the other; those behind one another at once."""
    left = list(places)
    while len(left) > 1:
        if order == "halving":
            half = 1 << ((len(left) - 1).bit_length() - 1)
            pairs, left = list(zip(left, left[half:], strict=False)), left[:half]
        elif order == "pairwise":
            pairs, left = list(zip(left[0::2], left[1::2], strict=False)), left[0::2]
        else:
            pairs, left = [(left[0], left[1])], [left[0], *left[2:]]
        yield from _runs(pairs)


def _runs(pairs: Sequence[tuple[int, int]]) -> Iterator[tuple[range, range]]:
    """Pairs whose places are behind one another, joined."""
    start = 0
    for at in range(1, len(pairs) + 1):
        is_next = at < len(pairs) and pairs[at] == (pairs[at - 1][0] + 1, pairs[at - 1][1] + 1)
        if not is_next:
            (low, high), count = pairs[start], at - start
            yield range(low, low + count), range(high, high + count)
            start = at
