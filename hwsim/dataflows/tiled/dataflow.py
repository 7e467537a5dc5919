"""The dataflow of GPUs: CTA tiles of C, and blocks of K through stages of shared memory to the matrix unit.

`TiledDataflow.map` chooses the tile, the stages and the kernels of a GEMM, and `lower` writes its program.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hwsim.dataflows.instructions import Instructions, same_family
from hwsim.dataflows.options import (
    DATA_PARALLEL,
    DECOMPOSITION,
    INSTRUCTION,
    LAYOUT_OPTIONS,
    PAIRED,
    SPILL,
    STAGES,
    STAGING,
    STREAM_K,
    SWAPPED,
    SWIZZLE,
    TILED,
    WARP,
    asks_for_stream_k,
)
from hwsim.dataflows.protocol import Features, SplitK
from hwsim.dataflows.tiled.choice import GemmSizes, TileChoice, TileChooser, TileRequest
from hwsim.dataflows.tiled.estimate import best_split, reduction_seconds
from hwsim.dataflows.tiled.family import Family
from hwsim.dataflows.tiled.model import Blocking, GemmKernel
from hwsim.dataflows.tiled.operand_places import check_places
from hwsim.dataflows.tiled.partition import KernelTerms, Partition
from hwsim.dataflows.tiled.parts import FEATURES, check_streams, designed, refuses
from hwsim.dataflows.tiled.program import (
    SPILLED,
    ProgramWriter,
    is_staged,
    is_swapped,
    launches,
    mapping_of,
    spilled_rows,
    tile_scheduler,
)
from hwsim.dataflows.tiled.shared_tiles import has_shared_tiles
from hwsim.dataflows.tiled.storage import recorded_orders, storage_for
from hwsim.dataflows.tiled.stream_k import unshareable
from hwsim.dataflows.tiled.stream_k_cuts import cut_tiles
from hwsim.dataflows.tiles import StaticTileScheduler, TileGrid
from hwsim.devices import instruction, instruction_for
from hwsim.errors import HwsimError, InputError, UnsupportedError
from hwsim.gemm import refusals
from hwsim.gemm.mapping import GemmMapping, KernelMapping, Tile, settings_of
from hwsim.gemm.option_types import keyed_tile
from hwsim.gemm.plan import Mixed, Plan
from hwsim.gemm.record import By, Decision
from hwsim.host.multiples import round_up
from hwsim.libraries.model import observed
from hwsim.program.ir import LANE_FORMATS

if TYPE_CHECKING:
    from hwsim.dataflows.plan_areas import PlanArea
    from hwsim.devices.device import Device
    from hwsim.gemm.option_types import Option
    from hwsim.gemm.record import Gemm
    from hwsim.program.ir import Program

APART_GAIN = 0.9  # terms go to kernels of their own where those are estimated to take no more than this share
TILE_SIDES = (32, 64, 96, 128, 192, 256)  # of C, that a search begins with
TILE_DEPTHS = (1, 2, 4, 8)  # of K, in the K of an instruction
ESTIMATE = "best kernel of this dataflow by estimate"
MOST_TILES, FEW_TILES = 7, 4  # that a search looks at: with the default's instruction, with each other
LIKELY_TILES = 5  # of these, the first by estimate; the others cover as many elements of C as no tile before them


@dataclass(frozen=True, slots=True)
class _KernelChoice:
    """What `map` chose: the partition, its kernels, the blocking; why, where terms are separate kernels."""

    partition: Partition
    parts: list[KernelTerms]
    kernels: list[GemmKernel]
    blocking: Blocking
    kernels_by: By
    kernels_why: str


@dataclass(frozen=True, eq=False)
class TiledDataflow:
    """The dataflow of one family of GPUs (hwsim.dataflows.protocol.Dataflow)."""

    family: Family
    _chooser: TileChooser = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_chooser", TileChooser(self.family))

    @property
    def name(self) -> str:
        """The family's name, as in device files."""
        return self.family.name

    @property
    def options(self) -> tuple[Option, ...]:
        """The options of its mapping, as users set them."""
        return PAIRED if self.family.pairs else TILED

    @property
    def tile_order(self) -> tuple[str, str, str]:
        """The order in which users write tiles."""
        return ("m", "n", "k")

    @property
    def features(self) -> Features:
        """What its programs support besides the product."""
        return FEATURES | Features(choosers=("tlp",), wave_threads=self.family.wave_threads)

    def refuses(self, gemm: Gemm) -> str:
        """What of a record no program carries, by name; empty where there is one."""
        return refuses(gemm)

    def _check(self, gemm: Gemm, device: Device) -> None:
        """Raise UnsupportedError for a record that no program carries."""
        single_plan(gemm)
        taken = instruction(device, gemm.unit).sparsity
        refused = refusals.joined(self.refuses(gemm), refusals.sparsity_beside(gemm.problem, taken))
        if refused:
            raise UnsupportedError(f"the {self.name} dataflow carries no {refused}")
        check_places(gemm.unit, device, self.family)

    # --- deciding ----------------------------------------------------------------------------------------------

    def map(self, gemm: Gemm, device: Device, options: Mapping[str, Any]) -> Gemm:
        """The record with its kernels, tile, stages and order of tiles; see Dataflow.map."""
        if options.get("staging") == "none" and self.family.staged:
            return self._bare.map(gemm, device, options)
        self._check(gemm, device)
        if asks_for_stream_k(options):
            self._check_shareable(gemm, device, options)
        elif options.get(DECOMPOSITION.name) is not None and has_shared_tiles(gemm.schedule):
            raise InputError(
                f"decomposition = {DATA_PARALLEL}: the schedule has regions whose K is cut; leave one of them out"
            )
        lengths, request = gemm.schedule.slice_lengths(gemm.problem.k), self._request(options)
        partition = self._stored(gemm, device, options)
        chosen = self._decide(partition, lengths, request)
        if isinstance(chosen, TileChoice):
            raise _no_tile(chosen, request)
        return self._mapped(gemm, chosen, options)

    def _mapped(self, gemm: Gemm, chosen: _KernelChoice, options: Mapping[str, Any]) -> Gemm:
        """The record with these kernels and this tile."""
        device, partition, b = chosen.partition.device, chosen.partition, chosen.blocking
        lengths, request = gemm.schedule.slice_lengths(gemm.problem.k), self._request(options)
        unit, unit_by, unit_why = self._unit(gemm, device, options.get("instruction"), len(lengths) > 1)
        storage = storage_for(replace(partition, orders=(gemm.problem.a_layout, gemm.problem.b_layout)), options)
        if gemm.library is not None and self._is_transposed(gemm, device, chosen.kernels, b):
            b = replace(b, swapped=True)
        designs = [designed(device, self.family, kernel, b) for kernel in chosen.kernels]
        for design in designs:
            check_streams(design, max(lengths))
        sides = designs[0].of_unit(*((b.m, b.n) if self.family.staged else b.warp))
        fitted = Instructions(device).fitted(unit, *sides, b.cores)
        swizzle = options.get("swizzle")
        kernels = tuple(
            KernelMapping(
                kernel.name,
                part.terms,
                fitted,
                Tile(b.m, b.n, b.k),
                warp=b.warp,
                stages=b.stages,
                accumulators=b.accumulators,
                cluster=(max(self.family.cluster, b.cores), 1),
                cta_group=b.cores,
                swizzle=swizzle or 0,
            )
            for part, kernel in zip(chosen.parts, chosen.kernels, strict=True)
        )
        scheduler = tile_scheduler(gemm, device, kernels[0])
        if asks_for_stream_k(options):
            assert isinstance(scheduler, StaticTileScheduler)
            gemm = self._cut(gemm, device, scheduler.grids, b.k)
            scheduler = tile_scheduler(gemm, device, kernels[0])
        settings = settings_of(
            {
                **storage.settings,
                **({} if self.family.staged else {STAGING.name: "none"}),
                **({SPILLED: b.spilled} if b.spilled else {}),
                **({SWAPPED.name: True} if b.swapped else {}),
                "k_group": partition.promotion_interval(max(lengths)),
                "launches": launches(partition, chosen.parts, scheduler.tile_count),
            }
        )
        kernels = tuple(replace(kernel, swizzle=scheduler.raster_width, settings=settings) for kernel in kernels)
        tile_by: By = "user" if request.tile else "estimate" if self.family.staged else "default"
        stages_by: By = "user" if request.stages else "default"
        decisions = [
            Decision("kernels", f"{len(kernels)} with products", chosen.kernels_by, why=chosen.kernels_why),
            Decision("tile", f"m={b.m},n={b.n},k={b.k}", tile_by, why="" if request.tile else self._tile_why),
            Decision("stages", str(b.stages), stages_by, why="" if request.stages else self._stages_why),
            Decision("instruction", fitted, unit_by, why=unit_why),
            Decision(
                "swizzle",
                str(scheduler.raster_width),
                "user" if swizzle else "default",
                why="" if swizzle else "what all cores read is nearly square",
            ),
        ]
        decisions += storage.decisions
        if not self.family.staged:
            decisions.append(Decision(STAGING.name, "none", "user"))
        if request.warp is not None:
            decisions.append(Decision(WARP.name, f"{b.warp[0]},{b.warp[1]}", "user"))
        if request.spill:
            decisions.append(Decision(SPILLED, str(b.spilled), "user"))
        if b.swapped:
            why = "instructions fit the tile with their rows along C's columns: the kernel computes C transposed"
            decisions.append(Decision(SWAPPED.name, "True", "library", why=why))
        if "cta_group" in options or b.cores > 1:
            group_by: By = "user" if options.get("cta_group") else "default"
            decisions.append(Decision("cta_group", str(b.cores), group_by))
        return replace(gemm, mapping=GemmMapping(self.name, kernels), decisions=(*gemm.decisions, *decisions))

    def _check_shareable(self, gemm: Gemm, device: Device, options: Mapping[str, Any]) -> None:
        """Raise InputError for a K that is cut already, UnsupportedError for what shared tiles do not carry."""
        schedule = gemm.schedule
        if schedule != replace(schedule, split_k=1, slice_k=None, regions=()):
            raise InputError(f"decomposition = {STREAM_K}: the schedule says how K is cut; leave one of them out")
        unit, _, _ = self._unit(gemm, device, options.get(INSTRUCTION.name), False)
        model = instruction(device, unit)
        held = model.places(2)[:1]
        names = [*unshareable(gemm), *(f"accumulators in {place}" for place in held if place != self.family.registers)]
        if model.d not in LANE_FORMATS["add"]:
            names.append(f"sums in {model.d}")
        if names:
            raise UnsupportedError(f"decomposition = {STREAM_K}: not for {', '.join(names)}; leave it out")

    def _cut(self, gemm: Gemm, device: Device, grids: Sequence[TileGrid], tile_k: int) -> Gemm:
        """The record with tiles cut by stream-K. grids: of all tiles, where none is cut."""
        regions = cut_tiles(grids, gemm.problem.k, tile_k, device.cores)
        count = sum(grid.tiles for grid in grids)
        why = f"{len(regions)} of {count} tiles are cut, as CUTLASS 3 does with one group and without clusters"
        if not regions:
            why = f"no tile is cut: the last wave of {count} tiles is full, or K is too short"
        cut = replace(gemm, schedule=replace(gemm.schedule, regions=regions))
        return replace(cut, decisions=(*gemm.decisions, Decision(DECOMPOSITION.name, STREAM_K, "user", why=why)))

    @cached_property
    def _bare(self) -> TiledDataflow:
        """The dataflow of the family's kernels without staging."""
        return TiledDataflow(self.family.without_staging)

    @property
    def _tile_why(self) -> str:
        return ESTIMATE if self.family.staged else "one fragment a warp, 4 x 4 warps, as in the samples of WMMA"

    def _is_transposed(self, gemm: Gemm, device: Device, kernels: Sequence[GemmKernel], b: Blocking) -> bool:
        """Whether fewer products are with padding if the instruction's rows are C's columns, and kernels can do so."""
        if not self.family.staged or b.cores > 1 or gemm.problem.a.scale or gemm.problem.sparsity:
            return False

        def padded(unit: str, rows: int, cols: int) -> int:
            model = instruction(device, Instructions(device).fitted(unit, rows, cols))
            return round_up(rows, model.rows) * round_up(cols, model.n)

        return all(
            not kernel.splits_operands
            and instruction(device, kernel.unit).a == instruction(device, kernel.unit).b
            and padded(kernel.unit, b.n, b.m) < padded(kernel.unit, b.m, b.n)
            for kernel in kernels
        )

    def _request(self, options: Mapping[str, Any]) -> TileRequest:
        """The user's settings of a blocking."""
        warp = options.get(WARP.name)
        return TileRequest(
            keyed_tile(options.get("tile"), self.tile_order),
            options.get("stages"),
            options.get("cta_group"),
            None if warp is None else (warp[0], warp[1]),
            bool(options.get(SPILL.name)),
        )

    def _partition(self, gemm: Gemm, device: Device, unit: str, is_sliced: bool) -> Partition:
        orders = gemm.problem.a_layout, gemm.problem.b_layout
        return Partition(gemm=gemm, device=device, family=self.family, unit=unit, orders=orders, is_sliced=is_sliced)

    @property
    def _stages_why(self) -> str:
        of_kernels = any(shape.stages for shape in (*self.family.shapes, *self.family.lanes, *self.family.warps))
        or_less = ", or as many as the library's kernel has" if of_kernels else ""
        return f"as many as fit, at most {self.family.stages}{or_less}"

    def _unit(self, gemm: Gemm, device: Device, wanted: str | None, is_sliced: bool) -> tuple[str, By, str]:
        """The instruction of the first product: as requested, that of the library's split-K kernels, or the
        record's.
        """
        plan, seen = single_plan(gemm), observed(device)
        recorded, (i, j) = gemm.unit, plan.terms[0].products[0]
        if wanted is not None:
            return Instructions(device).like(recorded, wanted), "user", ""
        a, b = plan.a_pieces[i].format, plan.b_pieces[j].format
        is_native = recorded == instruction_for(device, a, b)
        if is_sliced and is_native and a == b and plan.products == 1 and seen is not None:
            wanted = seen.split_k_instructions.get(a)
            if wanted is not None:
                return Instructions(device).like(recorded, wanted), "library", "of its kernels that leave slices of K"
        is_of_format = all(side.is_plain for side in gemm.problem.operands)  # scales and sparsity have another one
        return (
            recorded,
            "device" if is_native or not is_of_format else "user",
            "native for the operands' formats" if is_native else "",
        )

    def _decide(self, partition: Partition, lengths: Sequence[int], request: TileRequest) -> _KernelChoice | TileChoice:
        """Choose the kernels and one tile for all of them; one kernel is compared with separate ones where both are
        possible.
        """
        parts = partition.preferred()
        kernels = partition.kernels(parts)
        together = self._choose(partition, kernels, lengths, request)
        if len(kernels) > 1 or len(kernels[0].terms) == 1 or kernels[0].joined:
            if together.blocking is None:
                return together
            by: By = "scheme" if len(kernels) > 1 or kernels[0].joined else "default"
            why = "the scheme's terms are GEMMs of their own" if len(kernels) > 1 else ""
            return _KernelChoice(partition, parts, kernels, together.blocking, by, why)
        parts_apart = partition.apart()
        kernels_apart = partition.kernels(parts_apart)
        apart = self._choose(partition, kernels_apart, lengths, request)
        if together.blocking is not None and (apart.blocking is None or together.seconds <= apart.seconds / APART_GAIN):
            return _KernelChoice(partition, parts, kernels, together.blocking, "estimate", "one kernel is no slower")
        if apart.blocking is None:
            return apart
        why = f"one kernel for all products: {together.reason}; give a smaller tile=, or see hwsim tune"
        if together.blocking is not None:
            why = "one kernel for all products is slower by estimate"
        return _KernelChoice(partition, parts_apart, kernels_apart, apart.blocking, "estimate", why)

    def _choose(
        self, partition: Partition, kernels: Sequence[GemmKernel], lengths: Sequence[int], request: TileRequest
    ) -> TileChoice:
        problem = partition.gemm.problem
        extent = GemmSizes(problem.m, problem.n, max(lengths), problem.matrices * len(lengths))
        return self._chooser.choose(partition.device, kernels, extent, request)

    def alternatives(self, gemm: Gemm, device: Device, options: Mapping[str, Any]) -> Iterator[Gemm]:
        """Records with other tiles, and instructions of other families; see SearchedDataflow.alternatives."""
        if _is_tile_given(options):
            return
        if asks_for_stream_k(options):  # cuts are of a tile
            gemm = replace(gemm, schedule=replace(gemm.schedule, regions=()))
        lengths, tiles = gemm.schedule.slice_lengths(gemm.problem.k), self.tiles(gemm, device)
        for count, variant in self._variants(gemm, device, options):
            settings = {**options, **variant}
            try:
                partition = self._stored(gemm, device, settings)
                request, extent = self._request(settings), _extent(partition, lengths)
                for parts in (partition.preferred(), partition.apart()):
                    kernels = partition.kernels(parts)
                    known = list(dict.fromkeys([*self._tiles(partition), *tiles]))
                    ranked = self._chooser.ranked(device, kernels, extent, known, request)
                    for blocking in varied(ranked, count, extent):
                        chosen = _KernelChoice(partition, parts, kernels, blocking, "default", "")
                        yield self._mapped(gemm, chosen, settings)
                    if ranked:
                        break
            except (InputError, UnsupportedError):
                continue

    def deeper(self, gemm: Gemm, device: Device, options: Mapping[str, Any]) -> Iterator[Gemm]:
        """The mapped record with as many stages as fit and have a block of K; see StagedDataflow.deeper."""
        if _is_tile_given(options) or options.get(STAGES.name) is not None:
            return
        mapping = mapping_of(gemm, self.name)
        first = mapping.kernels[0]
        blocks = self._blocks_of_k(gemm, device, first)
        if first.stages >= blocks:
            return
        stages = self._writer(gemm, device).most_stages(blocks)
        if stages > first.stages:
            kernels = tuple(replace(kernel, stages=stages) for kernel in mapping.kernels)
            decisions = [replace(x, value=str(stages)) if x.name == STAGES.name else x for x in gemm.decisions]
            yield replace(gemm, mapping=replace(mapping, kernels=kernels), decisions=tuple(decisions))

    def _blocks_of_k(self, gemm: Gemm, device: Device, kernel: KernelMapping) -> int:
        """Blocks of K that a core may load without a pause: of one tile where the next one waits for its end, else of
        all its tiles.
        """
        blocks = -(-max(gemm.schedule.slice_lengths(gemm.problem.k)) // kernel.tile.k)
        if not self.family.persistent and kernel.accumulators == 1:
            return blocks
        return blocks * -(-tile_scheduler(gemm, device, kernel).tile_count // device.cores)

    def orders(self, gemm: Gemm, device: Device, options: Mapping[str, Any]) -> Iterator[Gemm]:
        """The mapped record with other orders of tiles; see RasteredDataflow.orders."""
        if _is_tile_given(options) or options.get(SWIZZLE.name) is not None or gemm.schedule.regions:
            return
        mapping = mapping_of(gemm, self.name)
        widths = {mapping.kernels[0].swizzle}
        for asked in SWIZZLE.axis:
            width = tile_scheduler(gemm, device, replace(mapping.kernels[0], swizzle=asked)).raster_width
            if width in widths:
                continue
            widths.add(width)
            kernels = tuple(replace(kernel, swizzle=width) for kernel in mapping.kernels)
            decisions = [replace(x, value=str(width)) if x.name == SWIZZLE.name else x for x in gemm.decisions]
            yield replace(gemm, mapping=replace(mapping, kernels=kernels), decisions=tuple(decisions))

    def _variants(self, gemm: Gemm, device: Device, options: Mapping[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
        """How many tiles are worth a look, with which other options: the default's, other instructions, as many stages
        as are ever tried, pairs.
        """
        yield MOST_TILES, {}
        if options.get(INSTRUCTION.name) is None:
            for name in Instructions(device).equivalent_families(gemm.unit):
                if not same_family(name, gemm.unit):
                    yield FEW_TILES, {INSTRUCTION.name: name}
        has_more = STAGES.axis[-1] <= self.family.stages and not self.family.through_registers
        if options.get(STAGES.name) is None and has_more:
            yield FEW_TILES, {STAGES.name: STAGES.axis[-1]}
        if self.family.pairs and options.get("cta_group") is None:
            yield FEW_TILES, {"cta_group": 2}

    def _stored(self, gemm: Gemm, device: Device, options: Mapping[str, Any]) -> Partition:
        """The partition of a record, with the instruction and the storage orders that the options ask for."""
        is_sliced = len(gemm.schedule.slice_lengths(gemm.problem.k)) > 1
        unit, _, _ = self._unit(gemm, device, options.get(INSTRUCTION.name), is_sliced)
        partition = self._partition(gemm, device, unit, is_sliced)
        orders = storage_for(partition, options).orders
        return replace(partition, orders=orders, is_in_ranges=asks_for_stream_k(options))

    # --- slices of K -------------------------------------------------------------------------------------------

    def split_k(self, gemm: Gemm, device: Device, options: Mapping[str, Any]) -> SplitK:
        """The number of slices of K with the least estimated time; see Dataflow.split_k."""
        if options.get("staging") == "none" and self.family.staged:
            return self._bare.split_k(gemm, device, options)
        request = self._request(options)
        wanted = options.get("instruction")
        partitions: dict[bool, Partition] = {}

        def of(count: int) -> tuple[Partition, tuple[int, ...]]:
            schedule = replace(gemm.schedule, split_k=count, slice_k=None)
            lengths = schedule.slice_lengths(gemm.problem.k)
            is_sliced = len(lengths) > 1
            if is_sliced not in partitions:
                unit, _, _ = self._unit(gemm, device, wanted, is_sliced)
                partition = self._partition(gemm, device, unit, is_sliced)
                partitions[is_sliced] = replace(partition, orders=storage_for(partition, options).orders)
            return partitions[is_sliced], lengths

        estimates: dict[int, float] = {}

        def seconds(count: int) -> float:
            estimates[count] = self.seconds(*of(count), request)
            return estimates[count]

        def bound(count: int) -> float:
            return least_seconds(*of(count))

        rules = self.family.on(device).split_k
        best = best_split(gemm.problem.k, seconds, bound, rules)
        ordered = tuple(sorted(estimates, key=lambda count: estimates[count]))
        return SplitK(*best, advise_below=rules.advise_below, counts=ordered)

    def seconds(self, partition: Partition, lengths: Sequence[int], request: TileRequest) -> float:
        """Estimated seconds of the GEMM kernels and of the merges of slices; passes that split operands are left
        out.
        """
        chosen = self._decide(partition, lengths, request)
        if isinstance(chosen, TileChoice):
            raise _no_tile(chosen, request)
        extent = _extent(partition, lengths)
        total = self._chooser.seconds(partition.device, chosen.kernels, chosen.blocking, extent)
        return total + merges_seconds(partition, chosen.parts, len(lengths))

    # --- reading -----------------------------------------------------------------------------------------------

    def lower(self, gemm: Gemm, device: Device) -> Program:
        """The program for a mapped record, unchecked."""
        return self._writer(gemm, device).program()

    def least_cycles(self, gemm: Gemm, device: Device) -> float:
        """Cycles that the program of a mapped record needs at least; see BoundedDataflow.least_cycles."""
        return self._writer(gemm, device).least_cycles()

    def lower_areas(self, part: Gemm, device: Device, areas: Sequence[PlanArea]) -> Program:
        """The program of a mapped record over areas of C and K; see AreaDataflow.lower_areas."""
        return self._writer(part, device, areas).program()

    def lower_epilogue(self, gemm: Gemm, device: Device) -> Program:
        """The program from a sum to the record's result; see AreaDataflow.lower_epilogue."""
        return self._writer(gemm, device).epilogue()

    def _writer(self, gemm: Gemm, device: Device, areas: Sequence[PlanArea] = ()) -> ProgramWriter:
        self._check(gemm, device)
        first = mapping_of(gemm, self.name).kernels[0]
        family = self.family if is_staged(first) else self.family.without_staging
        return ProgramWriter(family, gemm, device, areas)

    def facts(self, gemm: Gemm) -> dict[str, Any]:
        """The mapping as `options` of a result show it."""
        first = mapping_of(gemm, self.name).kernels[0]
        shown: dict[str, Any] = {
            "swizzle": first.swizzle,
            "tile": first.tile.to_dict(),
            "stages": first.stages,
            "split_k": len(gemm.schedule.slice_lengths(gemm.problem.k)),
            "k_group": first.setting("k_group"),
            "unit": first.instruction,
            "kernels": first.setting("launches"),
        }
        if first.cta_group > 1:
            shown["cta_group"] = first.cta_group
        if not is_staged(first):
            assert first.warp is not None
            shown |= {STAGING.name: "none", WARP.name: list(first.warp)}
        if spilled_rows(first):
            shown[SPILLED] = spilled_rows(first)
        if is_swapped(first):
            shown[SWAPPED.name] = True
        decided = gemm.decided(DECOMPOSITION.name)
        if decided is not None:
            shown[DECOMPOSITION.name] = decided.value
        orders = dict(zip(LAYOUT_OPTIONS, recorded_orders(gemm), strict=True))
        return shown | {name: order for name, order in orders.items() if order != "rows"}

    def tiles(self, gemm: Gemm, device: Device) -> list[Tile]:
        """Initial tiles of a search: the library's; for kernels that it has not, also sides of powers of two and 1.5
        times those, some instructions deep.

        A plain product takes tiles of the library alone: times of others were not compared with a chip's.
        """
        return self._tiles(self._partition(gemm, device, gemm.unit, False))

    def _tiles(self, partition: Partition) -> list[Tile]:
        device, kernels = partition.device, partition.kernels(partition.preferred())
        tiles = self._chooser.library_tiles(device, kernels, _extent(partition, (partition.gemm.problem.k,)))
        if is_plain(kernels):
            return tiles
        unit_k = max(instruction(device, kernels[0].unit).k, 1)
        depths = [unit_k * count for count in TILE_DEPTHS]
        others = [Tile(m, n, k) for m, n, k in itertools.product(TILE_SIDES, TILE_SIDES, depths)]
        return list(dict.fromkeys([*tiles, *others]))


def varied(ranked: Sequence[Blocking], count: int, extent: GemmSizes) -> list[Blocking]:
    """Up to `count` tiles of a ranking, in its order: its first LIKELY_TILES, then the first of each size that none
    before has, then any. size: elements of C, without what is beyond it.

    An estimate does not know what L2 writes back and when, or how waves overlap; its error is alike in tiles of a size.
    """

    def size(b: Blocking) -> int:
        return min(b.m, extent.m) * min(b.n, extent.n)

    likely = list(ranked[: min(count, LIKELY_TILES)])
    seen = {size(b) for b in likely}
    others: list[Blocking] = []
    alike: list[Blocking] = []
    for b in ranked[len(likely) :]:
        (alike if size(b) in seen else others).append(b)
        seen.add(size(b))
    return [*likely, *others, *alike][:count]


def _is_tile_given(options: Mapping[str, Any]) -> bool:
    return any(options.get(name) is not None for name in ("tile", STAGING.name, WARP.name, SPILL.name))


def is_plain(kernels: Sequence[GemmKernel]) -> bool:
    """Whether the kernels are one product of two matrices as they are, which the family's library has."""
    kernel = kernels[0]
    whole = all(interval is None for interval in kernel.promotion_intervals)
    return len(kernels) == 1 == kernel.products and whole and all(operand.raw is None for operand in kernel.operands)


def _no_tile(choice: TileChoice, request: TileRequest) -> HwsimError:
    """The error of a choice without a blocking: InputError for tiles or stages of the user, else
    UnsupportedError.
    """
    is_asked = request.tile is not None or request.stages is not None
    return InputError(choice.reason) if is_asked else UnsupportedError(choice.reason)


def _extent(partition: Partition, lengths: Sequence[int]) -> GemmSizes:
    problem = partition.gemm.problem
    return GemmSizes(problem.m, problem.n, max(lengths), problem.matrices * len(lengths))


def least_seconds(partition: Partition, lengths: Sequence[int]) -> float:
    """A lower bound of all estimates: every product at the instruction's best rate on all cores, and merges."""
    problem, device = partition.gemm.problem, partition.device
    products = problem.matrices * problem.m * problem.n * problem.k * partition.plan.products
    rate = float(partition.model.macs_per_cycle) * device.cores * device.clock_mhz * 1e6
    return products / rate + merges_seconds(partition, partition.preferred(), len(lengths))


def merges_seconds(partition: Partition, parts: Sequence[KernelTerms], slices: int) -> float:
    """Estimated seconds of the passes that merge slices."""
    problem, total = partition.gemm.problem, 0.0
    for part in parts:
        target = partition.epilogue(part).target.format
        terms = len(partition.kernel(part).epilogue.partial)
        elements = problem.matrices * problem.m * problem.n
        total += reduction_seconds(partition.device, elements, slices, partition.model.d, target, terms)
    return total


def single_plan(gemm: Gemm) -> Plan:
    """The record's plan, which must not be a mixture."""
    if isinstance(gemm.plan, Mixed):
        raise UnsupportedError(f"scheme {gemm.plan.scheme}: its blocks follow different plans; map each of them")
    return gemm.plan
