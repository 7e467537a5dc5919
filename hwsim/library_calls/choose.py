"""What a library runs for a GEMM: `hwsim.library("cublas", device="h200").choose(m=, n=, k=, format=)`.

It joins the library's own answers (`sweeps`, `neighbours`), the trees fitted to others (`store`), estimates for chips
that it was not asked on (`estimated`), the rules of the kernels' sums (`orders`) and what is known of calls; it
computes no bit.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwsim.devices import load
from hwsim.devices.registry import are_from_package
from hwsim.errors import InputError, UnsupportedError, nearest
from hwsim.formats import format_of
from hwsim.gemm.record import LibraryId
from hwsim.gemm.schedule import Schedule
from hwsim.library_calls.estimated import (
    Estimate,
    Estimates,
    calls_on,
    family_name,
    generation_of,
    row_bytes_of,
)
from hwsim.library_calls.features import batch_features, features
from hwsim.library_calls.neighbours import near
from hwsim.library_calls.orders import (
    ELEMENT_BYTES,
    FAMILIES,
    HOPPER,
    VECTOR_BYTES,
    Answer,
    Call,
    Generation,
    order_of,
)
from hwsim.library_calls.pytorch import (
    BIAS_NOT_ASKED,
    PLAIN_CALL,
    REDUCTION_MASKS,
    Reductions,
    pytorch_call,
)
from hwsim.library_calls.store import Entry, Store, store
from hwsim.library_calls.sweeps import REFUSED_ID, CallKind, Sweeps, read, shipped
from hwsim.library_calls.vectors import facts, is_vector

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hwsim.devices.device import Device
    from hwsim.libraries.model import CallsModel

LAYOUTS = ("rows", "columns")
ACCUMULATES = ("fast", "promoted")  # of e4m3
MOST_SIZE = (1 << 31) - 1  # of m, n and k: what cuBLAS's 32-bit calls take
CACHED = 4096  # choices
SUFFIX = ".npz"  # of a file of answers
ROUNDED = 0.5 / 51  # by so much a tree's confidence is rounded at most (tools/library/grow.py)


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a library whose choices are known: files of fitted trees, of its own answers for weights of layers,
    of times and of what these are multiplied by, and the chips that it was asked on; and of how often estimates are
    right, for others.

    devices: their names under `library.observations` in device files, and their numbers of SMs. evidence: of the trees.
    asked_on: of kinds of calls that not all of these chips were asked about, those that were.
    """

    library: str
    version: str
    path: str
    layers: str
    times: str
    factors: str
    shares: str
    devices: dict[str, int] = field(hash=False)
    evidence: str
    asked_on: dict[str, tuple[str, ...]] = field(default_factory=dict, hash=False)

    def was_asked(self, device: str, kind: str) -> bool:
        """Whether the library was asked about such calls on a chip."""
        return device in self.asked_on.get(kind, self.devices)


MIXED_FORMATS, VECTORS, BATCHED_COLUMNS, BIASED = "e4m3 by e5m2", "batched vectors", "batches of columns", "with a bias"
#: The newest first.
VERSIONS = (
    Version(
        library="cublas",
        version="13.1",
        path="cublas-13.1.trees",
        layers="cublas-13.1.layers.npz",
        times="cublas-13.1.times.csv",
        factors="cublas-13.1.times.npz",
        shares="cublas-13.1.estimates.csv",
        devices={"h100": 132, "h200": 132},
        evidence="fitted",
        asked_on=dict.fromkeys((MIXED_FORMATS, VECTORS, BATCHED_COLUMNS, BIASED), ("h100",)),
    ),
)
#: Of a version, or a chip, that only a user's file has.
NO_FILES: dict[str, Any] = {"layers": "", "times": "", "factors": "", "shares": ""}
ANSWERED = "microbenchmark"  # evidence of the library's own answer, asked on the chip
#: Formats of A and B of one product: as those of the first one, but for alignment.
MIXED = {("e4m3", "e5m2"): "e4m3", ("e5m2", "e4m3"): "e4m3"}
MIXED_ALIKE = 1 - 19 / 25_004  # of answers, of the combination in which most differ (tools/library/compare_mixed.py)
K_MAJOR = ("e4m3", "int8")  # formats of operands that are taken by rows of A and columns of B alone
ALLOWED_OUTPUTS = {
    "fp16": ("fp16", "fp32"),
    "bf16": ("bf16", "fp32"),
    "tf32": ("fp32",),
    "fp32": ("fp32",),
    "fp64": ("fp64",),
    "int8": ("int32",),
    "e4m3": ("bf16", "fp16", "fp32"),
}


@dataclass(frozen=True, slots=True)
class Preference:
    """What the library is told beside the problem: bytes of workspace, and in which type slices may be reduced."""

    workspace_bytes: int
    reductions: Reductions


@dataclass(frozen=True, slots=True)
class LibraryChoice:
    """What the library runs for one GEMM.

    algorithm, reduction, custom: cuBLASLt's CUBLASLT_ALGO_CONFIG_ID, _REDUCTION_SCHEME and _CUSTOM_OPTION (of nvjet 0
    but where a user's file has it). family: the family's name. kernel: the same, with the tile as its own name has it.
    split_k: slices of K, at least 1. order_by_m: may the order of summation be another one for other m, although
    algorithm and slices are the same? tile, cluster: (m, n) of the row-major product, None where not known. tile_k: K
    of a stage, elements; 0: not stated. stages: of shared memory, None where the kernel decides. schedule: the order of
    summation, the instruction and (m, n); `hwsim.matmul(schedule=, format=)` gives the bits of the kernel with it.
    known: is the rule of this kernel's sums known (else `schedule` stands for it)? confidence: the probability that
    algorithm and slices are right. evidence: a level of hwsim.datafiles.provenance; "microbenchmark" where they are
    cuBLASLt's own answer for these sizes, "assumption" where it was not asked for such a call, so that the confidence
    is of the nearest one that it was asked for. seen: was the rule found with this version on this chip (or does none
    matter: integers)? is_estimated: the chip was not asked, and hwsim's estimate of time stands for the choice; then
    confidence is the share of cuBLASLt's answers on other chips that the same estimate gives. lost_k: how many of the
    last products of K the kernel does not add (the schedule has it).
    """

    algorithm: int
    family: str
    kernel: str
    split_k: int
    order_by_m: bool
    reduction: int
    custom: int
    tile: tuple[int, int] | None
    tile_k: int
    stages: int | None
    cluster: tuple[int, int] | None
    schedule: Schedule
    known: bool
    confidence: float
    evidence: str
    seen: bool
    is_estimated: bool = False
    lost_k: int = 0

    @property
    def order_evidence(self) -> str:
        """Evidence of the order of summation: that of the kernel, or none better than an assumption for its rule."""
        return self.evidence if self.known and self.seen else "assumption"


class _Found(NamedTuple):
    """An answer, recorded or fitted: cuBLASLt's numbers (id, stages, slices, reduction, custom option), those of tile,
    cluster and swizzle (None: not known yet), and how sure it is. estimate: where it is one; then `order` has the K of
    a stage for the stages."""

    order: tuple[int, ...]
    shape: tuple[int, ...] | None
    confidence: float
    evidence: str
    estimate: Estimate | None = None


def library(
    name: str | Path,
    *,
    device: str | Path | Mapping[str, Any] | Device,
    version: str | None = None,
    workspace_bytes: int | None = None,
    estimates: Callable[[Device, CallsModel, str], Estimates] | None = None,
) -> LibraryOnDevice:
    """As hwsim.library. estimates: for chips that the library was not asked on, by the rules of their library file and
    with the file of shares; None: those are refused.
    """
    if workspace_bytes is not None and (
        isinstance(workspace_bytes, bool) or not isinstance(workspace_bytes, int) or workspace_bytes < 0
    ):
        raise InputError(f"workspace_bytes = {workspace_bytes!r}; allowed: an integer of at least 0, None")
    if str(name).endswith(SUFFIX):
        return _from_file(Path(name), device, version, workspace_bytes)
    known = _version(str(name), version)
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
    found = estimates(chip, calls, known.shares)
    return LibraryOnDevice(known, chip.name, workspace_bytes, estimates=found, generation=found.generation)


def known_libraries() -> list[str]:
    """Their names."""
    return sorted({one.library for one in VERSIONS})


def has_seen_rules(id: LibraryId, device: str, cores: int) -> bool:
    """Whether the rules of the kernels' sums (`orders`) were found with this version on this chip; else they are
    assumed. device: as of `observed_as`; a chip of that name with other SMs was not asked.
    """
    return any(id == LibraryId(one.library, one.version) and one.devices.get(device) == cores for one in VERSIONS)


def rules_text() -> str:
    """With which versions and on which chips the rules of the kernels' sums were found."""
    return "; ".join(f"{one.library} {one.version} on {', '.join(one.devices)}" for one in VERSIONS)


def _version(name: str, version: str | None) -> Version:
    names = known_libraries()
    if name not in names:
        raise UnsupportedError(
            f"no library {name!r}; there is {', '.join(names)}, and files of answers ({SUFFIX}){nearest(name, names)}"
        )
    own = [one for one in VERSIONS if one.library == name]
    fits = [one for one in own if version in (None, one.version)]
    if not fits:
        known = ", ".join(repr(one.version) for one in own)
        raise UnsupportedError(f"{name}: no version {version!r}; there is {known}")
    return fits[0]


def observed_as(chip: Device) -> str:
    """The name under which answers for this chip stand."""
    seen = None if chip.library is None else chip.library.observations
    return chip.name if seen is None else seen


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
    versions = [one for one in VERSIONS if (one.library, one.version) == (own.library, own.version)]
    asked = [one for one in versions if one.devices.get(seen) == chip.cores]
    known = asked[0] if asked else replace(VERSIONS[0], version=own.version, devices={}, asked_on={}, **NO_FILES)
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
        return LibraryId(self.version.library, self.version.version)

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
        operand = operand_of(format, format_b)
        call = checked_call(m, n, k, operand, output, accumulate, a_layout, b_layout, batch)
        told = self._preference(call, bias, reductions)
        if operand == format == (format_b or format):
            return _chosen(self, told, call, _fast(call, accumulate), bias, batch)
        if reason := _not_whole(call, VECTOR_BYTES):
            sizes = f"{call.m} x {call.n} x {call.k}"
            raise UnsupportedError(f"cuBLASLt refuses {format} by {format_b}, {sizes}: {reason}")
        found = _chosen(self, told, call, _fast(call, accumulate), bias, batch)
        is_asked = self.version.was_asked(self.device, MIXED_FORMATS) and not bias and found.evidence != "assumption"
        evidence = self.version.evidence if is_asked else "assumption"
        return replace(found, confidence=found.confidence * MIXED_ALIKE, evidence=evidence)

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
        checked = checked_call(min(sizes_m, default=1), n, k, format, output, accumulate, a_layout, b_layout, 1)
        checked_call(max(sizes_m, default=1), n, k, format, output, accumulate, a_layout, b_layout, 1)
        told, fast = self._preference(checked, bias, reductions), _fast(checked, accumulate)
        found: dict[tuple[Any, ...], int] = {}
        choices: list[LibraryChoice] = []
        index: list[int] = []
        sure: list[float] = []
        answers = _answers(self, told, checked, sizes_m, fast, bias, 1, progress)
        for answer, m in zip(answers, sizes_m, strict=True):
            family = FAMILIES.get(answer.order[0])
            own = checked._replace(m=int(m))
            _, _, slices, _, custom = answer.order
            key = (answer.order, 0 if family is None else family.order_of_m(own, slices, custom))
            if key not in found:
                found[key] = len(choices)
                choices.append(_chosen(self, told, own, fast, bias, 1))
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
        call = checked_call(1, n, k, format, output, accumulate, a_layout, b_layout, 1)
        asked = _kind(self._preference(call, bias, reductions), call, _fast(call, accumulate), bias)
        kinds = self.answers.kinds(self.device, call.n, call.k)
        return [] if asked in kinds else [kind for kind in kinds if kind.operand == call.operand]

    def _preference(self, call: Call, bias: bool, reductions: Reductions | None) -> Preference:
        """What was said of workspace and reductions, and for the rest what the answers at hand were asked with."""
        if reductions is not None and (not isinstance(reductions, str) or reductions not in REDUCTION_MASKS):
            raise InputError(f"reductions = {reductions!r}; allowed: {', '.join(REDUCTION_MASKS)}, None")
        usual = PLAIN_CALL
        if self.answers is not None:
            usual = pytorch_call((call.n, call.k), format=call.operand, output=call.output, has_bias=bias)
        return Preference(
            usual.workspace_bytes if self.workspace_bytes is None else self.workspace_bytes,
            usual.reductions if reductions is None else reductions,
        )


def _fast(call: Call, accumulate: str | None) -> bool | None:
    return None if call.operand != "e4m3" else accumulate != "promoted"


def operand_of(format: str, format_b: str | None) -> str:
    """The format whose kernels multiply A of `format` by B of `format_b` (None: the same).

    Raises UnsupportedError for pairs that cuBLAS does not multiply.
    """
    if format_b in (None, format) and format != "e5m2":
        return format
    found = MIXED.get((format, str(format_b)))
    if found is None:
        pairs = ", ".join(f"{a} by {b}" for a, b in MIXED)
        raise UnsupportedError(f"cuBLAS multiplies no {format} by {format_b or format}; of two formats it does {pairs}")
    return found


def result_format(format: str) -> str:
    """The format of a result that a call does not name: the accumulator's."""
    return {"fp64": "fp64", "int8": "int32"}.get(format, "fp32")


def checked_call(
    m: int, n: int, k: int, format: str, output: str | None, accumulate: str | None, a: str, b: str, batch: int = 1
) -> Call:
    """The call with these sizes, formats and layouts. Raises InputError for values that are not allowed, and
    UnsupportedError for what cuBLASLt refuses.
    """
    for name, size in (("m", m), ("n", n), ("k", k), ("batch", batch)):
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or not 1 <= size <= MOST_SIZE:
            raise InputError(f"{name} = {size!r}; allowed: integers from 1 to {MOST_SIZE}")
    if not isinstance(format, str) or format not in ALLOWED_OUTPUTS:
        known = list(ALLOWED_OUTPUTS)
        raise UnsupportedError(f"format {format!r}: not one of {', '.join(known)}{nearest(str(format), known)}")
    wanted = result_format(format) if output is None else output
    if wanted not in ALLOWED_OUTPUTS[format]:
        raise UnsupportedError(f"{format} operands give {', '.join(ALLOWED_OUTPUTS[format])} in cuBLAS; got {wanted}")
    is_known = accumulate is None or (isinstance(accumulate, str) and accumulate in ACCUMULATES)
    if not is_known or (accumulate == "promoted" and format != "e4m3"):
        raise InputError(f"accumulate = {accumulate!r}; allowed: fast, promoted (e4m3 alone)")
    for name, layout in (("a_layout", a), ("b_layout", b)):
        if not isinstance(layout, str) or layout not in LAYOUTS:
            raise InputError(f"{name} = {layout!r}; allowed: rows, columns")
    call = Call(int(m), int(n), int(k), format, wanted, a, b)
    if reason := _refused(call, accumulate):
        raise UnsupportedError(f"cuBLASLt refuses {format} {m} x {n} x {k}: {reason}")
    return call


def _refused(call: Call, accumulate: str | None) -> str:
    """Why cuBLASLt refuses a GEMM; seen on all of 68,000 that it refused or took (tools/record/cublaslt_choices.py)."""
    if call.operand in K_MAJOR and (call.a_layout, call.b_layout) != ("rows", "columns"):
        return "8-bit operands are K-major: a_layout rows, b_layout columns"
    if call.operand == "int8" and call.k % 4:
        return "K must be a multiple of 4"
    if call.operand == "e4m3":
        return _not_whole(call, VECTOR_BYTES if accumulate == "promoted" or call.output == "fp32" else 4)
    return ""


def _not_whole(call: Call, grain: int) -> str:
    """Says that rows of 8-bit operands must be whole so many bytes, where they are not."""
    row = call.n * format_of(call.output).bits // 8
    return f"rows of A, B and C must be whole {grain} bytes" if call.k % grain or row % grain else ""


def _kind(told: Preference, call: Call, fast: bool | None, bias: bool) -> CallKind:
    """As files of answers key the call."""
    mask = REDUCTION_MASKS[told.reductions]
    return CallKind(call.operand, call.output, bias, fast, call.a_layout, call.b_layout, told.workspace_bytes, mask)


def _answers(
    asked: LibraryOnDevice,
    told: Preference,
    call: Call,
    sizes_m: Sequence[int],
    fast: bool | None,
    bias: bool,
    batch: int,
    progress: Callable[[float], None] | None = None,
) -> list[_Found]:
    """What the library answers for a call with each m: its own answers where they were recorded, else fitted ones, or
    those for nearly the same K where they are surer.

    Recorded answers are of single products; for a batch only a user's own stand, where nothing was fitted.
    """
    if asked.estimates is not None:
        estimated = []
        for place, m in enumerate(sizes_m):
            estimated.append(_estimated(asked.estimates, told, call._replace(m=int(m)), fast, batch))
            if progress is not None:
                progress((place + 1) / len(sizes_m))
        return estimated
    found: list[_Found | None] = [None] * len(sizes_m)
    kind = _kind(told, call, fast, bias)
    is_fitted = bool(_fitted(store(asked.version.path), asked, call, fast, batch > 1))
    files = [] if asked.answers is None or (batch > 1 and is_fitted) else [asked.answers]
    files += [shipped(asked.version.layers)] if asked.version.layers and batch == 1 else []
    for file in files:
        sweep = file.sweep(asked.device, kind)
        rows = [] if sweep is None else sweep.at(sizes_m, call.n, call.k)
        for place, row in enumerate(rows):
            if row is not None and row[0] == REFUSED_ID:
                raise UnsupportedError(
                    f"cuBLASLt refuses {sizes_m[place]} x {call.n} x {call.k}, {kind.text} ({file.path.name}); leave "
                    f"m = {sizes_m[place]} out, or take other sizes, formats or layouts"
                )
            if row is not None and found[place] is None:
                shape = row[5:] if row[5] >= 0 else None
                found[place] = _Found(row[:5], shape, 1.0, ANSWERED)
    missing: dict[bool, list[int]] = {}  # by whether m fits the alignment of a row, where A's rows are as long as m
    for place, one in enumerate(found):
        if one is None and batch > 1 and is_vector(sizes_m[place], call.n):
            found[place] = _vector_answer(asked, told, call._replace(m=int(sizes_m[place])), bias, batch)
        if found[place] is None:
            is_aligned = call.a_layout == "rows" or sizes_m[place] % _grain(call) == 0
            missing.setdefault(is_aligned, []).append(place)
    for places in missing.values():
        sizes = np.array([sizes_m[place] for place in places])
        fitted = _fitted_answers(asked, told, call, sizes, fast, bias, batch)
        beside = _beside(asked, kind, call, sizes, batch)
        for place, one, other in zip(places, fitted, beside, strict=True):
            is_surer = other is not None and other.confidence > one.confidence - ROUNDED
            found[place] = other if is_surer else one
    return [one for one in found if one is not None]


def _beside(
    asked: LibraryOnDevice, kind: CallKind, call: Call, sizes_m: NDArray[np.int64], batch: int
) -> list[_Found | None]:
    """What the library answered, for each m, for weights of the same n and nearly the same k; None where for none."""
    sweep = shipped(asked.version.layers).sweep(asked.device, kind) if asked.version.layers and batch == 1 else None
    if sweep is None:
        return [None] * len(sizes_m)
    answers = near(sweep, call.operand, sizes_m.tolist(), call.n, call.k)
    return [
        None if one is None else _Found(one.answer[:5], None, one.confidence, asked.version.evidence) for one in answers
    ]


def _estimated(own: Estimates, told: Preference, call: Call, fast: bool | None, batch: int) -> _Found:
    """The estimate for a call, on a chip that was not asked."""
    found = own.of(call, fast, batch, told.workspace_bytes)
    answer = found.answer
    order = (answer.algorithm, answer.tile_k or 0, answer.slices, answer.reduction, answer.custom)
    return _Found(order, None, found.confidence, "assumption", found)


def _fitted_answers(
    asked: LibraryOnDevice,
    told: Preference,
    call: Call,
    sizes_m: NDArray[np.int64],
    fast: bool | None,
    bias: bool,
    batch: int,
) -> list[_Found]:
    """What the trees give for sizes m of one alignment: the choice of one product with A by rows, then what another
    layout or a batch makes of it.
    """
    trees, first = store(asked.version.path), call._replace(m=int(sizes_m[0]))
    entry = _entry(trees, asked, told, first, fast, bias)
    sizes = sizes_m, np.full(len(sizes_m), call.n), np.full(len(sizes_m), call.k)
    values = features(*sizes)
    labels, sure = trees.tree(f"{entry.name}.order").leaves(values)
    further = [] if entry.biased else _further(trees, asked, first, fast, batch)
    for one in further:
        own = batch_features(*sizes, batch) if one.batched else values
        before = np.array(entry.order, np.float64)[labels].T
        labels, sure = trees.tree(f"{one.name}.order").leaves(np.concatenate([own, before]))
        entry = one
    # of fewer ways to reduce the choice was asked where it is another one; of more ways it was not
    is_asked = REDUCTION_MASKS[told.reductions] | entry.reductions == entry.reductions
    # where a bias changes the choice, models of products without one say nothing of those with one
    is_changed = any(one.biased for one in trees.entries if one.operand == call.operand)
    is_asked &= not bias or (call.operand not in BIAS_NOT_ASKED and entry.biased == is_changed)
    is_asked &= (entry.a_layout, entry.batched) == (call.a_layout, batch > 1)
    if entry.biased:  # a model of its own
        is_asked &= asked.version.was_asked(asked.device, BIASED)
    if entry.batched and entry.a_layout == "columns":
        is_asked &= asked.version.was_asked(asked.device, BATCHED_COLUMNS)
    evidence = asked.version.evidence if is_asked else "assumption"
    return [
        _Found(entry.order[label], None, confidence, evidence)
        for label, confidence in zip(labels.tolist(), sure.tolist(), strict=True)
    ]


def _vector_answer(asked: LibraryOnDevice, told: Preference, call: Call, bias: bool, batch: int) -> _Found | None:
    """What the trees give for a batch of matrix-vector products; None where they have none."""
    trees = store(asked.version.path)
    fits = [one for one in trees.vectors if call.operand in one.operands and asked.device in asked.version.devices]
    if not fits:
        return None
    label, sure = trees.tree(f"{fits[0].name}.order").leaf(facts(call, batch)[:, 0])
    usual = pytorch_call((call.n, call.k), format=call.operand, output=call.output, has_bias=False)
    is_asked = told == Preference(usual.workspace_bytes, usual.reductions) and not bias
    is_asked &= asked.version.was_asked(asked.device, VECTORS)
    return _Found(fits[0].order[label], None, sure, asked.version.evidence if is_asked else "assumption")


def _further(trees: Store, asked: LibraryOnDevice, call: Call, fast: bool | None, batch: int) -> list[Entry]:
    """The models that start from the choice of one product with A by rows: that of such calls, or where there is none,
    of A by columns, then of batches.
    """
    if own := _fitted(trees, asked, call, fast, batch > 1)[:1] if batch > 1 or call.a_layout == "columns" else []:
        return own
    found = _fitted(trees, asked, call, fast, False)[:1] if call.a_layout == "columns" else []
    by_rows = call._replace(a_layout="rows")
    return found + (_fitted(trees, asked, by_rows, fast, True, like=call)[:1] if batch > 1 else [])


@lru_cache(maxsize=CACHED)
def _chosen(
    asked: LibraryOnDevice, told: Preference, call: Call, fast: bool | None, bias: bool, batch: int
) -> LibraryChoice:
    """The choice for a call; asked for again and again by layers of a network."""
    (found,) = _answers(asked, told, call, [call.m], fast, bias, batch)
    if found.estimate is not None:
        answer, count = _with_tile(found.estimate, call), found.estimate.stages
    else:
        answer, count = _told(asked, told, call, fast, found)
    number, _, slices, reduction, custom, tile, cluster, *_ = answer
    order = order_of(call, answer)
    is_guess = batch > 1 and found.evidence == ANSWERED
    family = FAMILIES.get(number)
    name = family_name(number, asked.generation) or f"algorithm {number}"
    cublaslts = tile
    if found.estimate is not None:
        cluster = None
    if family is None or not family.is_across(call.b_layout):
        tile, cluster = _reversed(tile), _reversed(cluster)
    return LibraryChoice(
        algorithm=number,
        family=name,
        kernel=name if family is None else family.kernel(cublaslts, name),
        split_k=max(slices, 1),
        order_by_m=family is None or family.order_of_m(call, slices, custom) > 0,
        reduction=reduction,
        custom=custom,
        tile=tile,
        tile_k=answer.tile_k or 0,
        stages=count or None,
        cluster=cluster,
        schedule=order.schedule,
        known=order.known,
        confidence=found.confidence,
        evidence="assumption" if is_guess else found.evidence,
        seen=format_of(call.operand).is_integer
        or (asked.estimates is None and has_seen_rules(asked.id, asked.device, asked.cores)),
        is_estimated=found.estimate is not None,
        lost_k=order.lost_k,
    )


def _told(asked: LibraryOnDevice, told: Preference, call: Call, fast: bool | None, found: _Found) -> tuple[Answer, int]:
    """A recorded or fitted answer with its tile and cluster, as far as they are known; and the stages (0: not said)."""
    trees = store(asked.version.path)
    number, stages, slices, reduction, custom = found.order
    tile_k, count = trees.stages.get(stages, (None, 0))
    numbers = found.shape
    if numbers is None:
        values = np.append(features(call.m, call.n, call.k)[:, 0], [number, slices])
        numbers = _tile(trees, asked, told, call, fast, values)
    tile, cluster = (trees.tiles.get(numbers[0]), trees.clusters.get(numbers[1])) if numbers else (None, None)
    swizzle = numbers[2] if len(numbers) > 2 else 0
    answer = Answer(
        number, tile_k, slices, reduction, custom, tile, cluster, swizzle, asked.cores, asked.generation
    )  # fmt: skip
    return answer, count


def _with_tile(found: Estimate, call: Call) -> Answer:
    """An estimate's answer with its tile, as cuBLASLt would answer it."""
    family = FAMILIES.get(found.answer.algorithm)
    is_across = family is not None and family.is_across(call.b_layout)
    return found.answer._replace(tile=found.tile if is_across else found.tile[::-1])


def _grain(call: Call) -> int:
    """Elements of an operand in the 16 bytes that rows are aligned to."""
    return VECTOR_BYTES // ELEMENT_BYTES[call.operand]


def _fitted(
    trees: Store, asked: LibraryOnDevice, call: Call, fast: bool | None, batched: bool, like: Call | None = None
) -> list[Entry]:
    """The fitted models for calls with these operands, layouts and alignment, whatever the preference.

    like: the call whose alignment it is, where that has another layout.
    """
    aligned = row_bytes_of(like or call) == VECTOR_BYTES
    return [
        one
        for one in trees.entries
        if (one.operand, one.fast) == (call.operand, fast)
        and asked.device in one.devices
        and asked.device in asked.version.devices  # none of a version or chip that is known by a user's file alone
        and one.aligned in (None, aligned)
        and (one.a_layout, one.b_layout, one.batched) == (call.a_layout, call.b_layout, batched)
    ]


def _entry(trees: Store, asked: LibraryOnDevice, told: Preference, call: Call, fast: bool | None, bias: bool) -> Entry:
    """The fitted model for one product of a call, A by rows. Raises UnsupportedError where there is none."""
    fits = _fitted(trees, asked, call._replace(a_layout="rows"), fast, False, like=call)
    if asked.answers is not None and not fits:
        own, kind = asked.answers, _kind(told, call, fast, bias)
        raise UnsupportedError(
            f"{own.path}: no answer for {call.m} x {call.n} x {call.k}, {kind.full_text}"
            f"{_there(own.kinds(asked.device, call.n, call.k), kind)}, and no fitted choices for {own.library} "
            f"{own.version} on {asked.device}; record this call (hwsim library record)"
        )
    fits, mask = [one for one in fits if bias or not one.biased], REDUCTION_MASKS[told.reductions]
    exact = [one for one in fits if (one.workspace_bytes, one.reductions) == (told.workspace_bytes, mask)]
    # A narrower set of reductions was fitted only where it changes the choice.
    other = [one for one in fits if one.workspace_bytes == told.workspace_bytes]
    found = exact or other
    if not found:
        known = ", ".join(str(size) for size in sorted({one.workspace_bytes for one in fits}))
        raise UnsupportedError(
            f"no choices for {call.operand} with {told.workspace_bytes} bytes of workspace; known: {known or 'none'}"
        )
    return found[0]


def _there(kinds: list[CallKind], wanted: CallKind) -> str:
    """What a file has for a weight, in words; nothing where it has nothing."""
    if wanted in kinds:
        return " (it has this n and k for other m)"
    return f" (it has this n and k for {' and for '.join(kind.full_text for kind in kinds)})" if kinds else ""


def _reversed(pair: tuple[int, int] | None) -> tuple[int, int] | None:
    return None if pair is None else pair[::-1]


def _tile(
    trees: Store,
    asked: LibraryOnDevice,
    told: Preference,
    call: Call,
    fast: bool | None,
    values: np.ndarray[Any, Any],
) -> tuple[int, ...]:
    """cuBLASLt's numbers of tile, cluster, swizzle, by the model of another workspace if need be; () if not known."""
    own = call._replace(a_layout="rows")
    fits = [one for one in _fitted(trees, asked, own, fast, False, like=call) if one.tile is not None]
    wanted = (told.workspace_bytes, REDUCTION_MASKS[told.reductions])
    entry = next((one for one in fits if (one.workspace_bytes, one.reductions) == wanted), fits[0] if fits else None)
    if entry is None or entry.tile is None:
        return ()
    return entry.tile[trees.tree(f"{entry.name}.tile").leaf(values)[0]]
