"""What repeated runs and refusals leave behind: in CPython's lists of free tuples, and for the garbage collector.

A tuple made of an iterator of unknown length (`tuple(x for ...)`, `tuple(map(...))`) takes a block for ten elements
and comes to rest in the list of its own length, which then grows by one with each run, to 2,000 of each length: half
a megabyte and more. A tuple made of a list takes the block that the last one left.
"""

from __future__ import annotations

import contextlib
import gc
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import hwsim
from hwsim.errors import HwsimError

RUNS = 80
PROGRAM = """
import gc, json, os, re, sys, tempfile
import numpy as np
import hwsim

def free():
    with tempfile.TemporaryFile() as said:
        before = os.dup(2)
        os.dup2(said.fileno(), 2)
        sys._debugmallocstats()
        os.dup2(before, 2)
        said.seek(0)
        found = re.findall(r"^ *(\\d+) free (\\d+)-sized PyTupleObject", said.read().decode(), re.MULTILINE)
    return {length: int(count) for count, length in found}

def product(index, device, scheme, options):
    rng = np.random.default_rng(index)
    a, b = rng.standard_normal((17, 96)).astype(np.float32), rng.standard_normal((96, 33)).astype(np.float32)
    hwsim.run(a, b, device=device, scheme=scheme, **options)

asked, runs = json.loads(sys.argv[1]), int(sys.argv[2])
for index in range(20):
    product(index, *asked)
gc.collect()
product(20, *asked)
before = free()
for index in range(runs):
    product(index, *asked)
print(json.dumps({length: count - before.get(length, 0) for length, count in free().items()}))
"""


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="the lists are written in another form")
@pytest.mark.parametrize(
    ("device", "scheme", "options"),
    [
        ("h200", "native", {"format": "fp16"}),
        ("h200", "native", {"format": "fp16", "timing": False}),
        ("h200", "bf16x9", {}),
    ],
)
def test_runs_leave_no_tuples_of_a_length_that_they_do_not_take_again(device, scheme, options):
    words = [sys.executable, "-c", PROGRAM, json.dumps([device, scheme, options]), str(RUNS)]
    grown = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert grown and max(grown.values()) < RUNS // 2, grown  # of Python 3.12 and later 30 in any number of runs


A, B = np.ones((4, 8), np.float32), np.ones((8, 3), np.float32)
REFUSED: dict[str, Callable[[Path], object]] = {
    "name": lambda _: hwsim.device("none"),
    "mapping": lambda _: hwsim.device({"schema_version": 1, "a": {"b": [1, object()]}}),
    "key": lambda _: hwsim.device({"a" * 300: 1}),
    "text": lambda file: hwsim.device(file),
    "shapes": lambda _: hwsim.run(A, A, device="h200"),
    "option": lambda _: hwsim.run(A, B, device="h200", scheme="bf16x9", k_group=-3),
    "unit": lambda _: hwsim.run(A, B, device="v100", scheme="bf16x9", accumulation="fastf32"),
    "tile": lambda _: hwsim.run(A, B, device="h200", tile=(1000, 1000, 1000)),
    "program": lambda _: hwsim.run(A * np.inf, B, device="h200", scheme="ozaki-int8", functional=True),
    "memory": lambda _: hwsim.run(m=10**6, n=10**6, k=10**6, device="h200"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_refusals_leave_no_cycles_of_references(kind: str, tmp_path: Path) -> None:
    """What is in one stays in memory until the garbage collector comes."""
    (tmp_path / "device.yaml").write_text("schema_version: 1\nname: x\nextends: h200\nwrong: [3, {x: 1}]\n")

    with pytest.raises(HwsimError):
        REFUSED[kind](tmp_path / "device.yaml")
    gc.disable()
    gc.freeze()  # what other tests left does not count, nor takes the collector's time; it stays so (conftest.py)
    try:
        with contextlib.suppress(HwsimError):
            REFUSED[kind](tmp_path / "device.yaml")
        assert gc.collect() == 0
    finally:
        gc.enable()
