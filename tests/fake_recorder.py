"""A recorder of matrix instructions whose chip is the simulator."""

from pathlib import Path

import numpy as np
import pytest

from hwsim.golden import simulated
from hwsim.golden.instructions import parse
from hwsim.golden.recorder import Gpu

WGMMA = "wgmma.m64n8k16.f32.f16.f16"


class FakeGpu:
    """A recorder whose chip is the simulator, but for one instruction whose results have a wrong bit."""

    def __init__(self, library):
        names = (
            WGMMA,
            "wgmma.m64n64k16.f32.f16.f16",
            "wmma.m16n16k16.f32.f16.f16.f32",
            "mma.m16n8k8.f32.tf32.tf32.f32",
        )
        self.instructions = {name: parse(name) for name in names}

    def gpu(self):
        return Gpu("NVIDIA H200", 90, 13000, 13000)

    def run(self, name, a, b, c, scale_d=0):
        d = simulated.mma("h200", name, a, np.swapaxes(b, 1, 2), c)
        return d ^ np.uint32(name.startswith("mma."))


def put_in(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    """Let modules that record take this recorder for the one that nvcc builds."""
    for module in modules:
        monkeypatch.setattr(f"{module}.build", lambda *_, **__: Path("no library"))
        monkeypatch.setattr(f"{module}.Recorder", FakeGpu)
        monkeypatch.setattr(f"{module}.driver_version", lambda: "580")
