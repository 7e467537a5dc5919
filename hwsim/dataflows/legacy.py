"""Adapters of the dataflows' first form, until each has the new one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hwsim.dataflows import options as declared
from hwsim.dataflows.davinci.coupled import COUPLED
from hwsim.dataflows.davinci.separated import SEPARATED
from hwsim.dataflows.protocol import Dataflow, Features, SplitK
from hwsim.errors import UnsupportedError
from hwsim.gemm.mapping import GemmMapping, KernelMapping, Tile, settings_of
from hwsim.gemm.options import Option, keyed_tile
from hwsim.gemm.record import Decision, Gemm
from hwsim.gemm.schedule import Epilogue, Schedule

if TYPE_CHECKING:
    from hwsim.devices.model import Device
    from hwsim.program.ir import Program


@dataclasses.dataclass(frozen=True)
class Legacy:
    name: str
    module: str
    options: tuple[Option, ...]
    tile_order: tuple[str, str, str]
    features: Features

    def _options(self, gemm: Gemm, options: Mapping[str, Any]) -> dict[str, Any]:
        found = {name: value for name, value in options.items() if value is not None}
        if "tile" in found:
            tile = keyed_tile(found["tile"], self.tile_order)
            assert tile is not None
            found["tile"] = tile.to_dict()
        if "distribution" in found:
            found["deal"] = {"cyclic": "tiles", "block": "blocks"}[found.pop("distribution")]
        problem, epilogue = gemm.problem, gemm.epilogue
        if any(option.name == "a_layout" for option in self.options):
            found |= {"a_layout": problem.a_layout, "b_layout": problem.b_layout}
        if any(option.name == "split_k" for option in self.options):
            found["split_k"] = len(gemm.schedule.slice_lengths(problem.k))
        if self.features.epilogue:
            found |= {"alpha": epilogue.alpha, "beta": epilogue.beta, "output": gemm.output}
            found |= {"c": problem.has_c or None, "bias": problem.bias is not None or None}
        if self.features.stacks and problem.matrices > 1:
            found["batch"] = problem.matrices
        return found

    def _check(self, gemm: Gemm) -> None:
        wanted = dataclasses.replace(
            gemm.schedule,
            epilogue=Epilogue(),
            instruction=None,
            slice_multiple=None,
            promotion_k=None,
            split_k=1,
        )
        for entry in dataclasses.fields(Schedule):
            value = getattr(wanted, entry.name)
            if value != getattr(Schedule(), entry.name):
                raise UnsupportedError(f"the {self.name} dataflow carries no {entry.name} of a schedule")
        if not self.features.epilogue:
            plain = Epilogue(1.0, 0.0, output_format=gemm.single.output_format)
            asked = [name for name in ("alpha", "beta") if getattr(gemm.epilogue, name) != getattr(plain, name)]
            asked += ["output"] if gemm.output != gemm.single.output_format else []
            asked += ["c"] if gemm.problem.has_c else []
            asked += ["bias"] if gemm.problem.bias is not None else []
            if asked:
                raise UnsupportedError(f"a device's program knows no {', '.join(sorted(asked))}")

    def _plan(self, gemm: Gemm) -> Any:
        plan = gemm.single
        group = gemm.schedule.promotion_k
        return dataclasses.replace(plan, k_group=group) if group is not None else plan

    def _program(self, gemm: Gemm, device: Device, options: Mapping[str, Any]) -> Program:
        m, n, k = gemm.problem.sizes
        program: Program = import_module(self.module).lower(self._plan(gemm), device, m, n, k, options)
        return program

    def map(self, gemm: Gemm, device: Device, options: Mapping[str, Any]) -> Gemm:
        self._check(gemm)
        program = self._program(gemm, device, self._options(gemm, options))
        facts = dict(program.facts)
        tile = facts.get("tile")
        kernel = KernelMapping(
            "gemm",
            tuple(range(len(gemm.single.terms))),
            str(facts["unit"]),
            Tile(tile["m"], tile["n"], tile["k"]),  # type: ignore[index]
            stages=int(facts.get("stages", 1)),  # type: ignore[call-overload]
            settings=settings_of(
                {name: value for name, value in facts.items() if name not in ("tile", "unit", "stages")}  # type: ignore[misc]
            ),
        )
        schedule = gemm.schedule
        if self.features.k_group and schedule.promotion_k is None:
            group = int(str(facts["k_group"]))
            if all(term.k_group is None for term in gemm.single.terms) and group < gemm.problem.k:
                schedule = dataclasses.replace(schedule, promotion_k=group)
        asked = frozenset(options)
        made = tuple(
            Decision(x, str(facts[x]), "user" if x in asked else "estimate")
            for x in ("tile", "stages", "n_fused", "buffering", "swizzle")
            if x in facts
        )
        mapping = GemmMapping(self.name, (kernel,))
        return dataclasses.replace(gemm, mapping=mapping, schedule=schedule, decisions=gemm.decisions + made)

    def lower(self, gemm: Gemm, device: Device) -> Program:
        assert gemm.mapping is not None
        kernel = gemm.mapping.kernels[0]
        facts = self.facts(gemm)
        names = {option.name for option in self.options} - {"a_layout", "b_layout", "split_k"}
        given: dict[str, Any] = {name: facts[name] for name in names if name in facts}
        given |= {"tile": kernel.tile}
        if "instruction" in names:
            given["instruction"] = kernel.instruction if len(gemm.single.terms) == 1 else None
        if given.get("cta_group") == 1:
            del given["cta_group"]
        return self._program(gemm, device, self._options(gemm, given))

    def split_k(self, gemm: Gemm, device: Device, options: Mapping[str, Any]) -> SplitK | None:
        family = getattr(import_module(self.module), "FAMILY", None)
        if family is None:
            return None
        tiled, family = import_module("hwsim.dataflows.tiled.lowering"), family.on(device)
        m, n, k = gemm.problem.sizes
        count, share = tiled.cut(family, self._plan(gemm), device, m, n, k, self._options(gemm, options))
        return SplitK(count, share, family.split_k.advise_below)

    def facts(self, gemm: Gemm) -> dict[str, Any]:
        assert gemm.mapping is not None
        kernel = gemm.mapping.kernels[0]
        found: dict[str, Any] = {"tile": kernel.tile.to_dict(), "stages": kernel.stages, "unit": kernel.instruction}
        return found | {one.name: one.value for one in kernel.settings}

    def tiles(self, gemm: Gemm, device: Device) -> Iterable[Tile]:
        return ()


_GPU = (declared.TILE_OPTION, declared.STAGES, declared.SPLIT_K, declared.SWIZZLE, declared.INSTRUCTION)
_MNK = ("m", "n", "k")
_FULL = Features(epilogue=True, stacks=True, choosers=("tlp",), wave_threads=32)
OWN: tuple[Dataflow, ...] = (
    COUPLED,
    SEPARATED,
    *(
        Legacy(
            name,
            f"hwsim.dataflows.tiled.{name}",
            (*_GPU, *((declared.CTA_GROUP,) if name == "sm100" else ()), *declared.LAYOUTS),
            _MNK,
            dataclasses.replace(_FULL, wave_threads=64) if name == "cdna" else _FULL,
        )
        for name in ("sm70", "sm80", "sm90", "sm100", "cdna")
    ),
)
