"""Campaigns: many random results of hardware and simulator, compared bit for bit and discarded; a summary is kept.

Operands are drawn and simulated by threads while the GPU, one call at a time, runs an earlier batch. It knows no dot
unit and no device file.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from hwsim.devices import names
from hwsim.errors import InputError
from hwsim.golden.format import GoldenSet, UnsignedCodes
from hwsim.golden.recorder import DEFAULT_WGMMA_N, Recorder, build, driver_version, select
from hwsim.golden.recording import Runner, command_line, device_name, stream, today
from hwsim.golden.verify import Mismatch, Mma, compute, describe
from hwsim.host.files import make_folder, write_text
from hwsim.host.threads import worker_count
from hwsim.operands.code_draws import DISTRIBUTIONS, draw
from hwsim.operands.matrix_product import MatrixProduct

#: Most results of one batch: large enough that the GPU's call costs little, small enough to share the work out.
BATCH_RESULTS = 1 << 20
PROGRESS_SECONDS = 15.0


@dataclass(slots=True)
class Tally:
    """Counts of one instruction and distribution: results, mismatches, special values."""

    results: int = 0
    mismatches: int = 0
    special: int = 0


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary of a campaign. special: results that are infinities or NaNs. seconds: wall time.

    skipped: instructions that the GPU has and the simulated device has not.
    """

    hardware: str
    driver: str
    device: str
    seed: int
    seconds: float
    command: str
    date: str
    counts: dict[tuple[str, str], Tally] = field(default_factory=dict)
    first: tuple[Mismatch, ...] = ()
    skipped: tuple[str, ...] = ()

    @property
    def results(self) -> int:
        """Number of results compared."""
        return sum(entry.results for entry in self.counts.values())

    @property
    def mismatches(self) -> int:
        """Number of results that differ."""
        return sum(entry.mismatches for entry in self.counts.values())

    def to_json(self) -> dict[str, Any]:
        """Plain data for json.dumps."""
        names = ("hardware", "driver", "device", "seed", "seconds", "command", "date", "results", "mismatches")
        plain = {name: getattr(self, name) for name in names}
        rows = [{"instruction": key[0], "distribution": key[1], **asdict(entry)} for key, entry in self.counts.items()]
        first = [asdict(miss) for miss in self.first]
        return {**plain, "counts": rows, "first": first, "skipped": list(self.skipped)}

    def to_markdown(self) -> str:
        """A table: one row per instruction, the mismatches of each distribution, results, special results."""
        names = list(dict.fromkeys(distribution for _, distribution in self.counts))
        lines = [
            f"{self.results:,} results, {self.mismatches:,} differ; {self.hardware}, driver {self.driver}, against "
            f"device `{self.device}`; seed {self.seed}, {self.seconds:.0f} s, {self.date}.",
            "",
            f"`{self.command}`",
            "",
            f"| instruction | results | infinities, NaNs | differ: {' | '.join(names)} |",
            f"| --- | --- | --- | {' | '.join('---' for _ in names)} |",
        ]
        for instruction in dict.fromkeys(name for name, _ in self.counts):
            row = [self.counts.get((instruction, name), Tally()) for name in names]
            cells = [str(entry.mismatches) if entry.results else "-" for entry in row]
            lines.append(
                f"| `{instruction}` | {sum(entry.results for entry in row):,} "
                f"| {sum(entry.special for entry in row):,} | {' | '.join(cells)} |"
            )
        if self.skipped:
            skipped = ", ".join(f"`{name}`" for name in self.skipped)
            lines += ["", f"Not compared, because the device file has no such instruction: {skipped}."]
        return "\n".join(lines) + "\n"

    def write(self, folder: Path) -> None:
        """Write campaign.json and campaign.md to a folder."""
        make_folder(folder)
        write_text(folder / "campaign.json", json.dumps(self.to_json(), indent=1) + "\n")
        write_text(folder / "campaign.md", self.to_markdown())


def campaign(
    run: Runner,
    simulate: Callable[[GoldenSet], UnsignedCodes],
    instructions: Sequence[MatrixProduct],
    *,
    summary: Summary,
    distributions: Sequence[str] = tuple(DISTRIBUTIONS),
    outputs: int = 10**9,
    seconds: float = 480.0,
    threads: int | None = None,
    keep: int = 20,
    batch_results: int | None = None,
    progress: Callable[[Summary], None] | None = None,
) -> Summary:
    """Draw, run, simulate and compare, until `outputs` results or `seconds`, for every instruction and distribution in
    turn.

    run: the hardware, called from one thread. simulate: the simulator, called from several. summary: a record with the
    facts of the run; it comes back with the counts. keep: mismatches described, at most 3 of each instruction and
    distribution. batch_results: results of one batch; the default fits `outputs`. Raises InputError when there is
    nothing to run; a batch's error ends the campaign.
    """
    pairs = [(instruction, name) for instruction in instructions for name in distributions]
    if not pairs or outputs < 1 or seconds <= 0:
        raise InputError("campaign: instructions, distributions, outputs and seconds must not be empty or zero")
    threads = worker_count(threads)
    # Small enough that a campaign that runs to its end meets every pair at least twice.
    batch = batch_results if batch_results is not None else max(min(BATCH_RESULTS, outputs // (2 * len(pairs))), 1)
    counts = {(instruction.name, name): Tally() for instruction, name in pairs}
    first: list[Mismatch] = []
    start = time.monotonic()
    submitted, told = 0, start

    def prepare(index: int) -> tuple[GoldenSet, UnsignedCodes]:
        instruction, name = pairs[index % len(pairs)]
        cases = max(batch // (instruction.m * instruction.n), 1)
        a, b, c = draw(name, stream(summary.seed, instruction, name, index), instruction, cases)
        golden = GoldenSet(instruction.name, name, a, b, c, None)
        return golden, simulate(golden)

    def settle(done: Future[tuple[GoldenSet, UnsignedCodes]]) -> None:
        golden, computed = done.result()
        silicon = run(golden.instruction, golden.a, golden.b, golden.c)
        tally = counts[golden.instruction, golden.name]
        tally.results += silicon.size
        tally.special += _specials(golden.instruction, silicon)
        if np.array_equal(silicon, computed):
            return
        wrong = np.argwhere(silicon != computed)
        described = min(max(3 - tally.mismatches, 0), keep - len(first))
        tally.mismatches += len(wrong)
        known = replace(golden, d=silicon)
        for at in wrong[:described]:
            first.append(describe("", summary.device, known, computed, tuple(int(i) for i in at)))

    def so_far() -> Summary:
        return replace(summary, seconds=time.monotonic() - start, counts=counts, first=tuple(first))

    waiting: deque[Future[tuple[GoldenSet, UnsignedCodes]]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for index in count():
            instruction, _ = pairs[index % len(pairs)]
            if submitted >= outputs or time.monotonic() - start > seconds:
                break
            waiting.append(pool.submit(prepare, index))
            submitted += max(batch // (instruction.m * instruction.n), 1) * instruction.m * instruction.n
            if len(waiting) > threads + 2:
                settle(waiting.popleft())
                if progress is not None and time.monotonic() - told > PROGRESS_SECONDS:
                    told = time.monotonic()
                    progress(so_far())
        while waiting:
            settle(waiting.popleft())
    return so_far()


def _specials(instruction: str, codes: UnsignedCodes) -> int:
    """Number of infinities and NaNs among result codes; 0 for integers."""
    infinity = {8: 0x7FF << 52, 4: 0xFF << 23, 2: 0x1F << 10}[codes.dtype.itemsize]
    if ".s32." in instruction:
        return 0
    return int(np.count_nonzero((codes & codes.dtype.type(infinity)) == codes.dtype.type(infinity)))


def campaign_on_gpu(
    mma: Mma,
    device: str = "",
    *,
    has: Callable[[str, str], bool] | None = None,
    instructions: Sequence[str] | None = None,
    distributions: Sequence[str] = tuple(DISTRIBUTIONS),
    outputs: int = 10**9,
    seed: int = 1,
    seconds: float = 480.0,
    threads: int | None = None,
    arch: str | None = None,
    wgmma_n: tuple[int, ...] = DEFAULT_WGMMA_N,
    out: Path | None = None,
    progress: Callable[[Summary], None] | None = None,
) -> Summary:
    """A campaign of this machine's GPU against `mma` on `device` (hwsim's name). `out`: folder for the summary.

    device: "" selects the one that the GPU's name contains. has(device, instruction): whether `mma` supports it; others
    are left out and named in the summary. instructions: names or patterns with *; None: all that were built. Raises
    UnsupportedError without nvcc or a GPU.
    """
    recorder = Recorder(build(arch, wgmma_n=wgmma_n))
    gpu = recorder.gpu()
    device = device or device_name(gpu.name, [name for name, _ in names()])
    chosen = select(recorder.instructions, instructions)
    skipped = tuple(entry.name for entry in chosen if has is not None and not has(device, entry.name))
    summary = Summary(gpu.name, driver_version(), device, seed, 0.0, command_line(), today(), skipped=skipped)
    found = campaign(
        recorder.run,
        lambda golden: compute(mma, device, golden),
        [entry for entry in chosen if entry.name not in skipped],
        summary=summary,
        distributions=distributions,
        outputs=outputs,
        seconds=seconds,
        threads=threads,
        progress=progress,
    )
    if out is not None:
        found.write(out)
    return found
