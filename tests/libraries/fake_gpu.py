"""A machine without a GPU that stands for one: a heuristic with rules of its own, and a runner that asks hwsim."""

from dataclasses import dataclass, field

import numpy as np

import hwsim
from hwsim.libraries.recording.compare import Ran
from hwsim.libraries.recording.cublaslt import REFUSED, LtAnswer
from hwsim.libraries.recording.machine import GpuFacts, Machine

NVJET, STAGES, COMPUTE_TYPE = 66, 31, 2
TILE, CLUSTER = 20, 2


def answer(slices):
    """nvjet with so many slices."""
    return LtAnswer(NVJET, TILE, STAGES, slices, COMPUTE_TYPE if slices > 1 else 0, 0, 5, 0, CLUSTER)


def slices_at(m):
    """Of the made-up library: 2 at m = 1, 3 from 100 on, 1 else."""
    return 2 if m == 1 else 3 if m >= 100 else 1


@dataclass
class FakeHeuristic:
    """Answers by `slices_at`; m = 13 is refused. calls: what it was asked; fixed: one answer to all."""

    version: int = 130100
    calls: list = field(default_factory=list)
    fails_after: int | None = None
    fixed: LtAnswer | None = None

    def ask(self, kind, m, n, k, *, a_columns, b_columns, workspace, reductions):
        """cuBLASLt's answer."""
        self.calls.append((kind, m, n, k, a_columns, b_columns, workspace, reductions))
        if self.fails_after is not None and len(self.calls) > self.fails_after:
            raise RuntimeError("the device fell off the bus")
        if self.fixed is not None:
            return self.fixed
        return REFUSED if m == 13 else answer(slices_at(m))


@dataclass
class FakeRunner:
    """hwsim's bits with the slices of `slices_at`, beside the library's file; wrong: of one result one bit is another;
    problem: of all GEMMs."""

    device: str = "h200"
    wrong: bool = False
    problem: str = ""

    def run(self, shape, block):
        """The block's bits and a time."""
        if self.problem:
            raise RuntimeError(self.problem + "\nmore of it")
        m, _, k = shape.sizes
        form = shape.form
        step = 128 // np.dtype(block.a.dtype).itemsize
        length = -(-(k // slices_at(m)) // step) * step
        lengths = [min(length, k - start) for start in range(0, k, length)]
        d = hwsim.matmul(
            block.a, block.b, bias=block.bias, device=self.device, format=form.format, output=form.output,
            schedule={"slice_k": lengths} if len(lengths) > 1 else None,
        )  # fmt: skip
        words = np.ascontiguousarray(d).view(f"i{d.dtype.itemsize}").copy()
        if self.wrong:
            words[1, 2] ^= 1
        return Ran(words, 12.5, ("nvjet_made_up",))


def machine(*, cores=132, name="NVIDIA H200", runner=None, **heuristic):
    """A machine like an H200's."""
    return Machine(GpuFacts(name, cores, "580.1", "13.0"), FakeHeuristic(**heuristic), runner)
