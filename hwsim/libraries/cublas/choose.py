"""A library on a device: `hwsim.library("cublas", device="h200").choose(m=, n=, k=, format=)`.

It joins a checked call (`calls`), where its answer comes from (`lookup`) and what the answer says (`choice`), for a
version of a library on a chip; it knows no rule of either, and computes no bit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwsim.devices import load
from hwsim.devices.registry import are_from_package
from hwsim.errors import InputError, UnsupportedError
from hwsim.formats import format_of
from hwsim.gemm.record import LibraryId
from hwsim.libraries.cublas.answer import HOPPER, Generation
from hwsim.libraries.cublas.calls import (
    REDUCTION_MASKS,
    Asked,
    Call,
    Preference,
    Reductions,
    Unasked,
    check_mixed,
    checked_call,
    is_fast,
    operand_of,
)
from hwsim.libraries.cublas.choice import LibraryChoice, choice_of
from hwsim.libraries.cublas.estimated import Estimates, calls_on, generation_of
from hwsim.libraries.cublas.fitted import BIAS
from hwsim.libraries.cublas.lookup import AnswerSources, kind_of
from hwsim.libraries.cublas.orders import FAMILIES
from hwsim.libraries.cublas.pytorch import pytorch_call
from hwsim.libraries.cublas.sweeps import CallKind, Sweeps, read
from hwsim.libraries.cublas.versions import (
    ASSUMED,
    SUFFIX,
    Version,
    has_seen_rules,
    known_libraries,
    observed_as,
    version_of,
    version_on,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hwsim.devices.device import Device
    from hwsim.libraries.model.kernels import CallsModel

CACHED = 4096  # choices
#: What is asked for where nothing is said: 32 MiB, slices reduced in any type.
USUAL = Preference(32 << 20, "any")


def library(
    name: str | Path,
    *,
    device: str | Path | Mapping[str, Any] | Device,
    version: str | None = None,
    workspace_bytes: int | None = None,
    estimates: Callable[[Device, CallsModel, Version], Estimates] | None = None,
) -> LibraryOnDevice:
    """As hwsim.library. estimates: for chips that the library was not asked on, by the rules of their library file and
    with the version's file of shares; None: those are refused.
    """
    if workspace_bytes is not None and (
        isinstance(workspace_bytes, bool) or not isinstance(workspace_bytes, int) or workspace_bytes < 0
    ):
        raise InputError(f"workspace_bytes = {workspace_bytes!r}; allowed: an integer of at least 0, None")
    if str(name).endswith(SUFFIX):
        return _from_file(Path(name), device, version, workspace_bytes)
    known = version_of(str(name), version)
    # Files that ship say so, and they extend one another alone: no need to read them, which takes longer than the rest.
    if isinstance(device, str) and device in known.devices and are_from_package(known.devices):
        return LibraryOnDevice(known, device, workspace_bytes)
    chip = load(device)
    seen = observed_as(chip)
    if known.devices.get(seen) == chip.cores:
        return LibraryOnDevice(known, seen, workspace_bytes)
    calls = calls_on(chip, known.library, known.version)
    if calls is None or estimates is None:
        asked = ", ".join(f"{one} ({count} SMs)" for one, count in known.devices.items())
        raise UnsupportedError(
            f"{name} {known.version}: its choices on {chip.name} ({chip.cores} cores) are not known; they are on "
            f"{asked}, and can be estimated where the device's library file says what {name} runs; leave library out, "
            "or record them on such a GPU (hwsim library record)"
        )
    found = estimates(chip, calls, known)
    return LibraryOnDevice(known, chip.name, workspace_bytes, estimates=found, generation=found.generation)


def _from_file(
    path: Path, device: str | Path | Mapping[str, Any] | Device, version: str | None, workspace_bytes: int | None
) -> LibraryOnDevice:
    own = read(path)
    if own.library not in (libraries := known_libraries()):
        raise UnsupportedError(
            f"{path}: answers of library {own.library!r}; hwsim knows the kernels of {', '.join(libraries)}; record "
            "answers of that (hwsim library record)"
        )
    if version not in (None, own.version):
        raise UnsupportedError(f"{path}: answers of {own.library} {own.version}, not of version {version!r}")
    chip = load(device)
    seen = observed_as(chip)
    if own.cores.get(seen) != chip.cores:
        there = ", ".join(f"{one} ({count} SMs)" for one, count in own.cores.items())
        raise UnsupportedError(
            f"{path}: answers for {there}; the device is {chip.name} ({chip.cores} cores); record them on that GPU, or "
            "name another device"
        )
    known = version_on(own.library, own.version, seen, chip.cores)
    return LibraryOnDevice(known, seen, workspace_bytes, own, generation=generation_of(chip, own.library))


@dataclass(frozen=True, slots=True)
class LibraryOnDevice:
    """One version of a library on one device. workspace_bytes: None where the call says them. answers: its own, of a
    file; they stand before what is shipped. estimates: where the device was not asked; they stand for the choices.
    generation: of the device, which says how the kernels add."""

    version: Version
    device: str
    workspace_bytes: int | None = None
    answers: Sweeps | None = None
    estimates: Estimates | None = None
    generation: Generation = HOPPER

    @property
    def cores(self) -> int:
        """SMs of the device that was asked."""
        if self.estimates is not None:
            return self.estimates.chip.cores
        return (self.version.devices if self.answers is None else self.answers.cores)[self.device]

    @property
    def id(self) -> LibraryId:
        """As the record names it."""
        return self.version.id

    @property
    def sources(self) -> AnswerSources:
        """Where its answers come from."""
        return AnswerSources(self.version, self.device, self.answers, self.estimates)

    def choose(
        self,
        *,
        m: int,
        n: int,
        k: int,
        format: str,
        output: str | None = None,
        accumulate: str | None = None,
        a_layout: str = "rows",
        b_layout: str = "rows",
        batch: int = 1,
        bias: bool = False,
        reductions: Reductions | None = None,
        format_b: str | None = None,
    ) -> LibraryChoice:
        """What the library runs for C[m, n] = A[m, k] B[k, n].

        format, output: hwsim's names. format_b: of B where it is not A's (e4m3 and e5m2). accumulate: of 8-bit floats,
        "fast" or "promoted" (None: fast). layouts: "rows" (row-major) or "columns". batch: products in one strided
        call. bias: one value per column in the epilogue. reductions: "compute" where slices may be added in the
        accumulator's type alone; None: "any", with a file as PyTorch calls, which is how it was asked.

        Fitted choices do not tell a bias apart: with 32 MiB of workspace the choice is hardly ever another
        (docs/library.md). A file's answer for one product stands for a batch of it with evidence "assumption". Of
        batches of matrix-vector products the confidence is of the kernel's variant, too.

        On a chip that the library was not asked on the choice is an estimate (`LibraryChoice.is_estimated`), the same
        for any reductions and bias.

        Raises InputError for values that are not allowed, UnsupportedError where the library refuses the GEMM and
        where its choice is not known.
        """
        if not isinstance(bias, bool):
            raise InputError(f"bias = {bias!r}; allowed: True, False")
        taken = self.version.taken
        operand = operand_of(taken, format, format_b)
        call = checked_call(taken, m, n, k, operand, output, accumulate, a_layout, b_layout, batch)
        asked = self._asked(call, accumulate, bias, reductions, batch)
        if operand == format == (format_b or format):
            return _chosen(self, asked)
        check_mixed(taken, call, format, format_b)
        found = _chosen(self, asked)
        if found.is_estimated:
            return replace(found, confidence=found.confidence * self.version.mixed_alike)
        parts = tuple(dict.fromkeys([*found.unasked.parts, *([BIAS] if bias else [])]))
        chips = found.unasked.chips or self.version.chips_instead(self.device, "mixed_formats")
        is_asked = not parts and not chips and found.evidence != ASSUMED
        return replace(
            found,
            confidence=found.confidence * self.version.mixed_alike,
            evidence=self.version.evidence if is_asked else ASSUMED,
            unasked=Unasked(parts, chips),
        )

    def orders(
        self,
        sizes_m: Sequence[int],
        *,
        n: int,
        k: int,
        format: str,
        output: str | None = None,
        accumulate: str | None = None,
        a_layout: str = "rows",
        b_layout: str = "rows",
        bias: bool = False,
        reductions: Reductions | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> tuple[list[LibraryChoice], list[int], list[float]]:
        """Choices that differ in their order of summation, which of them holds for each m, and the probability that it
        is right there; arguments as of `choose`. progress: is told the share done, where they are estimated.

        Of each choice tile, cluster and the schedule's shape are those of its first m.
        """
        least_and_most = min(sizes_m, default=1), max(sizes_m, default=1)
        kind = format, output, accumulate, a_layout, b_layout
        checked, _ = (checked_call(self.version.taken, m, n, k, *kind) for m in least_and_most)
        asked = self._asked(checked, accumulate, bias, reductions)
        found: dict[tuple[Any, ...], int] = {}
        choices: list[LibraryChoice] = []
        index: list[int] = []
        sure: list[float] = []
        answers = self.sources.of(asked, sizes_m, progress)
        for answer, m in zip(answers, sizes_m, strict=True):
            family = FAMILIES.get(answer.order[0])
            own = checked._replace(m=int(m))
            _, _, slices, _, custom = answer.order
            key = (answer.order, 0 if family is None else family.order_of_m(own, slices, custom))
            if key not in found:
                found[key] = len(choices)
                choices.append(_chosen(self, asked._replace(call=own)))
            index.append(found[key])
            sure.append(answer.confidence)
        return choices, index, sure

    def other_kinds(
        self,
        *,
        n: int,
        k: int,
        format: str,
        output: str | None = None,
        accumulate: str | None = None,
        a_layout: str = "rows",
        b_layout: str = "rows",
        bias: bool = False,
        reductions: Reductions | None = None,
    ) -> list[CallKind]:
        """For which other calls of operands of this format the user's file has a weight, where it has none for this
        call; arguments and errors as of `choose`.
        """
        if self.answers is None:
            return []
        call = checked_call(self.version.taken, 1, n, k, format, output, accumulate, a_layout, b_layout)
        own = kind_of(self._asked(call, accumulate, bias, reductions))
        kinds = self.answers.kinds(self.device, call.n, call.k)
        return [] if own in kinds else [kind for kind in kinds if kind.operand == call.operand]

    def _asked(
        self, call: Call, accumulate: str | None, bias: bool, reductions: Reductions | None, batch: int = 1
    ) -> Asked:
        """The call with what was said of workspace and reductions, and for the rest what the answers at hand were asked
        with.
        """
        if reductions is not None and (not isinstance(reductions, str) or reductions not in REDUCTION_MASKS):
            raise InputError(f"reductions = {reductions!r}; allowed: {', '.join(REDUCTION_MASKS)}, None")
        usual = USUAL
        if self.answers is not None:
            usual = pytorch_call((call.n, call.k), format=call.operand, output=call.output, has_bias=bias).told
        told = Preference(
            usual.workspace_bytes if self.workspace_bytes is None else self.workspace_bytes,
            usual.reductions if reductions is None else reductions,
        )
        return Asked(call, told, is_fast(call, accumulate), bias, batch)


@lru_cache(maxsize=CACHED)
def _chosen(library: LibraryOnDevice, asked: Asked) -> LibraryChoice:
    """The choice for a call; asked for again and again by layers of a network."""
    sources = library.sources
    (found,) = sources.of(asked, [asked.call.m])
    answer, stages = sources.full(asked, found, library.cores, library.generation)
    is_seen = format_of(asked.call.operand).is_integer or (
        library.estimates is None and has_seen_rules(library.id, library.device, library.cores)
    )
    return choice_of(asked, found, answer, stages, is_seen)
