"""The L2 of the engine against a plain model of it, on random tiles of two arrays."""

import random
from collections import OrderedDict

import pytest
from timing_device import ZERO, device, kernel, load, program, store

from hwsim.machines.timing import run
from hwsim.program.ir import GlobalArray

SECTOR = (16, 32)  # rows, bytes
BLOCK = (128, 256)


class PlainL2:
    """Blocks of sectors, least recently used first: {(array, block): {sector: dirty}}.

    replacement "random": of those there are, by the engine's numbers; the last one takes the place of what goes.
    """

    def __init__(self, capacity, shapes, replacement="lru"):
        self.capacity, self.shapes, self.blocks = capacity, shapes, OrderedDict()
        self.read = self.written = self.drawn = 0
        self.places = [] if replacement == "random" else None

    def leaves(self, newest):
        """The block that goes when `newest` has grown."""
        if self.places is None:
            return next(iter(self.blocks))
        while True:
            self.drawn = (self.drawn * 6364136223846793005 + 1442695040888963407) % 2**64
            place = (self.drawn >> 33) % len(self.places)
            if self.places[place] != newest or len(self.places) == 1:
                break
        gone, last = self.places[place], self.places.pop()
        if gone != last:
            self.places[place] = last
        return gone

    def bytes(self, array, sector):
        rows, row_bytes = self.shapes[array]
        return min(16, rows - 16 * sector[0]) * min(32, row_bytes - 32 * sector[1])

    def held(self):
        return sum(self.bytes(key[0], s) for key, block in self.blocks.items() for s in block)

    def access(self, array, row, first_byte, rows, width, write):
        sectors = [
            (r, c)
            for r in range(row // 16, (row + rows - 1) // 16 + 1)
            for c in range(first_byte // 32, (first_byte + width - 1) // 32 + 1)
        ]
        for key in sorted({(array, r // 8, c // 8) for r, c in sectors}):
            block = self.blocks.setdefault(key, {})
            if self.places is not None and key not in self.places:
                self.places.append(key)
            self.blocks.move_to_end(key)
            grown = False
            for s in sectors:
                if (s[0] // 8, s[1] // 8) != key[1:]:
                    continue
                if s not in block:
                    grown = True
                    self.read += 0 if write else self.bytes(array, s)
                block[s] = block.get(s, False) or write
            while grown and self.held() > self.capacity:
                gone = self.leaves(key)
                lost = self.blocks.pop(gone)
                self.written += sum(self.bytes(gone[0], s) for s, dirty in lost.items() if dirty)


@pytest.mark.parametrize("replacement", ["lru", "random"])
@pytest.mark.parametrize("seed", range(8))
def test_traffic_agrees_with_the_plain_model(seed, replacement):
    rng = random.Random(seed)
    arrays = (
        GlobalArray("X", rng.randint(1, 700), rng.randint(1, 900), "fp16"),
        GlobalArray("Y", rng.randint(1, 700), rng.randint(1, 900), "fp32"),
    )
    size = {"X": 2, "Y": 4}
    capacity = rng.choice((512, 10_000, 100_000, 1 << 30))
    plain = PlainL2(capacity, {a.name: (a.rows, a.cols * size[a.name]) for a in arrays}, replacement)
    kernels = []
    for _ in range(150):
        a = rng.choice(arrays)
        rows, cols = rng.randint(1, min(a.rows, 150)), rng.randint(1, min(a.cols, 150))
        row, col, write = rng.randint(0, a.rows - rows), rng.randint(0, a.cols - cols), rng.random() < 0.4
        plain.access(a.name, row, col * size[a.name], rows, cols * size[a.name], write)
        one = (store if write else load)(a.name, rows, cols, ZERO + row, ZERO + col, fmt=a.format)
        kernels.append(kernel((one,)))  # one kernel each: in this order
    dev = device(l2={"capacity_bytes": capacity, "bytes_per_second": 1e12, "replacement": replacement})
    got = run(program(*kernels, arrays=arrays), dev, write_back=True).traffic_bytes
    dirty = sum(
        plain.bytes(key[0], s) for key, block in plain.blocks.items() for s, is_dirty in block.items() if is_dirty
    )
    assert (got.get("HBM read", 0), got.get("HBM write", 0)) == (plain.read, plain.written + dirty)


def reads(cols, count, fetch_bytes=None, order="rows", first=0):
    """HBM bytes read by each of `count` copies beside each other, 64 lines of `cols` fp16 each, in turn.

    first: number of the first of them.
    """
    dev = device(l2={"capacity_bytes": 1 << 30, "bytes_per_second": 1e12}, links__GM_L1__fetch_bytes=fetch_bytes)
    shape = (64, cols, ZERO, lambda i: ZERO + (first + i) * cols)
    found = []
    for n in range(1, count + 1):
        kernels = []
        for i in range(n):
            rows, columns, row, col = shape[0], shape[1], shape[2], shape[3](i)
            if order == "columns":
                rows, columns, row, col = columns, rows, col, row
            kernels.append(kernel((load("X", rows, columns, row, col),)))
        arrays = (GlobalArray("X", 600, 600, "fp16", order),)
        found.append(run(program(*kernels, arrays=arrays), dev).traffic_bytes["HBM read"])
    return [after - before for before, after in zip([0, *found], found, strict=False)]


@pytest.mark.parametrize("order", ["rows", "columns"])
def test_a_miss_fetches_whole_pieces_of_a_row(order):
    line = 64 * 32
    assert reads(16, 5, None, order) == [line] * 5
    assert reads(16, 5, 64, order) == [2 * line, 0, 2 * line, 0, 2 * line]
    assert reads(16, 5, 128, order) == [4 * line, 0, 0, 0, 4 * line]
    assert reads(64, 2, 128, order) == [4 * line, 4 * line]
    assert reads(16, 4, 128, order, first=2) == [4 * line, 0, 4 * line, 0]


def test_pieces_end_with_the_row():
    """600 fp16 are 1200 bytes: the last piece of 128 has 48, and its second sector 16."""
    dev = device(l2={"capacity_bytes": 1 << 30, "bytes_per_second": 1e12}, links__GM_L1__fetch_bytes=128)
    arrays = (GlobalArray("X", 16, 600, "fp16"),)
    last = kernel((load("X", 16, 8, ZERO, ZERO + 576),))
    assert run(program(last, arrays=arrays), dev).traffic_bytes["HBM read"] == 16 * 48


@pytest.mark.parametrize("capacity", [40_000, 120_000, 1 << 30])
def test_many_more_accesses_than_are_kept(capacity):
    """5000 tiles in one kernel, some of them written before: what nothing is left of is forgotten now and then."""
    rng = random.Random(capacity)
    arrays = (GlobalArray("X", 512, 1024, "fp16"), GlobalArray("Y", 64, 64, "fp32"))
    plain = PlainL2(capacity, {"X": (512, 2048), "Y": (64, 256)})
    written, tiles = (0, 0, 256, 256), []
    for _ in range(5000):
        rows, cols = rng.choice(((16, 64), (128, 16), (48, 200), (1, 1)))
        tiles.append((rng.randrange(512 - rows), rng.randrange(1024 - cols), rows, cols))
    plain.access("X", 0, 0, 256, 512, True)
    for row, col, rows, cols in tiles:
        plain.access("X", row, 2 * col, rows, 2 * cols, False)
    kernels = [
        kernel((store("X", *written[2:]),)),
        kernel(tuple(load("X", rows, cols, ZERO + row, ZERO + col) for row, col, rows, cols in tiles)),
    ]
    dev = device(l2={"capacity_bytes": capacity, "bytes_per_second": 1e12})
    got = run(program(*kernels, arrays=arrays), dev).traffic_bytes
    assert (got["HBM read"], got.get("HBM write", 0)) == (plain.read, plain.written)


@pytest.mark.parametrize("capacity", [100_000, 300_000, 700_000])
def test_lines_of_blocks(capacity):
    """Strips across an array of 1 MiB and down it: some blocks of a line are there, others go to make room for it."""
    rng = random.Random(capacity)
    arrays = (GlobalArray("X", 1024, 512, "fp16"), GlobalArray("Y", 1024, 512, "fp16"))
    plain = PlainL2(capacity, {a.name: (1024, 1024) for a in arrays})
    kernels = []
    for _ in range(120):
        rows, cols = rng.choice(((1024, 64), (512, 128), (64, 512), (128, 256), (384, 64), (256, 512)))
        row, col = rng.randrange(0, 1025 - rows, 64), rng.randrange(0, 513 - cols, 64)
        array, write = rng.choice("XY"), rng.random() < 0.2
        plain.access(array, row, 2 * col, rows, 2 * cols, write)
        kernels.append(kernel(((store if write else load)(array, rows, cols, ZERO + row, ZERO + col),)))
    dev = device(
        l2={"capacity_bytes": capacity, "bytes_per_second": 1e12},
        memories__L1__capacity_bytes=1 << 20,
        memories__UB__capacity_bytes=1 << 20,
    )
    got = run(program(*kernels, arrays=arrays), dev).traffic_bytes
    assert (got.get("HBM read", 0), got.get("HBM write", 0)) == (plain.read, plain.written)


@pytest.mark.parametrize("replacement", ["lru", "random"])
@pytest.mark.parametrize("seed", range(4))
def test_lines_touched_again(seed, replacement):
    """A few lines of blocks that overlap and cross, some cut by the array's edge, each touched many times."""
    rng = random.Random(seed)
    arrays = (
        GlobalArray("X", 1024, 512, "fp16"),
        GlobalArray("Y", rng.randint(900, 1024), rng.randint(400, 512), "fp16"),
    )
    capacity = rng.choice((60_000, 200_000, 600_000, 1_200_000))
    plain = PlainL2(capacity, {a.name: (a.rows, 2 * a.cols) for a in arrays}, replacement)
    lines, kernels = [], []
    for _ in range(10):
        a = rng.choice(arrays)
        rows, cols = rng.choice(((768, 64), (512, 64), (64, 256), (128, 384), (16, 400), (200, 130)))
        lines.append((a, rows, cols, rng.randrange(0, a.rows - rows + 1, 16), rng.randrange(0, a.cols - cols + 1, 16)))
    for _ in range(200):
        a, rows, cols, row, col = rng.choice(lines)
        beside = rng.choice((0, 0, 64))  # other sectors, or blocks
        col, write = min(col + beside, a.cols - cols), rng.random() < 0.2
        plain.access(a.name, row, 2 * col, rows, 2 * cols, write)
        kernels.append(kernel(((store if write else load)(a.name, rows, cols, ZERO + row, ZERO + col),)))
    dev = device(
        l2={"capacity_bytes": capacity, "bytes_per_second": 1e12, "replacement": replacement},
        memories__L1__capacity_bytes=1 << 20,
        memories__UB__capacity_bytes=1 << 20,
    )
    got = run(program(*kernels, arrays=arrays), dev).traffic_bytes
    assert (got.get("HBM read", 0), got.get("HBM write", 0)) == (plain.read, plain.written)


def test_more_blocks_than_the_table_begins_with():
    """4096 x 4096 in two arrays is 2048 blocks; all stay, and are found again."""
    dev = device(l2={"capacity_bytes": 1 << 30, "bytes_per_second": 1e12})
    body = (load("X", 4096, 4096), load("Y", 4096, 4096))
    assert run(program(kernel(body + body)), dev).traffic_bytes["HBM read"] == 2 * 4096 * 4096 * 2


@pytest.mark.parametrize("row", [0, 32, 128, 224])
def test_what_a_view_shows_twice_comes_from_hbm_once(row):
    """256 rows that show 128: half of what is loaded misses, and takes the link twice as long, wherever it lies."""
    arrays = (GlobalArray("X", 128, 64, "fp16"), GlobalArray("V", 256, 64, "fp16", of="X", reads=128 * 64))
    l2 = {"capacity_bytes": 1 << 30, "bytes_per_second": 1e12}
    dev = device(l2=l2, links__GM_L1__bytes_per_cycle=96.0, links__GM_L1__miss_factor=2.0)
    got = run(program(kernel((load("V", 32, 64, ZERO + row),)), arrays=arrays), dev)
    assert got.traffic_bytes["HBM read"] == 32 * 128 / 2
    assert got.cycles == 1 + 64  # 4096 bytes at 64 a cycle, not 96
