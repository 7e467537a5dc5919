"""The functional machine: whole arrays at once, and the bits of one instruction at a time."""

import random
from collections import Counter

import numpy as np
import pytest

import hwsim
from hwsim.api import program as make_program
from hwsim.backend.cpu import CPU, CpuBackend
from hwsim.devices import load
from hwsim.machines import functional, kernel_plan, kernel_values, reference
from hwsim.machines.kernel_values import OVERLAY
from hwsim.program.builder import StreamBuilder
from hwsim.program.ir import (
    Affine,
    Buffer,
    CoreGroup,
    GlobalArray,
    GlobalTile,
    Kernel,
    LocalTile,
    Program,
    Semaphore,
    Sync,
)

CHIP = load("ascend910a")
SIDE, SLOTS, SLOT_BYTES, WIDTH = 20, 3, 1024, 8
DEPTH = 256  # K of the drawn products
FORMATS = {"fp32": 4, "fp16": 2}


class CountingBackend(CpuBackend):
    """The CPU's, which counts products."""

    def __init__(self):
        self.products = 0

    def gemm(self, *arguments, **options):
        self.products += 1
        return CPU.gemm(*arguments, **options)


def lowered(**options):
    return make_program(**options)[::-1]


@pytest.mark.parametrize("size", [128, 512])
def test_products_of_all_tiles_and_cores_share_calls(size):
    prog, chip = lowered(m=size, n=size, k=128, device="h200", scheme="sgemm-cube")
    rng = np.random.default_rng(size)
    inputs = {name: rng.standard_normal((size, 128) if name[0] == "A" else (128, size), np.float32).view(np.uint32)
              for name in prog.inputs}  # fmt: skip
    backend = CountingBackend()
    functional.run(prog, chip, inputs, backend=backend)
    assert 3 <= backend.products <= 8


def test_what_a_kernel_computes_is_known_for_its_next_run(monkeypatch):
    a, b = np.random.default_rng(0).standard_normal((2, 40, 40), np.float32)
    options = {"device": "a100", "scheme": "markidis", "functional": True, "timing": False}
    first = hwsim.run(a, b, **options)
    monkeypatch.setattr(kernel_values, "Coalescer", None)
    assert hwsim.run(a, b, **options).result_sha256 == first.result_sha256
    monkeypatch.setattr(kernel_plan, "_PLANS", kernel_plan.IdentityCache(4, 4))
    with pytest.raises(TypeError):
        hwsim.run(a, b, **options)


class Drawn:
    """A program of random copies, conversions and sums, in one stream, each instruction after the one before.

    Tiles of both formats and of several widths lie over one another in the slots; the output is read again.
    """

    def __init__(self, seed):
        self.rng, self.stream, self.count = random.Random(seed), StreamBuilder("s"), 0
        for _ in range(4):
            self.load("X")
        self.emit("MTE3", "copy", self.tile_of("Y", 0, 0, 1, 1), [LocalTile("u", 1, 1, "fp32")])
        for _ in range(40):
            self.rng.choice((self.load, self.compute, self.compute, self.compute, self.store))()
        for row in range(0, SIDE, 10):
            held = LocalTile("u", 10, 10, "fp32", width=10)
            self.emit("MTE2", "copy", held, [self.tile_of("Y", row, row, 10, 10)])
            self.emit("MTE3", "copy", self.tile_of("Y", row, SIDE - 10 - row, 10, 10), [held])

    def emit(self, engine, opcode, target, sources, **options):
        before, after = Sync(f"turn {self.count}"), Sync(f"turn {self.count + 1}")
        self.stream.emit(engine, opcode, target, sources, [before], [after], **options)
        self.count += 1

    def tile_of(self, array, row, col, rows, cols):
        return GlobalTile(array, Affine(row), Affine(col), rows, cols)

    def local(self, rows, cols, fmt):
        width = self.rng.choice((cols, WIDTH, WIDTH, WIDTH + 3))
        width = max(width, cols)
        most = SLOT_BYTES // (width * FORMATS[fmt]) - rows
        row, col = self.rng.randint(0, min(most, 9)), self.rng.randint(0, width - cols)
        slot = self.rng.randrange(SLOTS)
        return LocalTile("u", rows, cols, fmt, Affine(slot), row, col, width)

    def size(self):
        return self.rng.choice((1, 2, 4, 8)), self.rng.choice((1, 3, 4, 8))

    def load(self, array=None):
        rows, cols = self.size()
        row, col = self.rng.randint(0, SIDE - rows), self.rng.randint(0, SIDE - cols)
        source = self.tile_of(array or self.rng.choice("XY"), row, col, rows, cols)
        self.emit("MTE2", "copy", self.local(rows, cols, "fp32"), [source])

    def store(self):
        rows, cols = self.size()
        row, col = self.rng.randint(0, SIDE - rows), self.rng.randint(0, SIDE - cols)
        self.emit("MTE3", "copy", self.tile_of("Y", row, col, rows, cols), [self.local(rows, cols, "fp32")])

    def compute(self):
        rows, cols = self.size()
        opcode = self.rng.choice(("add", "scale", "cast", "fill", "sub"))
        target = self.local(rows, cols, self.rng.choice(("fp32", "fp16")) if opcode == "cast" else "fp32")
        if opcode == "cast":
            sources = [self.local(rows, cols, "fp16" if target.format == "fp32" else "fp32")]
        else:
            count = {"add": 2, "sub": 2, "scale": 1, "fill": 0}[opcode]
            sources = [self.local(rows, cols, "fp32") for _ in range(count)]
            if sources and self.rng.random() < 0.3:
                sources[0] = target  # in place
        scalar = self.rng.choice((0.0, 0.5, -3.0)) if opcode in ("scale", "fill") else 0.0
        self.emit("V", opcode, target, sources, scalar=scalar, repeat=self.rng.choice((1, 1, 1, 2, 3)))

    def program(self):
        arrays = tuple(GlobalArray(name, SIDE, SIDE, "fp32") for name in "XY")
        group = CoreGroup(0, 1, (self.stream.finish(),))
        turns = tuple(Semaphore(f"turn {i}", int(i == 0)) for i in range(self.count + 1))
        kernel = Kernel("k", (group,), (Buffer("u", "UB", SLOTS, SLOT_BYTES),), turns)
        return Program(arrays, (kernel,), ("X", "Y"), "Y")


@pytest.mark.parametrize("seed", range(60))
def test_tiles_that_overlap_in_bytes_have_the_bits_of_one_instruction_at_a_time(seed):
    prog = Drawn(seed).program()
    data = np.random.default_rng(seed)
    inputs = {name: data.standard_normal((SIDE, SIDE), np.float32).view(np.uint32) for name in "XY"}
    before = {name: codes.copy() for name, codes in inputs.items()}
    got = functional.run(prog, CHIP, inputs)
    assert all(np.array_equal(codes, before[name]) for name, codes in inputs.items())  # inputs stay as they are
    want = reference.run(prog, CHIP, {name: codes.copy() for name, codes in before.items()})
    assert np.array_equal(got, want)


def test_the_drawn_programs_reach_overlays():
    kinds = Counter()
    for seed in range(60):
        prog = Drawn(seed).program()
        values = kernel_values.kernel_values(prog.kernels[0], prog.arrays, tuple(CHIP.engines)).values
        kinds.update(values[:, 0].tolist())
    assert kinds[OVERLAY] > 100


class DrawnChains(Drawn):
    """A program of random products, most of which go on along K where the last one of their accumulator ended; its
    length is often no multiple of the instruction's. Accumulators are read, copied and added between.
    """

    def __init__(self, seed, unit):
        self.rng, self.stream, self.count, self.unit = random.Random(seed), StreamBuilder("s"), 0, unit
        self.at = {}  # of an accumulator: operands' rows and columns, and the next k
        for _ in range(60):
            self.rng.choice((self.product, self.product, self.product, self.product, self.join, self.store))()
        for slot in range(SLOTS):
            self.store(slot)

    def accumulator(self, slot):
        return LocalTile("c", 4, 4, "fp32", Affine(slot))

    def product(self):
        slot = self.rng.randrange(SLOTS)
        k = self.rng.choice((16, 16, 16, 5, 32))
        row, col, at = self.at.get(slot, (0, 0, DEPTH))
        is_new = at + k > DEPTH or self.rng.random() < 0.1
        if is_new:
            row, col, at = self.rng.choice((0, 4, 8)), self.rng.choice((0, 4, 8)), self.rng.choice((0, 16, 3))
        self.at[slot] = row, col, at + k
        a, b = LocalTile("a", 4, k, "fp16"), LocalTile("b", k, 4, "fp16")
        self.emit("MTE2", "copy", a, [self.tile_of("X", row, at, 4, k)])
        self.emit("MTE2", "copy", b, [self.tile_of("Y", at, col, k, 4)])
        zero_at = () if is_new and self.rng.random() < 0.7 else None
        self.emit("M", "mma", self.accumulator(slot), [a, b], unit=self.unit, zero_at=zero_at)

    def join(self):
        first, second, third = (self.accumulator(self.rng.randrange(SLOTS)) for _ in range(3))
        self.rng.choice(
            (
                lambda: self.emit("V", "add", first, [second, third]),
                lambda: self.emit("V", "copy", first, [second]),
            )
        )()

    def store(self, slot=None):
        row = self.rng.randrange(2) * 4 if slot is None else 8 + 4 * slot
        slot = self.rng.randrange(SLOTS) if slot is None else slot
        self.emit("MTE3", "copy", self.tile_of("Z", row, 0, 4, 4), [self.accumulator(slot)])

    def program(self):
        shapes = {"X": (SIDE, DEPTH, "fp16"), "Y": (DEPTH, SIDE, "fp16"), "Z": (SIDE, 4, "fp32")}
        arrays = tuple(GlobalArray(name, *shape) for name, shape in shapes.items())
        turns = tuple(Semaphore(f"turn {i}", int(i == 0)) for i in range(self.count + 1))
        buffers = tuple(Buffer(name, "UB", SLOTS, SLOT_BYTES) for name in "abc")
        return Program(
            arrays, (Kernel("k", (CoreGroup(0, 1, (self.stream.finish(),)),), buffers, turns),), tuple("XYZ"), "Z"
        )


@pytest.mark.parametrize("seed", range(40))
def test_chains_of_any_length_have_the_bits_of_one_instruction_at_a_time(seed):
    prog = DrawnChains(seed, CHIP.native["fp16"]).program()
    data = np.random.default_rng(seed)
    inputs = {
        array.name: (data.standard_normal((array.rows, array.cols)) * 2.0 ** data.integers(-6, 6))
        .astype(array.format.replace("fp", "float"))
        .view(f"u{2 if array.format == 'fp16' else 4}")
        for array in prog.arrays
    }
    got = functional.run(prog, CHIP, inputs)
    assert np.array_equal(got, reference.run(prog, CHIP, inputs))


@pytest.mark.parametrize(("size", "is_worth"), [(48, False), (512, True)])
def test_threads_start_where_they_pay(size, is_worth, monkeypatch):
    started = []
    pool = functional.ThreadPoolExecutor
    monkeypatch.setattr(functional, "ThreadPoolExecutor", lambda count: started.append(count) or pool(count))
    a, b = np.random.default_rng(1).standard_normal((2, size, size), np.float32)
    hwsim.run(a, b, device="ascend910a", scheme="sgemm-cube", functional=True, timing=False, threads=4)
    assert bool(started) is is_worth and set(started) <= {2, 3, 4}


@pytest.mark.parametrize("threads", [2, 5])
def test_threads_change_no_bit(threads):
    a, b = np.random.default_rng(1).standard_normal((2, 300, 300), np.float32)
    options = {"device": "b200", "scheme": "bf16x9", "functional": True, "timing": False}
    alone = hwsim.run(a, b, threads=1, **options)
    assert hwsim.run(a, b, threads=threads, **options).result_sha256 == alone.result_sha256
