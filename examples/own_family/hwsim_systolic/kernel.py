"""The kernel of one sum of products: tiles of C, folds of K, weights in and rows through."""

from __future__ import annotations

from dataclasses import dataclass

from hwsim.dataflows.elementwise import bytes_of, link_engine
from hwsim.dataflows.term_kernels import PieceStages
from hwsim.devices import instruction
from hwsim.devices.device import Device
from hwsim.errors import InputError, UnsupportedError
from hwsim.program.builder import KernelBuilder, Ring, Span, StreamBuilder, blocks_of_share, distribute
from hwsim.program.ir import GlobalArray, GlobalTile, Kernel

A, B, WEIGHTS, SUMS = Ring("A"), Ring("B"), Ring("W"), Ring("S")
SLOTS = 2  # of A, B and sums: transfers run beside the array


@dataclass(frozen=True, slots=True)
class Array:
    """What the dataflow reads from a device. rows, cols: of PEs, K and N. memory, pe, acc: of A and B, weights, C."""

    unit: str
    engine: str
    rows: int
    cols: int
    memory: str
    pe: str
    acc: str
    weights_bytes: int

    @classmethod
    def of(cls, device: Device, unit: str) -> Array:
        """The array behind the instruction `unit`. Raises UnsupportedError where its operands have not a place each."""
        model = instruction(device, unit)
        places = [model.places(operand) for operand in range(3)]
        if any(len(place) != 1 for place in places):
            raise UnsupportedError(f"device {device.name}: {unit} needs `memories`, one each for A, B and C")
        memory, pe, acc = (place[0] for place in places)
        return cls(unit, model.engine, model.k, model.n, memory, pe, acc, model.k * model.n * bytes_of(model.b))

    def most_rows(self, device: Device, weight_tiles: int) -> int:
        """Rows of A in a tile, at most. Raises InputError for more tiles of weights than the PEs hold."""
        room = {name: memory.capacity_bytes for name, memory in device.memories.items()}
        if room[self.pe] < weight_tiles * self.weights_bytes:
            most = room[self.pe] // self.weights_bytes
            raise InputError(f"weight_tiles = {weight_tiles}; allowed: at most {most} ({self.pe} of {device.name})")
        row = self.weights_bytes // self.cols, self.cols * bytes_of(instruction(device, self.unit).d)
        return min((room[self.memory] // SLOTS - self.weights_bytes) // row[0], room[self.acc] // SLOTS // row[1])


@dataclass(frozen=True, slots=True)
class FoldKernel:
    """target = the sum of the products of pieces of A and B: stage after stage over all of K, in a stage fold by fold.

    rows: of A in a tile. weight_tiles: tiles of B in the PEs.
    """

    name: str
    device: Device
    array: Array
    rows: int
    weight_tiles: int
    stages: PieceStages
    target: GlobalArray

    def kernel(self) -> Kernel:
        """The device kernel, on as many arrays as there are columns of tiles."""
        kernel, array, cores = KernelBuilder(self.name), self.array, self.device.cores
        a_bytes = self.rows * self.array.weights_bytes // array.cols
        sum_bytes = self.rows * array.cols * bytes_of(self.target.format)
        for ring, memory, slots, slot_bytes in (
            (A, array.memory, SLOTS, a_bytes),
            (B, array.memory, SLOTS, array.weights_bytes),
            (WEIGHTS, array.pe, self.weight_tiles, array.weights_bytes),
            (SUMS, array.acc, SLOTS, sum_bytes),
        ):
            kernel.buffer(ring.name, memory, slots, slot_bytes)
            kernel.semaphore(ring.free.semaphore, slots)
            # Rows are handed over as they come, but for weights, which have to be there before the first row.
            kernel.semaphore(ring.full.semaphore, pieces=ring is not WEIGHTS)
        for share in distribute(self.target.cols, array.cols, cores):
            stream = StreamBuilder("main")
            for cols in blocks_of_share(stream, "n", share, array.cols, cores):
                for rows in stream.blocks("m", self.target.rows, self.rows):
                    self._tile(stream, rows, cols)
            kernel.group(share.first, share.count, stream)
        return kernel.finish()

    def _tile(self, stream: StreamBuilder, rows: Span, cols: Span) -> None:
        """One tile of C: all folds into one slot of sums, then out."""
        engine, out = self.array.engine, self.target
        store = link_engine(self.device, self.array.acc, "GM")
        stream.emit(engine, "sync", waits=[SUMS.free])
        for s, stage in enumerate(self.stages):
            for fold in stream.blocks("k", stage[0][0].cols, self.array.rows):
                for p, (a, b) in enumerate(stage):
                    is_first = s == p == fold.start.constant == 0
                    zero_at = ((fold.loop,) if fold.loop else ()) if is_first else None
                    self._fold(stream, (a, b), (rows, cols, fold), zero_at)
        stream.emit(engine, "sync", signals=[SUMS.full])
        stream.pushed(SUMS)
        place = GlobalTile(out.name, rows.start, cols.start, rows.size, cols.size)
        made = SUMS.tile("pop", rows.size, cols.size, out.format)
        stream.emit(store, "copy", place, [made], [SUMS.full], [SUMS.free], label="sums")
        stream.popped(SUMS)

    def _fold(
        self,
        stream: StreamBuilder,
        product: tuple[GlobalArray, GlobalArray],
        spans: tuple[Span, Span, Span],
        zero_at: tuple[str, ...] | None,
    ) -> None:
        """Weights from memory into the PEs, then rows of A past them."""
        (rows, cols, fold), array, format = spans, self.array, product[0].format
        load, shift = (link_engine(self.device, *ends) for ends in (("GM", array.memory), (array.memory, array.pe)))
        for ring, source, (one, two) in ((B, product[1], (fold, cols)), (A, product[0], (rows, fold))):
            place = GlobalTile(source.name, one.start, two.start, one.size, two.size)
            near = ring.tile("push", one.size, two.size, format)
            stream.emit(load, "copy", near, [place], [ring.free], [ring.full], label=ring.name)
            stream.pushed(ring)
        shape = fold.size, cols.size, format
        waits, signals = [B.full, WEIGHTS.free], [B.free, WEIGHTS.full]
        stream.emit(shift, "copy", WEIGHTS.tile("push", *shape), [B.tile("pop", *shape)], waits, signals, label="fill")
        stream.pushed(WEIGHTS)
        sums = SUMS.tile("push", rows.size, cols.size, self.target.format)
        operands = [A.tile("pop", rows.size, fold.size, format), WEIGHTS.tile("pop", *shape)]
        waits, signals = [A.full, WEIGHTS.full], [A.free, WEIGHTS.free]
        stream.emit(
            array.engine, "mma", sums, operands, waits, signals, unit=array.unit, zero_at=zero_at, label="stream"
        )
        for ring in (A, B, WEIGHTS):
            stream.popped(ring)
