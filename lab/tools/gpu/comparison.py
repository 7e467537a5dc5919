"""Products of every dot unit of the device files by the GPU, beside the CPU's kernels: random operands, results that
differ. It knows units and kinds of operands; engine.py is its command.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.backend.cpu import CPU
from hwsim.backend.cuda.device import cupy, to_gpu
from hwsim.backend.cuda.source import loop_of
from hwsim.backend.cuda.unit_programs import product
from hwsim.devices import load
from hwsim.devices.query import dot_spec
from hwsim.formats import code_dtype, format_of
from hwsim.host.places import package_folder
from hwsim.numerics.dot_operands import DotOperands
from hwsim.numerics.units import DotSpec

Codes = NDArray[Any]
SIZES = (512, 2048, 4096)  # rows and columns of a product; blocks of the first one have fewer rows
DEPTHS = (1, 3, 67, 32, 48, 96)
KINDS = ("normal", "finite bits", "wide", "cancelling", "sparse", "all bits")
ROW_STEP = 17  # accumulators come again, so many places on in the next row
SECONDS_OF_A_PRODUCT = 0.2  # at most: where the CPU takes longer, products are smaller


def units(first: Iterable[tuple[str, str]] = ()) -> dict[DotSpec, str]:
    """Every dot unit that the CPU's kernels take, and an instruction that has it. first: instructions (device, name)
    whose units come first; then one unit of each model and pair of operand formats; then the others.
    """
    found = {dot_spec(load(device), name): f"{device} {name}" for device, name in first}
    seen = {_group(spec) for spec in found}
    others: dict[DotSpec, str] = {}
    for file in sorted(Path(str(package_folder("devices"))).glob("*.yaml")):
        device = load(file.stem)
        for instruction in device.matrix_instructions:
            spec = dot_spec(device, instruction)
            if not CPU.takes(spec) or spec in found:
                continue
            if _group(spec) in seen:
                others.setdefault(spec, f"{file.stem} {instruction}")
            else:
                found[spec] = f"{file.stem} {instruction}"
                seen.add(_group(spec))
    return found | others


def _group(spec: DotSpec) -> tuple[str, str, str]:
    return type(spec.unit).__name__, spec.a, spec.b


def drawn(rng: np.random.Generator, name: str, shape: tuple[int, ...], kind: str) -> Codes:
    """Random codes of a format."""
    fmt = format_of(name)
    if fmt.is_integer or kind.endswith("bits"):
        words = rng.integers(0, 1 << 32, shape, np.uint64)
        if fmt.bits > 32:
            words = words << np.uint64(32) | rng.integers(0, 1 << 32, shape, np.uint64)
        codes: Codes = (words & np.uint64((1 << fmt.bits) - 1)).astype(code_dtype(fmt))
        if kind == "finite bits" and not fmt.is_integer:
            is_special = ~np.isfinite(CPU.decode(codes, fmt, np.float64))
            codes[is_special] = 0
        return codes
    values = rng.standard_normal(shape)
    if kind == "wide":
        values *= 2.0 ** rng.integers(-12, 12, shape)
    elif kind == "cancelling":
        values = np.round(values * 4) / 4
    elif kind == "sparse":
        values *= rng.random(shape) < 0.3
    result: Codes = CPU.encode(values, fmt, "RNE", "saturate")
    return result


def in_rows(pool: Codes, size: int, of: Any) -> Codes:
    """Accumulators of a product, as a view. of: NumPy or CuPy."""
    strides = (ROW_STEP * pool.itemsize, pool.itemsize)
    rows: Codes = of.lib.stride_tricks.as_strided(pool, (size, size), strides)
    return rows


def operands(rng: np.random.Generator, spec: DotSpec, size: int, k: int, kind: str) -> tuple[DotOperands, Codes | None]:
    """Random operands of a unit, and of every other product what accumulators are made of."""
    scales: list[Codes | None] = [None, None]
    if spec.scale_format is not None and spec.scale_block is not None:
        blocks, fmt = -(-k // spec.scale_block), format_of(spec.scale_format)
        scales = [drawn(rng, fmt.name, shape, "all bits") for shape in ((size, blocks), (blocks, size))]
        if kind != "all bits":  # no NaN, and powers of two near 1
            least, count = (fmt.bias - 8, 16) if spec.scale_format == "ue8m0" else (0, fmt.largest_magnitude + 1)
            scales = [(least + side % count).astype(np.uint8) for side in scales if side is not None]
    pool = drawn(rng, spec.c, ((ROW_STEP + 1) * size,), kind) if k % 2 else None
    return DotOperands(drawn(rng, spec.a, (size, k), kind), drawn(rng, spec.b, (k, size), kind), None, *scales), pool


def pinned(size: int, dtype: np.dtype[Any]) -> Codes:
    """A square array of the host from which the GPU copies fast."""
    memory = cupy().cuda.alloc_pinned_memory(size * size * dtype.itemsize)
    return np.frombuffer(memory, dtype, size * size).reshape(size, size)


def differing(spec: DotSpec, given: DotOperands, pool: Codes | None, threads: int, want: Codes) -> int:
    """Results of the GPU that are not the CPU's. want: memory for the CPU's."""
    on_gpu = DotOperands(*(None if x is None else to_gpu(x) for x in given[:-1]))
    if pool is not None:
        given = given._replace(c=in_rows(pool, len(want), np))
        on_gpu = on_gpu._replace(c=in_rows(to_gpu(pool), len(want), cupy()))
    got = product(spec, on_gpu)
    CPU.gemm(spec, given, threads=threads, out=want)
    return int((got != to_gpu(want)).sum())


@dataclass
class _Turn:
    """A product to come, whose operands a thread draws."""

    kind: str
    size: int
    drawing: Future[tuple[DotOperands, Codes | None]]


class UnitComparison:
    """Products of one unit. For half of its time each kind of operands gets the same: where the CPU computes step by
    step (infinities, results beyond the format), a result takes it a hundred times as long, and there are fewer of
    them. The other half goes to the kind of which the CPU computes most.
    """

    def __init__(self, spec: DotSpec, before: dict[str, Any], threads: int, seed: int, ahead: ThreadPoolExecutor):
        self.spec, self.threads, self.ahead = spec, threads, ahead
        self.kinds: Counter[str] = Counter(before.get("kinds", {}))
        self.differ = int(before.get("differ", 0))
        self.rng = np.random.default_rng((seed, self.results))
        self.turns: Counter[str] = Counter()
        self.seconds, self.slowest = dict.fromkeys(KINDS, 0.0), dict.fromkeys(KINDS, 0.0)
        self.memory = {size: pinned(size, code_dtype(format_of(spec.d))) for size in SIZES}

    @property
    def results(self) -> int:
        """Results compared."""
        return sum(self.kinds.values())

    def _next(self, is_late: bool = False) -> _Turn:
        cost = self.slowest if is_late else self.seconds
        kind = min(KINDS, key=lambda kind: (cost[kind], self.turns[kind]))
        k = DEPTHS[self.turns[kind] % len(DEPTHS)]
        fits = [size for size in SIZES if size * size * self.slowest[kind] <= SECONDS_OF_A_PRODUCT]
        size = fits[-1] if fits and self.turns[kind] else SIZES[0]
        self.turns[kind] += 1
        return _Turn(kind, size, self.ahead.submit(operands, self.rng, self.spec, size, k, kind))

    def run(self, wanted: float, seconds: float) -> None:
        """Compare until there are so many results and every kind had every K, or so long."""
        begin, turn, done = time.monotonic(), self._next(), Counter[str]()
        for count in range(1 << 30):
            is_done = self.results >= wanted and min(done[kind] for kind in KINDS) >= len(DEPTHS)
            if is_done or (count >= len(KINDS) and time.monotonic() - begin > seconds):
                break
            given, pool = turn.drawing.result()
            kind, size = turn.kind, turn.size
            start = time.monotonic()
            turn = self._next(min(done[kind] for kind in KINDS) > 0 and start - begin > seconds / 2)
            self.differ += differing(self.spec, given, pool, self.threads, self.memory[size])
            took = time.monotonic() - start
            self.seconds[kind] += took
            self.slowest[kind] = max(self.slowest[kind] if count >= len(KINDS) else 0.0, took / size**2)
            self.kinds[kind] += size * size
            done[kind] += 1
        turn.drawing.result()

    def to_json(self) -> dict[str, Any]:
        """What was compared, as plain data."""
        formats = {"a": self.spec.a, "b": self.spec.b, "c": self.spec.c, "d": self.spec.d}
        model = {"model": type(self.spec.unit).__name__, "loop": loop_of(self.spec) or "scalar.cuh"}
        return model | formats | {"results": self.results, "differ": self.differ, "kinds": dict(self.kinds)}


@dataclass(frozen=True)
class Effort:
    """How much `compare` does: results of each unit; seconds, at most, of each and of all; host threads."""

    results: float
    seconds: float
    budget: float
    threads: int
    seed: int


def compare(chosen: dict[DotSpec, str], effort: Effort, file: Path | None) -> int:
    """Compare units, those of a model and formats with too few results first, of these the unit with the fewest;
    returns the number of results that differ.

    file: JSON of what was compared; what it holds already counts.
    """
    known: dict[str, Any] = json.loads(file.read_text()) if file is not None and file.is_file() else {}
    end = time.monotonic() + effort.budget
    waiting = [(spec, name) for spec, name in chosen.items() if known.get(name, {}).get("results", 0) < effort.results]
    groups = _groups(known)  # of units that are not known: 0
    waiting.sort(key=lambda unit: (groups[_group(unit[0])] >= effort.results, known.get(unit[1], {}).get("results", 0)))
    with ThreadPoolExecutor(1) as ahead:
        for place, (spec, name) in enumerate(waiting):
            begin = time.monotonic()
            rest = [other for other, _ in waiting[place:]]
            few = [other for other in rest if _groups(known)[_group(other)] < effort.results]
            share = (end - begin) / len(few if spec in few else rest)
            if share <= 0:
                print(f"no time is left for {len(waiting) - place} units")
                break
            unit = UnitComparison(spec, known.get(name, {}), effort.threads, effort.seed, ahead)
            unit.run(effort.results, min(effort.seconds, share))
            known[name] = unit.to_json()
            print(
                f"{name}: {unit.results:.3g} results, {unit.differ} differ, {time.monotonic() - begin:.1f} s",
                flush=True,
            )
            if file is not None:
                file.write_text(json.dumps(known, indent=1) + "\n")
    return _told(known, effort.results)


def _groups(known: dict[str, Any]) -> Counter[tuple[str, str, str]]:
    """Results of each model and pair of operand formats."""
    groups: Counter[tuple[str, str, str]] = Counter()
    for unit in known.values():
        groups[unit["model"], unit["a"], unit["b"]] += unit["results"]
    return groups


def _told(known: dict[str, Any], wanted: float) -> int:
    """Print sums; returns how many results differ."""
    differ = int(sum(unit["differ"] for unit in known.values()))
    print(f"{len(known)} units, {sum(unit['results'] for unit in known.values()):.4g} results, {differ} differ")
    for (model, a, b), results in sorted(_groups(known).items()):
        print(f"  {model} {a} x {b}: {results:.3g} results{'' if results >= wanted else ', fewer than wanted'}")
    return differ
