"""Which builds of the kernels run here: those whose instruction sets the processor has, as the system says."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from hwsim import _kernels

CPUINFO = Path("/proc/cpuinfo")
#: Flags as Linux spells them; abm is LZCNT's.
AVX2 = {"avx2", "fma", "f16c", "bmi1", "bmi2", "abm", "popcnt"}
AVX512 = AVX2 | {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"}


@pytest.mark.skipif(not CPUINFO.exists() or platform.machine() != "x86_64", reason="needs x86-64 Linux")
def test_the_builds_are_those_that_the_processor_runs() -> None:
    (flags, *_) = (
        set(line.partition(":")[2].split()) for line in CPUINFO.read_text().splitlines() if line.startswith("flags")
    )
    expected = ["baseline", *(["avx2"] if flags >= AVX2 else []), *(["avx512"] if flags >= AVX512 else [])]
    assert list(_kernels.variants) == expected
