"""Recording of golden sets: runs instructions on drawn or given operands and stores the results.

What runs the instructions is a `Runner`: the recorder's library on a GPU, or a simulator, which gives the `self` sets.
It knows files and distributions; no unit and no device file.
"""

from __future__ import annotations

import datetime
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np

from hwsim.devices import names
from hwsim.errors import InputError
from hwsim.golden.format import GoldenSet, Meta, UnsignedCodes, read_sets, write_sets
from hwsim.golden.recorder import DEFAULT_WGMMA_N, Recorder, build, driver_version, select
from hwsim.operands.code_draws import DISTRIBUTIONS, draw
from hwsim.operands.matrix_product import MatrixProduct


class Runner(Protocol):
    """A function that runs an instruction: codes a (cases, M, K), b (cases, N, K), c (cases, M, N) in, d (cases, M, N)
    out.
    """

    def __call__(
        self, name: str, a: UnsignedCodes, b: UnsignedCodes, c: UnsignedCodes, scale_d: int = 0
    ) -> UnsignedCodes: ...


def stream(seed: int, instruction: MatrixProduct, distribution: str, index: int = 0) -> np.random.Generator:
    """The random generator of one batch; it depends only on the seed, the names and the index."""
    words = [seed, index, *instruction.name.encode(), 0, *distribution.encode()]
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(words)))


def drawn(
    instructions: Iterable[MatrixProduct], distributions: Sequence[str], cases: int, seed: int
) -> Iterator[GoldenSet]:
    """Sets of operands without results. Raises InputError for an unknown distribution or no cases."""
    if cases < 1:
        raise InputError(f"cases: at least 1 is needed; got {cases}")
    for instruction in instructions:
        for distribution in distributions:
            a, b, c = draw(distribution, stream(seed, instruction, distribution), instruction, cases)
            yield GoldenSet(instruction.name, distribution, a, b, c, None)


def with_results(sets: Iterable[GoldenSet], run: Runner) -> Iterator[GoldenSet]:
    """The sets with d as computed by the runner; existing results are replaced."""
    for golden in sets:
        scale = int(golden.scales["scale_d"]) if "scale_d" in golden.scales else 0
        yield replace(golden, d=run(golden.instruction, golden.a, golden.b, golden.c, scale))


def record(
    out: Path,
    *,
    instructions: Sequence[str] | None = None,
    distributions: Sequence[str] = tuple(DISTRIBUTIONS),
    cases: int = 48,
    seed: int = 1,
    operands: Path | None = None,
    device: str = "",
    arch: str | None = None,
    wgmma_n: tuple[int, ...] = DEFAULT_WGMMA_N,
    note: str = "",
    recorder: Recorder | None = None,
) -> int:
    """Run instructions on this machine's GPU and write the golden file `out`. Returns the number of results.

    instructions: names or patterns with *; None: all that the GPU has. operands: a golden file whose operands to run
    instead of drawn ones. device: hwsim's name of it; default: the one that the GPU's name contains.
    arch, wgmma_n: of the library that is built; recorder: an opened one instead.
    Raises UnsupportedError without nvcc or a GPU, InputError for names that do not fit.
    """
    if recorder is None:
        recorder = Recorder(build(arch, wgmma_n=wgmma_n))
    gpu = recorder.gpu()
    if operands is not None:
        chosen = {entry.name for entry in select(recorder.instructions, instructions)}
        sets: Iterable[GoldenSet] = (golden for golden in read_sets(operands) if golden.instruction in chosen)
    else:
        sets = drawn(select(recorder.instructions, instructions), distributions, cases, seed)
    meta = Meta(
        "silicon",
        device or device_name(gpu.name, [name for name, _ in names()]),
        gpu.name,
        f"{driver_version()}, CUDA {gpu.driver_cuda // 1000}.{gpu.driver_cuda % 1000 // 10}",
        today(),
        command_line(),
        note=note,
    )
    return write_sets(out, with_results(sets, recorder.run), meta)


def device_name(gpu: str, names: Sequence[str]) -> str:
    """The longest of `names` that consists of whole words of a GPU's name ("NVIDIA RTX PRO 6000": rtxpro6000).

    Raises InputError where there is none.
    """
    words = re.findall(r"[a-z0-9]+", gpu.lower())
    spans = {"".join(words[i:j]) for i in range(len(words)) for j in range(i + 1, len(words) + 1)}
    matching = sorted((name for name in names if name in spans), key=len)
    if not matching:
        raise InputError(f"none of hwsim's devices is called like the GPU {gpu!r}; give device=")
    return matching[-1]


def today() -> str:
    """The current date in UTC, ISO 8601."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def command_line() -> str:
    """The command line of this process, with the program's name without folders."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
