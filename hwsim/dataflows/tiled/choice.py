"""Tile selection: the least estimated time among the tiles that the family's libraries use.

Everything that does not depend on m, n and K (which tiles fit, with how many stages, their times per block of K) is
computed once per device and kernels, and cached.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TYPE_CHECKING, Any

from hwsim.dataflows.elementwise import vector_of
from hwsim.dataflows.instructions import Instructions
from hwsim.dataflows.tiled.buffers import Footprint
from hwsim.dataflows.tiled.design import FRAGMENT_BYTES, KernelDesign, needs_transpose
from hwsim.dataflows.tiled.estimate import ElementBytes, KernelEstimate, element_bytes
from hwsim.dataflows.tiled.family import Family, Shape
from hwsim.dataflows.tiled.model import Blocking, GemmKernel
from hwsim.dataflows.tiled.parts import designed, footprint
from hwsim.devices import instruction
from hwsim.errors import InputError, UnsupportedError
from hwsim.formats import format_of
from hwsim.gemm.mapping import Tile
from hwsim.host.multiples import round_up

if TYPE_CHECKING:
    from hwsim.devices.device import Device

CLOSE = 1.02  # estimates that differ by less do not tell tiles apart: then the one that covers least beyond C
EQUAL = 1.002  # of those that cover as much and differ by less, the largest: the fewest bytes and instructions
CACHED_DEVICES = 8
FRAGMENT = 16  # rows and columns of C of a fragment of WMMA and rocWMMA
WARPS = 4  # of the samples' CTAs, in rows and in columns
REGISTER_BYTES = 4
CTA_THREADS = 1024  # of a CTA or workgroup at most (CUDA programming guide; HIP)
CACHED_KERNELS = 128  # sets of kernels, and estimates, per device
CACHED_FOOTPRINTS = 4096  # per device: some hundred tiles of some kernels, and few hundred bytes each


@dataclass(frozen=True, slots=True)
class GemmSizes:
    """The sizes that a selection depends on. k: of the longest slice. matrices: batch size times slices of K."""

    m: int
    n: int
    k: int
    matrices: int


@dataclass(frozen=True, slots=True)
class TileChoice:
    """The selected blocking, or the reason why there is none; seconds: of all kernels, by estimate (0 for a given
    tile).
    """

    blocking: Blocking | None
    reason: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class TileRequest:
    """The user's settings: tile, stages in shared memory, cta_group, warp tile, whether accumulators may spill."""

    tile: Tile | None = None
    stages: int | None = None
    cta_group: int | None = None
    warp: tuple[int, int] | None = None
    spill: bool = False


class TileCandidate:
    """A blocking that fits, for kernels that all use it, with its conditions of use, and its time as a function of the
    sizes. bytes_of_all: `element_bytes` of the kernels.
    """

    def __init__(
        self,
        shape: Shape,
        blocking: Blocking,
        designs: Sequence[tuple[KernelDesign, int]],
        is_for: bool,
        bytes_of_all: ElementBytes,
    ) -> None:
        self.shape, self.blocking, self.is_for = shape, blocking, is_for
        self._designs, self._bytes_of_all = designs, bytes_of_all
        self._estimates: list[tuple[KernelEstimate, int]] | None = None

    def seconds(self, extent: GemmSizes) -> float:
        """Estimated seconds of all kernels."""
        if self._estimates is None:
            stages = self.blocking.stages
            self._estimates = [
                (KernelEstimate(design, stages, self._bytes_of_all), count) for design, count in self._designs
            ]
        total = 0.0  # no sum(): its last bit depends on Python's version, and the tile on this
        for estimate, count in self._estimates:
            total += count * estimate.seconds(extent.m, extent.n, extent.k, extent.matrices)
        return total

    def is_usual(self, waves: int, k: int) -> bool:
        """Whether the family's libraries use it for this number of waves and this K."""
        shape = self.shape
        return (
            self.is_for and (not shape.max_waves or waves <= shape.max_waves) and (not shape.max_k or k <= shape.max_k)
        )

    def padded(self, extent: GemmSizes) -> int:
        """Elements of C that its tiles cover."""
        return round_up(extent.m, self.blocking.m) * round_up(extent.n, self.blocking.n)


@dataclass(frozen=True, slots=True)
class CandidateSet:
    """The family's tiles that fit, in its order; reason: why the last rejected one does not fit."""

    fitting: tuple[TileCandidate, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class _DeviceCache:
    """Cached data of one device: candidates by kernels, estimates and footprints by kernel and blocking, tiles by
    kernels.
    """

    device: Device
    sets: dict[tuple[tuple[GemmKernel, ...], int | None, int], CandidateSet] = field(default_factory=dict)
    estimates: dict[tuple[GemmKernel, Blocking, ElementBytes], KernelEstimate] = field(default_factory=dict)
    footprints: dict[tuple[GemmKernel, Blocking], Footprint] = field(default_factory=dict)
    tiles: dict[tuple[tuple[GemmKernel, ...], int | None, int], dict[Tile, TileCandidate | None]] = field(
        default_factory=dict
    )


class TileChooser:
    """Selects tiles for the kernels of one family."""

    def __init__(self, family: Family) -> None:
        self.family = family
        self._lock = Lock()
        self._cached: OrderedDict[int, _DeviceCache] = OrderedDict()

    def choose(
        self, device: Device, kernels: Sequence[GemmKernel], extent: GemmSizes, request: TileRequest
    ) -> TileChoice:
        """The blocking for all of `kernels`: as requested, or the fastest by estimate.

        Raises InputError for a tile or stages that are not allowed.
        """
        cores = checked_cta_group(self.family.on(device), request.cta_group)
        if not self.family.staged:
            if cores > 1:
                raise InputError(f"staging = 'none', cta_group = {cores}: CTAs share operands in shared memory only")
            return self._unstaged(device, kernels, request)
        if request.tile is not None:
            return self._given(device, kernels, extent, request, cores)
        if request.spill:
            raise InputError("spill = True: give the tile, too; no estimate knows what a spill costs")
        if request.warp is not None:
            raise InputError(f"warp = {_pair_text(request.warp)}: give the tile, too; the library's have their own")
        if cores > 1:
            for shape in _of_cores(_shapes(self.family, device, kernels[0]), cores):
                _check_cta_group(self.family, device, kernels, (shape.m, shape.n), extent, cores)
        candidates = self._candidates(device, tuple(kernels), request.stages, cores)
        if not candidates.fitting:
            return TileChoice(
                None, f"no tile of the {self.family.name} dataflow fits: it needs at least {candidates.reason}"
            )
        usual = self._usual(device, candidates.fitting, extent)
        times = [(candidate.seconds(extent), candidate) for candidate in usual or candidates.fitting]
        least = min(time for time, _ in times)
        close = [
            (time, tile_candidate.padded(extent), tile_candidate)
            for time, tile_candidate in times
            if time <= least * CLOSE
        ]
        tightest = min(padded for _, padded, _ in close)
        tight = [(time, tile_candidate) for time, padded, tile_candidate in close if padded == tightest]
        least = min(time for time, _ in tight)
        equal = [(time, tile_candidate.blocking) for time, tile_candidate in tight if time <= least * EQUAL]
        seconds, best = max(equal, key=lambda pair: (pair[1].m * pair[1].n, -pair[0]))
        return TileChoice(best, seconds=seconds)

    def seconds(self, device: Device, kernels: Sequence[GemmKernel], blocking: Blocking, extent: GemmSizes) -> float:
        """Estimated seconds of kernels with this blocking."""
        bytes_of_all, total = element_bytes(kernels), 0.0
        for kernel in kernels:
            estimate = self._estimate(device, kernel, blocking, bytes_of_all)
            total += estimate.seconds(extent.m, extent.n, extent.k, extent.matrices)
        return total

    def _estimate(
        self, device: Device, kernel: GemmKernel, blocking: Blocking, bytes_of_all: ElementBytes
    ) -> KernelEstimate:
        estimates = self._cache_of(device).estimates
        key = (kernel, blocking, bytes_of_all)
        estimate = estimates.get(key)
        if estimate is None:
            estimate = KernelEstimate(designed(device, self.family, kernel, blocking), blocking.stages, bytes_of_all)
            self._keep(estimates, key, estimate)
        return estimate

    def _given(
        self, device: Device, kernels: Sequence[GemmKernel], extent: GemmSizes, request: TileRequest, cores: int
    ) -> TileChoice:
        """The requested tile, with as many stages as fit."""
        tile, family = request.tile, self.family
        assert tile is not None
        shapes = _of_cores(_shapes(family, device, kernels[0]), cores)
        if not shapes:
            raise _none_together(device, kernels[0], cores)
        unique = list(_counted(kernels))
        _check_cta_group(family, device, unique, (tile.m, tile.n), extent, cores)
        warp = _nearest(shapes, tile).warp
        if request.warp is not None:
            warp = request.warp
            check_warp(family, device, unique, (tile.m, tile.n), warp)
        reason = ""
        for start in _starts(family, shapes, tile, warp, request.stages):
            if request.spill:
                rows, reason = _spilled(family, device, unique, replace(start, accumulators=1))
                if reason:
                    break
                if rows and start.accumulators > 1:
                    continue
                start = replace(start, spilled=rows)
            fitted, reason, _ = self._fitted(device, unique, start, request.stages is not None)
            if fitted is not None:
                return TileChoice(fitted)
        return TileChoice(None, f"tile {tile.m},{tile.n},{tile.k} (m, n, k) needs {reason}")

    def ranked(
        self,
        device: Device,
        kernels: Sequence[GemmKernel],
        extent: GemmSizes,
        tiles: Sequence[Tile],
        request: TileRequest,
    ) -> list[Blocking]:
        """The blockings of these tiles, as a user would ask for them, that fit: the least estimated time first.

        Of tiles that are equal where C ends before them there is one: of equal times the one whose warps read least,
        and the smallest of those.
        """
        cores = checked_cta_group(self.family.on(device), request.cta_group)
        shapes = _of_cores(_shapes(self.family, device, kernels[0]), cores)
        if not shapes:
            return []
        candidates, counted, ranked = self._tried(device, tuple(kernels), request.stages, cores), _counted(kernels), []
        bytes_of_all = element_bytes(kernels)
        for tile in tiles:
            if cores > 1 and extent.m % (cores * tile.m):
                continue
            if tile not in candidates:
                candidates[tile] = self._made_candidate(device, counted, tile, request.stages, shapes, bytes_of_all)
            candidate = candidates[tile]
            if candidate is not None:
                ranked.append((candidate.seconds(extent), candidate.blocking))
        first: dict[tuple[int, int, int], Blocking] = {}
        for _, b in sorted(ranked, key=lambda pair: (pair[0], _read(pair[1], extent), pair[1].m * pair[1].n)):
            first.setdefault((min(b.m, extent.m), min(b.n, extent.n), b.k), b)
        return list(first.values())

    def library_tiles(self, device: Device, kernels: Sequence[GemmKernel], extent: GemmSizes) -> list[Tile]:
        """The tiles that the family's library uses for such sizes, on one core each."""
        fitting = self._candidates(device, tuple(kernels), None, 1).fitting
        used = self._usual(device, fitting, extent) or fitting
        return list(dict.fromkeys(Tile(b.m, b.n, b.k) for b in (candidate.blocking for candidate in used)))

    @staticmethod
    def _usual(device: Device, fitting: Sequence[TileCandidate], extent: GemmSizes) -> list[TileCandidate]:
        """The candidates that the family's library uses for such sizes."""
        usual = []
        for candidate in fitting:
            tiles = -(-extent.m // candidate.shape.m) * -(-extent.n // candidate.shape.n) * extent.matrices
            if candidate.is_usual(-(-tiles // device.cores), extent.k):
                usual.append(candidate)
        return usual

    def _tried(
        self, device: Device, kernels: tuple[GemmKernel, ...], stages: int | None, cores: int
    ) -> dict[Tile, TileCandidate | None]:
        """The tiles that were tried for kernels, as candidates; None where one does not fit. The caller adds more."""
        tiles, key = self._cache_of(device).tiles, (kernels, stages, cores)
        candidates = tiles.get(key)
        if candidates is None:
            candidates = {}
            self._keep(tiles, key, candidates)
        return candidates

    def _made_candidate(
        self,
        device: Device,
        counted: Mapping[GemmKernel, int],
        tile: Tile,
        stages: int | None,
        shapes: Sequence[Shape],
        bytes_of_all: ElementBytes,
    ) -> TileCandidate | None:
        """A tile as a candidate; None where it does not fit. counted: kernels of different kinds, as `_counted`."""
        near, unique = _nearest(shapes, tile), list(counted)
        for start in _starts(self.family, shapes, tile, near.warp, stages):
            try:
                fitted, _, designs = self._fitted(device, unique, start, stages is not None)
            except (InputError, UnsupportedError):  # no kernel has such tiles
                return None
            if fitted is not None:
                pairs = list(zip(designs, counted.values(), strict=True))
                return TileCandidate(near, fitted, pairs, True, bytes_of_all)
        return None

    def _unstaged(self, device: Device, kernels: Sequence[GemmKernel], request: TileRequest) -> TileChoice:
        """The blocking of kernels without staging: as the samples (see fragments.py), as many CTAs as a core holds.

        A fragment is 16 x 16, or the instruction's C where that is larger, and FRAGMENT_BYTES of K deep.
        """
        family, unique = self.family, list(_counted(kernels))
        unit = instruction(device, kernels[0].unit)
        warp = request.warp or (max(FRAGMENT, unit.rows), max(FRAGMENT, unit.n))
        m, n = WARPS * warp[0], WARPS * warp[1]
        if request.tile is not None:
            m, n, k = request.tile.m, request.tile.n, request.tile.k
        else:
            k_bytes = FRAGMENT_BYTES * widest(unique) // format_of(unit.a).bits
            k = _blocking(family, device, unique, Shape(m, n, k_bytes, warp), 1).k
        check_warp(family, device, unique, (m, n), warp)
        start = Blocking(m, n, k, warp, 1, 1)
        if request.spill:
            rows, reason = _spilled(family, device, unique, start)
            if reason:
                return TileChoice(None, f"tile {m},{n},{k} (m, n, k) needs {reason}")
            start = replace(start, spilled=rows)
        alone, reason, designs = self._fitted(device, unique, start, True)
        most = family.core_warps // _warps((m, n), warp)
        for memory, capacity in ((name, model.capacity_bytes) for name, model in device.memories.items()):
            for design in designs:
                for name, size, more in self._footprint(design).memories:
                    if name == memory:
                        most = min(most, capacity // (size + more))
        if alone is None:
            return TileChoice(None, f"tile {m},{n},{k} (m, n, k) needs {reason}")
        if alone.spilled:
            most = 1
            if (request.stages or 1) > 1:
                raise InputError(f"spill = True, stages = {request.stages}: a core has one CTA that spills; allowed: 1")
        count = request.stages or max(most, 1)
        fitted, reason, _ = self._fitted(device, unique, replace(alone, stages=count, accumulators=count), True)
        if fitted is None:
            return TileChoice(None, f"staging = 'none', stages = {count}: {count} CTAs a core need {reason}")
        return TileChoice(fitted)

    def _fitted(
        self, device: Device, kernels: Sequence[GemmKernel], start: Blocking, is_fixed: bool
    ) -> tuple[Blocking | None, str, list[KernelDesign]]:
        """The blocking `start` with as many stages as fit, or None and the reason; and the kernels' designs."""
        capacities = {name: memory.capacity_bytes for name, memory in device.memories.items()}
        least = start.stages if is_fixed else min(2, start.stages)
        designs = [designed(device, self.family, kernel, start) for kernel in kernels]
        prints: list[Footprint] = []
        for design in designs:
            prints.append(self._footprint(design))
            if reason := prints[-1].excess(least, capacities, device.name):
                return None, reason, designs
        most = start.stages
        if not is_fixed:
            for need in prints:
                most = need.most_stages(most, capacities, device.name)
        return replace(start, stages=most), "", designs

    def _footprint(self, design: KernelDesign) -> Footprint:
        """The bytes of a design's buffers, which are the same with any number of stages from two on."""
        footprints, blocking = self._cache_of(design.device).footprints, design.blocking
        if self.family.staged and blocking.stages > 2:
            blocking = replace(blocking, stages=2)
        found = footprints.get((design.kernel, blocking))
        if found is None:
            found = footprint(design)
            self._keep(footprints, (design.kernel, blocking), found, CACHED_FOOTPRINTS)
        return found

    def _candidates(
        self, device: Device, kernels: tuple[GemmKernel, ...], stages: int | None, cores: int
    ) -> CandidateSet:
        sets, key = self._cache_of(device).sets, (kernels, stages, cores)
        candidates = sets.get(key)
        if candidates is None:
            candidates = self._made(device, kernels, stages, cores)
            self._keep(sets, key, candidates)
        return candidates

    def _keep(self, cache: dict[Any, Any], key: object, value: object, most: int = CACHED_KERNELS) -> None:
        """Add an entry, and drop the oldest beyond the most."""
        with self._lock:
            cache[key] = value
            while len(cache) > most:
                del cache[next(iter(cache))]

    def _cache_of(self, device: Device) -> _DeviceCache:
        """The cache of a device. Devices are immutable and identified by object identity."""
        with self._lock:
            cache = self._cached.get(id(device))
            if cache is None:
                cache = self._cached[id(device)] = _DeviceCache(device)
                while len(self._cached) > CACHED_DEVICES:
                    self._cached.popitem(last=False)
            self._cached.move_to_end(id(device))
            return cache

    def _made(self, device: Device, kernels: tuple[GemmKernel, ...], stages: int | None, cores: int) -> CandidateSet:
        family = self.family
        shapes = _of_cores(_shapes(family, device, kernels[0]), cores)
        if not shapes:
            raise _none_together(device, kernels[0], cores)
        counted = _counted(kernels)
        unique, bits, bytes_of_all = list(counted), widest(kernels), element_bytes(kernels)
        is_mn_major = needs_transpose(instruction(device, kernels[0].unit), kernels[0])
        fitting, reason = [], ""
        for shape in shapes:
            start = _blocking(family, device, unique, shape, stages)
            fitted, why, designs = self._fitted(device, unique, start, stages is not None)
            if fitted is None:
                reason = why
                continue
            is_for = bits in (shape.bits or (bits,)) and shape.mn_major in (None, is_mn_major)
            pairs = list(zip(designs, counted.values(), strict=True))
            fitting.append(TileCandidate(shape, fitted, pairs, is_for, bytes_of_all))
        return CandidateSet(tuple(fitting), reason)


def _read(b: Blocking, extent: GemmSizes) -> int:
    """Rows of A and columns of B that the warps of a tile read from shared memory, as often as they do."""
    rows, cols = min(b.m, extent.m), min(b.n, extent.n)
    return rows * -(-cols // b.warp[1]) + cols * -(-rows // b.warp[0])


def _nearest(shapes: Sequence[Shape], tile: Tile) -> Shape:
    """The library's tile of about the size of a tile: it has such warps."""
    return min(shapes, key=lambda shape: abs(shape.m * shape.n - tile.m * tile.n))


def _starts(
    family: Family, shapes: Sequence[Shape], tile: Tile, warp: tuple[int, int], stages: int | None
) -> Iterator[Blocking]:
    """The blockings of a tile to try: with two accumulators where the library has that, and with one."""
    for count in (2, 1) if any(shape.accumulators > 1 for shape in shapes) else (1,):
        yield Blocking(
            m=tile.m,
            n=tile.n,
            k=tile.k,
            warp=warp,
            stages=stages or family.stages,
            accumulators=count,
            cores=shapes[0].cores,
        )


def check_warp(
    family: Family, device: Device, kernels: Sequence[GemmKernel], tile: tuple[int, int], warp: tuple[int, int]
) -> None:
    """Raise InputError where a tile of C (m, n) is not made of such warp tiles, or one not of whole instructions."""
    start = f"warp = {_pair_text(warp)}"
    if min(warp) < 1 or tile[0] % warp[0] or tile[1] % warp[1]:
        raise InputError(f"{start}: a tile of {tile[0]} x {tile[1]}; allowed: what divides it")
    for kernel in kernels:
        unit = instruction(device, Instructions(device).fitted(kernel.unit, *warp))
        if warp[0] % unit.rows or warp[1] % unit.n:
            raise InputError(f"{start}: {kernel.unit} gives {unit.rows} x {unit.n} of C; allowed: multiples of these")
    count, most = _warps(tile, warp), CTA_THREADS // family.wave_threads
    if count > most:
        raise InputError(
            f"{start}: {count} warps for {tile[0]} x {tile[1]}; a CTA has at most {most} ({CTA_THREADS} threads)"
        )


def _spilled(family: Family, device: Device, kernels: Sequence[GemmKernel], start: Blocking) -> tuple[int, str]:
    """Rows of each accumulator beyond a CTA's registers: its threads' and the core's; or the reason why they are not
    enough.
    """
    threads = max(_warps((start.m, start.n), start.warp), 1) * family.wave_threads
    capacity = device.memories[family.registers].capacity_bytes
    limit, spilled = min(capacity, threads * family.thread_registers * REGISTER_BYTES), 0
    for kernel in kernels:
        design = designed(device, family, kernel, start)
        [(fixed, more)] = [
            (fixed, more) for name, fixed, more in footprint(design).memories if name == family.registers
        ]
        excess = fixed + more * start.stages - limit
        if excess > 0:
            row_bytes = len(kernel.terms) * start.n * format_of(design.accumulator).bits // 8
            spilled = max(spilled, -(-excess // row_bytes))
            designed(device, family, kernel, replace(start, spilled=spilled))  # refuses what cannot spill
        if spilled > start.m:
            return 0, (
                f"{fixed + more * start.stages} bytes of {family.registers}; {threads} threads have {limit}, and more "
                "than the accumulators would spill"
            )
    return spilled, ""


def _warps(tile: tuple[int, int], warp: tuple[int, int]) -> int:
    return tile[0] // warp[0] * (tile[1] // warp[1])


def _pair_text(pair: tuple[int, int]) -> str:
    return f"{pair[0]},{pair[1]}"


def checked_cta_group(family: Family, wanted: int | None) -> int:
    """The option cta_group, validated; 1 where it is not given. Raises InputError."""
    allowed = sorted({shape.cores for shape in family.shapes})
    if wanted is None:
        return 1
    if isinstance(wanted, bool) or wanted not in allowed:
        raise InputError(f"cta_group = {wanted!r}; the {family.name} dataflow allows {', '.join(map(str, allowed))}")
    return int(wanted)


def widest(kernels: Sequence[GemmKernel]) -> int:
    """The width in bits of the widest operand that the kernels load."""
    return max(format_of(f).bits for kernel in kernels for operand in kernel.operands for f in operand.loaded)


def _none_together(device: Device, kernel: GemmKernel, cores: int) -> InputError:
    return InputError(f"cta_group = {cores}: {device.name} has no such instruction like {kernel.unit}")


def _of_cores(shapes: Sequence[Shape], cores: int) -> list[Shape]:
    return [shape for shape in shapes if shape.cores == cores]


def _check_cta_group(
    family: Family,
    device: Device,
    kernels: Sequence[GemmKernel],
    tile: tuple[int, int],
    extent: GemmSizes,
    cores: int,
) -> None:
    """Raise InputError where `cores` cores cannot multiply tiles of m x n together."""
    if cores == 1:
        return
    m, n = tile
    start = f"cta_group = {cores}"
    if extent.m % (cores * m):
        raise InputError(f"{start}: C has {extent.m} rows; allowed: multiples of {cores * m}, {cores} tiles of {m}")
    if device.cores % cores:
        raise InputError(f"{start}: {device.name} has {device.cores} cores; allowed: a multiple of {cores}")
    for kernel in kernels:
        fitted = instruction(device, Instructions(device).fitted(kernel.unit, m, n, cores))
        from_shared = family.shared in fitted.places(0) and not kernel.splits_operands
        if fitted.core_count != cores or fitted.timing is None or not from_shared:
            raise InputError(f"{start}: {device.name} has no such instruction like {kernel.unit} for where A lies")


def _counted(kernels: Sequence[GemmKernel]) -> dict[GemmKernel, int]:
    """One kernel of each kind with equal footprint and time, with its number of occurrences."""
    kinds = [_kind(kernel) for kernel in kernels]
    counts = Counter(kinds)
    last = dict(zip(kinds, kernels, strict=True))
    return {kernel: counts[kind] for kind, kernel in last.items()}


def _kind(kernel: GemmKernel) -> tuple[object, ...]:
    """The properties of a kernel that its footprint and its time depend on."""
    sides = tuple((*operand.formats.values(), operand.raw and operand.raw.format) for operand in kernel.operands)
    products = tuple(tuple(len(stage.products) for stage in term.stages) for term in kernel.terms)
    return (products, kernel.promotion_intervals, sides, replace(kernel.epilogue, partial=kernel.epilogue.partial[:1]))


def _shapes(family: Family, device: Device, kernel: GemmKernel) -> tuple[Shape, ...]:
    """The tiles of the device's library for a kernel's instruction."""
    family = family.on(device)
    unit = instruction(device, kernel.unit)
    if unit.engine == vector_of(device).engine:
        return family.lanes
    if family.warps and all(unit.places(side) == (family.registers,) for side in range(2)):
        return family.warps
    return family.shapes


def _blocking(
    family: Family, device: Device, kernels: Sequence[GemmKernel], shape: Shape, stages: int | None
) -> Blocking:
    """A shape with its K in elements: a multiple of the instruction's K, and of the promotion interval where that is
    shorter.
    """
    unit_k = instruction(device, kernels[0].unit).k
    k = max(unit_k, shape.k_bytes * 8 // widest(kernels) // unit_k * unit_k)
    for run in sorted(
        {interval for kernel in kernels for interval in kernel.promotion_intervals if interval is not None},
        reverse=True,
    ):
        if run <= k:
            k = k // run * run
    for length in {length for kernel in kernels for length in kernel.interleaves}:
        k = max(k, length) // length * length
    most = stages or shape.stages or family.stages
    return Blocking(
        m=shape.m, n=shape.n, k=k, warp=shape.warp, stages=most, accumulators=shape.accumulators, cores=shape.cores
    )
