"""Surveys of a library's GEMMs: blocks of results recorded on hardware, and the search for the schedules behind them.

    python -m hwsim_lab.golden.survey FILE [--write SCHEDULES.json] [--no-names]

It knows what a kernel's name says (instruction, tile, alignment) and which schedules are worth a try; the bits come
from `hwsim._kernels`. It knows no dot unit and nothing of how the file was recorded but the drawing of operands
(lab/tools/record/cublas_survey.py).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hwsim._kernels import gemm
from hwsim._kernels.convert import encode
from hwsim.datafiles.archive import open_archive
from hwsim.devices import dot_spec, load
from hwsim.devices import instruction as model_of
from hwsim.errors import HwsimError, InputError
from hwsim.formats import format_of
from hwsim.gemm.problem import Problem
from hwsim.gemm.schedule import Epilogue, Schedule
from hwsim.golden.format import UnsignedCodes
from hwsim.host.files import check_writable, write_text
from hwsim.numerics.units import DotSpec, FmaChainUnit
from hwsim.resolve.prepare import prepare
from hwsim.schemes import scheme_of

if TYPE_CHECKING:
    from hwsim.devices.device import Device

Verdict = Literal["default", "split", "other", "no matrix unit", "not found"]

VERDICTS: tuple[Verdict, ...] = ("default", "split", "other", "no matrix unit", "not found")
SURVEYED = "h200"  # the device of the surveys there are
BLOCK = 24  # rows and columns of a block, at most: lab/tools/record/cublas_survey.py
MOST_SLICES = 64  # the survey of an H200 holds up to 53
VECTOR_BITS = 128  # of a load into shared memory: CUTLASS cuts K at whole ones where it does not at whole tiles
TILE_K = {"fp16": (32, 64, 128), "bf16": (32, 64, 128), "tf32": (16, 32)}  # of kernels whose name is not known
DEFAULT_TILE_K = 32  # of CUTLASS kernels whose name has no third number (cutlass_75_tensorop_s1688gemm_f16_128x128)
#: The instruction in a CUTLASS kernel's name; wmma's 16 x 16 x 16 is the mma of 16 on Hopper.
MMA = {"1688": "mma.m16n8k8.f32.{0}.{0}.f32", "16816": "mma.m16n8k16.f32.{0}.{0}.f32"}
MMA["161616"] = MMA["16816"]
PTX = {"fp16": "f16"}
CUTLASS = re.compile(
    r"cutlass_\d+_(?:wmma_)?tensorop_(?:\w+?_)?s(?P<mma>1688|16816|161616)gemm_(?:[a-z]+\d+_)?\d+x\d+"
    r"(?:_(?P<tile_k>\d+)x\d+)?_\w\w_align\d+"
)
NVJET = re.compile(r"nvjet_sm90_\w+?_\d+x\d+_(?P<tile_k>\d+)x\d+_\w+")


@dataclass(frozen=True, slots=True, eq=False)
class SurveyedGemm:
    """One GEMM, D = alpha A B + beta C. d: codes of the sampled rows and columns, at most 24 x 24.

    format: of A and B; output: of C and D. accumulate: "fast" or "promoted" for e4m3, else None. kernels: names of
    the device kernels and calls that the profiler saw, or nothing. seed: of the survey, for `operands`.
    """

    index: int
    m: int
    n: int
    k: int
    format: str
    output: str
    accumulate: Literal["fast", "promoted"] | None
    alpha: float
    beta: float
    kernels: tuple[str, ...]
    seed: int
    d: UnsignedCodes

    def operands(self) -> tuple[UnsignedCodes, UnsignedCodes, UnsignedCodes | None]:
        """Codes of the sampled rows of A, columns of B and elements of C (None with beta = 0), drawn again."""
        a, b, c = self.drawn()
        left, right = (encode(x, format_of(self.format)) for x in (a, b))
        return left, right, encode(c, format_of(self.output)) if self.beta else None

    def drawn(self) -> tuple[Any, Any, Any]:
        """The same operands before rounding to the formats: float32."""
        rng = np.random.default_rng([self.seed, self.index])
        rows = np.sort(rng.choice(self.m, min(self.m, BLOCK), replace=False))
        cols = np.sort(rng.choice(self.n, min(self.n, BLOCK), replace=False))
        a = rng.standard_normal((len(rows), self.k), np.float32)
        b = rng.standard_normal((self.k, len(cols)), np.float32)
        return a, b, rng.standard_normal((len(rows), len(cols)), np.float32)

    @property
    def is_aligned(self) -> bool:
        """Whether rows of A begin at multiples of 16 bytes, as TMA and CUTLASS's widest loads require."""
        return self.k * format_of(self.format).bits % VECTOR_BITS == 0


@dataclass(frozen=True, slots=True)
class Survey:
    """Recorded GEMMs of one library on one GPU. refused: number of calls that the library refused."""

    hardware: str
    torch: str
    cuda: str
    entries: tuple[SurveyedGemm, ...]
    refused: int


@dataclass(frozen=True, slots=True)
class ScheduleFinding:
    """The result of `search` for one GEMM: a verdict, and the schedule that reproduces its bits.

    agreeing: number of partitions of K, among those tried for this kernel, that reproduce the block; with 1 the block
    is decisive, which narrow outputs seldom are. Counted for "split" and "other" only.
    """

    verdict: Verdict
    schedule: Schedule | None = None
    agreeing: int = 0


@dataclass(frozen=True, slots=True)
class KernelNames:
    """What the names of a GEMM's kernels reveal. None: nothing.

    instruction: of the device, None for its native one. tile_k: elements of K per step of the main loop. is_split:
    split-K. reduces: the slices are merged by a kernel of their own. adds_half: alpha times the sum is rounded before C
    is added.
    """

    is_cutlass: bool
    instruction: str | None
    tile_k: int
    is_split: bool
    reduces: bool
    adds_half: bool


def read_survey(path: Path) -> Survey:
    """The survey in an archive of lab/tools/record/cublas_survey.py. Raises InputError for another file."""
    try:
        with open_archive(path) as archive:
            said = json.loads(str(archive["meta"]))
            valid = [entry for entry in said["entries"] if "error" not in entry]
            entries = tuple(
                SurveyedGemm(
                    **{name: entry[name] for name in ("index", "m", "n", "k", "format", "output", "accumulate")},
                    alpha=float(entry["alpha"]),
                    beta=float(entry["beta"]),
                    kernels=tuple(entry.get("kernels", ())),
                    seed=said["seed"],
                    d=archive[f"{entry['index']}/d"],
                )
                for entry in valid
            )
            return Survey(said["device"], said["torch"], said["cuda"], entries, len(said["entries"]) - len(valid))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            f"{path}: no survey of GEMMs ({error}); lab/tools/record/cublas_survey.py writes one"
        ) from None


def kernel_of(entry: SurveyedGemm) -> KernelNames | None:
    """What the names of the entry's kernels reveal; None where no name is recognised."""
    names = " ".join(entry.kernels)
    reduces = "splitKreduce" in names
    if match := CUTLASS.search(names):
        return KernelNames(
            is_cutlass=True,
            instruction=MMA[match["mma"]].format(PTX.get(entry.format, entry.format)),
            tile_k=int(match["tile_k"] or DEFAULT_TILE_K),
            is_split=reduces or "Memset" in names,  # the counters of blocks that wait for one another
            reduces=reduces,
            adds_half=False,
        )
    if match := NVJET.search(names):
        is_half = "_badd_" in match[0] and entry.output == "fp16"
        return KernelNames(False, None, int(match["tile_k"]), reduces, reduces, is_half)
    return None


def candidates(entry: SurveyedGemm, *, names: bool = True, device: str = SURVEYED) -> Iterator[Schedule]:
    """Schedules to try for a GEMM, the most likely first; the first is the default one.

    They follow from its shape, formats and alignment, and with `names` from the names of its kernels, where recognised.
    Alpha, beta and the output format are not included.
    """
    seen: set[Schedule] = set()
    for cut in _cuts(entry, kernel_of(entry) if names else None, device):
        for epilogue in _epilogues(entry, kernel_of(entry) if names else None):
            schedule = dataclasses.replace(cut, epilogue=epilogue)
            if schedule not in seen:
                seen.add(schedule)
                yield schedule


def find(
    entry: SurveyedGemm, *, names: bool = True, device: str = SURVEYED, like: Schedule | None = None
) -> Schedule | None:
    """The first candidate that reproduces the entry's block bit for bit, or None.

    like: the schedule of a GEMM of the same shape and format; candidates with as many slices come before others.
    """
    return search(entry, names=names, device=device, like=like).schedule


def search(
    entry: SurveyedGemm, *, names: bool = True, device: str = SURVEYED, like: Schedule | None = None
) -> ScheduleFinding:
    """Apply `find`, and report a verdict and how far the block decides it."""
    trial = Trial(entry, device)
    tried = list(candidates(entry, names=names, device=device))
    if trial.gives(tried[0]):
        return ScheduleFinding("default", tried[0])
    if like is not None:
        tried.sort(key=lambda schedule: schedule.split_k != like.split_k)
    first = next((schedule for schedule in tried if trial.gives(schedule)), None)
    if first is None:
        return ScheduleFinding("no matrix unit") if trial.is_fma_chain() else ScheduleFinding("not found")
    same = {s.k_partition(entry.k).slices for s in tried if s.epilogue == first.epilogue and trial.gives(s)}
    plain = dataclasses.replace(first, split_k=1, slice_multiple=None)
    return ScheduleFinding("split" if plain == Schedule() else "other", first, len(same))


class Trial:
    """An entry's operands, and a test whether a schedule reproduces its block."""

    def __init__(self, entry: SurveyedGemm, device: str = SURVEYED) -> None:
        self.entry = entry
        self.chip = _device(device)
        self.a, self.b, self.c = entry.operands()

    def gives(self, schedule: Schedule) -> bool:
        """Whether the schedule reproduces the block bit for bit; one row is tried first, where nearly all schedules
        fail.
        """
        return self._row(schedule) and bool(np.array_equal(self.block(schedule), self.entry.d))

    def _row(self, schedule: Schedule) -> bool:
        return bool(np.array_equal(self.block(schedule, 1), self.entry.d[:1]))

    def block(self, schedule: Schedule, rows: int | None = None) -> UnsignedCodes:
        """Codes of the first rows of the block (all, with None) by the native scheme under the schedule."""
        entry, part = self.entry, slice(rows)
        given = {} if entry.accumulate is None else {"accumulate": entry.accumulate}
        ready = prepare(
            self.chip,
            scheme_of("native"),
            Problem.of("fp32", self.a[part].shape[0], self.b.shape[1], self.a.shape[1], has_c=self.c is not None),
            format=entry.format,
            schedule=schedule,
            output=entry.output,
            scheme_options=given,
            alpha=entry.alpha,
            beta=entry.beta,
        )
        return ready.evaluate([self.a[part]], [self.b], c=None if self.c is None else self.c[part])

    def is_fma_chain(self) -> bool:
        """Whether fp32 FMAs of unrounded operands in order of K, then fma(alpha, acc, beta C), reproduce the block."""
        entry = self.entry
        if entry.output != "fp32" or entry.format != "tf32":
            return False
        a, b, c = (x.view(np.uint32) for x in entry.drawn())
        unit = DotSpec(FmaChainUnit(), "fp32", "fp32", "fp32", "fp32")
        value = gemm(unit, a, b)
        if entry.beta or entry.alpha != 1:
            scaled = (np.float32(entry.beta) * c.view(np.float32)).reshape(-1, 1).view(np.uint32)
            alpha = np.full((1, 1), entry.alpha, np.float32).view(np.uint32)
            value = gemm(unit, value.reshape(-1, 1), alpha, scaled).reshape(value.shape)
        return bool(np.array_equal(value, entry.d))


@cache
def _device(name: str) -> Device:
    return load(name)


def _cuts(entry: SurveyedGemm, kernel: KernelNames | None, device: str) -> Iterator[Schedule]:
    """Candidate partitions of K, without the epilogue: the default; for an unknown kernel, all that were ever found."""
    yield Schedule()
    if kernel is not None:
        yield from _cutlass(entry, kernel, device) if kernel.is_cutlass else _native(kernel)
        return
    bits = format_of(entry.format).bits
    if entry.is_aligned:
        yield from _native(KernelNames(False, None, 1024 // bits, True, True, False))
    for mma in ("161616", "1688") if entry.format in ("fp16", "bf16") else ("1688",):
        for tile_k in TILE_K.get(entry.format, ()):
            instruction = MMA[mma].format(PTX.get(entry.format, entry.format))
            for is_split in (False, True):
                yield from _cutlass(entry, KernelNames(True, instruction, tile_k, is_split, is_split, False), device)


def _native(kernel: KernelNames) -> Iterator[Schedule]:
    """Candidates with slices of whole tiles, by the device's own instruction."""
    if kernel.is_split:
        for count in range(2, MOST_SLICES + 1):
            yield Schedule(split_k=count, slice_multiple=kernel.tile_k)


def _cutlass(entry: SurveyedGemm, kernel: KernelNames, device: str) -> Iterator[Schedule]:
    """Candidates for CUTLASS's main loop: the remainder of a slice's K first; slices of whole tiles, or of whole
    vectors.
    """
    chip = _device(device)
    assert kernel.instruction is not None
    native = dot_spec(chip, chip.native[entry.format]).unit
    instruction = None if dot_spec(chip, kernel.instruction).unit == native else kernel.instruction
    vector = VECTOR_BITS // format_of(entry.format).bits
    step = model_of(chip, kernel.instruction).k
    multiples = (kernel.tile_k, vector) if entry.k % kernel.tile_k == 0 else (vector,)
    for multiple in multiples if kernel.is_split else multiples[:1]:
        for count in range(2, MOST_SLICES + 1) if kernel.is_split else (1,):
            is_serial = count > 1 and not kernel.reduces and bool(entry.beta) and entry.output == "fp32"
            cut = Schedule(
                instruction=instruction,
                split_k=count,
                slice_multiple=multiple if count > 1 else None,
                merge_into="output" if is_serial else "sum",
            )
            lengths = cut.slice_lengths(entry.k)
            if any(length > kernel.tile_k and length % kernel.tile_k % step for length in lengths):
                cut = dataclasses.replace(cut, remainder="first", tile_k=kernel.tile_k)
            yield cut  # a rest of whole instructions is the same bits in order


def _epilogues(entry: SurveyedGemm, kernel: KernelNames | None) -> Iterator[Epilogue]:
    """Candidate epilogues: the default; where C is added, those observed: alpha acc rounded to fp16, another
    contraction.
    """
    yield Epilogue()
    if not entry.beta:
        return
    if entry.output == "fp16" and (kernel is None or kernel.adds_half):
        yield Epilogue(product_format="fp16")
    if {entry.alpha, entry.beta} != {1.0} and (kernel is None or kernel.is_cutlass):
        yield Epilogue(contraction="alpha")
        yield Epilogue(contraction="beta")
        yield Epilogue(contraction="none")


def search_all(survey: Survey, *, names: bool = True, device: str = SURVEYED) -> dict[int, ScheduleFinding]:
    """Run `search` for every entry, by index. FP32 outputs with beta = 0 come first, because they are the most
    decisive.
    """
    found: dict[int, ScheduleFinding] = {}
    models: dict[tuple[int, int, int, str], Schedule] = {}
    for entry in sorted(survey.entries, key=lambda entry: (entry.output != "fp32", entry.beta != 0, entry.index)):
        key = (entry.m, entry.n, entry.k, entry.format)
        found[entry.index] = search(entry, names=names, device=device, like=models.get(key))
        schedule = found[entry.index].schedule
        if schedule is not None:
            models.setdefault(key, schedule)
    return dict(sorted(found.items()))


def report(survey: Survey, found: Mapping[int, ScheduleFinding]) -> str:
    """A Markdown table: GEMMs of each kind by verdict, and those found whose block does not decide the partition
    of K.
    """
    rows: dict[tuple[str, str, str, str], Counter[str]] = {}
    for entry in survey.entries:
        got = found[entry.index]
        accumulate = f", {entry.accumulate}" if entry.accumulate else ""
        key = (entry.format + accumulate, entry.output, f"{entry.alpha:g}", f"{entry.beta:g}")
        for tally in (rows.setdefault(key, Counter()), rows.setdefault(("all", "", "", ""), Counter())):
            tally[got.verdict] += 1
            tally["open"] += got.agreeing > 1
    columns: tuple[str, ...] = (*VERDICTS, "open")
    lines = [
        f"{len(survey.entries)} GEMMs; {survey.hardware}, CUDA {survey.cuda}, PyTorch {survey.torch}.",
        "",
        f"| operands | output | alpha | beta | GEMMs | {' | '.join(columns)} |",
        f"| {' | '.join(['---'] * (5 + len(columns)))} |",
    ]
    for key, tally in sorted(rows.items(), key=lambda row: row[0][0] == "all"):
        total = sum(tally[verdict] for verdict in VERDICTS)
        lines.append(f"| {' | '.join((*key, str(total), *(str(tally[name]) for name in columns)))} |")
    return "\n".join(lines) + "\n"


def to_json(found: Mapping[int, ScheduleFinding]) -> str:
    """The schedules other than the default, by index; of each only the fields that differ."""
    listed = {
        str(index): {"verdict": got.verdict, "agreeing": got.agreeing, "schedule": _said(got.schedule)}
        for index, got in found.items()
        if got.schedule is not None and got.verdict != "default"
    }
    return "{\n" + ",\n".join(f'"{index}": {json.dumps(row)}' for index, row in listed.items()) + "\n}\n"


def from_json(text: str) -> dict[int, ScheduleFinding]:
    """Parse what `to_json` wrote."""
    return {
        int(index): ScheduleFinding(row["verdict"], Schedule.from_dict(row["schedule"]), row["agreeing"])
        for index, row in json.loads(text).items()
    }


def _said(schedule: Schedule) -> dict[str, Any]:
    plain, said = Schedule().to_dict(), schedule.to_dict()
    given = _changed(said, plain)
    if "epilogue" in given:
        given["epilogue"] = _changed(said["epilogue"], plain["epilogue"])
    return given


def _changed(said: Mapping[str, Any], plain: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in said.items() if value != plain[name]}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns 0, or 2 where the file cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m hwsim_lab.golden.survey", description="schedules behind a survey")
    parser.add_argument("file", type=Path, help="archive of lab/tools/record/cublas_survey.py")
    parser.add_argument("--device", default=SURVEYED, help=f"hwsim's name of the GPU (default: {SURVEYED})")
    parser.add_argument("--no-names", action="store_true", help="search without the names of the kernels")
    parser.add_argument("--write", type=Path, help="JSON file for the schedules found")
    given = parser.parse_args(arguments)
    try:
        if given.write is not None:
            check_writable(given.write)
        survey = read_survey(given.file)
        found = search_all(survey, names=not given.no_names, device=given.device)
        if given.write is not None:
            write_text(given.write, to_json(found))
    except HwsimError as error:
        parser.exit(2, f"{error}\n")
    print(report(survey, found))
    for entry in _missed(survey.entries, found):
        print(f"{found[entry.index].verdict}: {entry.index}, {entry.m} x {entry.n} x {entry.k} {entry.format}")
    return 0


def _missed(entries: Iterable[SurveyedGemm], found: Mapping[int, ScheduleFinding]) -> list[SurveyedGemm]:
    return [entry for entry in entries if found[entry.index].schedule is None]


if __name__ == "__main__":
    raise SystemExit(main())
