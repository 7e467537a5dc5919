"""What the allocator keeps for the next product."""

import platform
import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys
import numpy as np
from hwsim.host.memory import keep_freed_pages

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        several = [np.ones(1 << 17) for _ in range(4)]  # 1 MiB each
        del several
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
before = faults()
keep_freed_pages()
faults()
print(before, faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc's allocator")
def test_freed_pages_are_taken_again(monkeypatch):
    for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES", "LD_PRELOAD"):
        monkeypatch.delenv(name, raising=False)
    done = subprocess.run([sys.executable, "-c", SCRIPT], check=True, capture_output=True, text=True)
    before, after = map(int, done.stdout.split())
    assert before > 20 * 256 and after < before / 10
