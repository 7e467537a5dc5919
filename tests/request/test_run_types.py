"""Type checkers read calls of hwsim.run: wrong names and values are refused, valid calls are not."""

from __future__ import annotations

import inspect
import re
import typing
from pathlib import Path

import pytest

import hwsim
from hwsim.request import generate, run_options
from hwsim.request.declarations import declared, declared_by_name

ROOT = Path(__file__).parents[2]
REFUSED = """\
import hwsim
hwsim.run(m=64, formt="fp16")
hwsim.run(m=64, exact="yes")
hwsim.run(m=64, tiel=(1, 2))
hwsim.run(m="64")
hwsim.run(split_k="four")
hwsim.run(scheme=3)
hwsim.matmul(1, 2, formt="fp16")
hwsim.run().error["relativ"].mean
hwsim.run().phases[0].cycle
hwsim.run().evidence["numrics"]
"""
ACCEPTED = """\
from pathlib import Path
from typing import Any
import numpy as np
import hwsim
from hwsim.gemm.schedule import Schedule
from hwsim.schemes import Scheme

a, b = np.ones((4, 4), np.float32), np.ones((4, 4), np.float32)
more: dict[str, Any] = {"option_of_a_plug_in": 3}
def mine(scheme: Scheme) -> Scheme:
    return scheme(products=4)
r = hwsim.run(a, b, np.ones((4, 4)), device="h200", format="fp16", alpha=2, beta=0.5, bias=np.ones(4), exact=True)
hwsim.run(m=64, n=64, k=64, tile=(64, 64, 64), split_k="auto", stages=3, swizzle=None, exact=False, functional=None)
hwsim.run(m=64, tile={"m": 64, "n": 64, "k": 64}, library="cublas", a_layout="columns", grid=(1, 2))
hwsim.run(m=64, library=Path("answers.npz"), schedule=Schedule(), seed=3, threads=1, clock_mhz=1000.0)
hwsim.run(a, b, rows=slice(0, 2), cols=[1, 2], shape=(8, 8), at=(range(4), np.arange(4)), schedule={"split_k": 2})
hwsim.run(a, b, scheme="bf16x9", accumulation="termwise", k_group=64, hybrid=False, **more)
hwsim.run(conv={"channels": 3}, progress=print, gemm=None)
c = hwsim.matmul(a, b, scheme="ape", block=64)
cycles: int = r.phases[0].cycles
macs: int | None = r.macs.padded
seconds: float = r.phases[0]["seconds"]
error = r.error
assert error is not None
norm: float = error.baseline.relative_frobenius + error["max_relative"]
level: str = r.evidence["numerics"]
"""


def refused(code: str, folder: Path) -> dict[int, str]:
    """Line -> what mypy says of it, in strict mode."""
    api = pytest.importorskip("mypy.api")
    file = folder / "calls.py"
    file.write_text(code, encoding="utf-8")
    said, failed, _ = api.run(["--strict", "--no-error-summary", "--cache-dir", str(ROOT / ".mypy_cache"), str(file)])
    assert not failed, failed
    lines = (re.match(rf"{re.escape(str(file))}:(\d+): error: (.*)", line) for line in said.splitlines())
    return {int(found[1]): found[2] for found in lines if found is not None}


def test_wrong_names_and_values_are_refused(tmp_path: Path) -> None:
    said = refused(REFUSED, tmp_path)
    assert sorted(said) == list(range(2, len(REFUSED.splitlines()) + 1)), said
    for line, word in ((2, "formt"), (3, "exact"), (4, "tiel"), (5, '"m"'), (10, "cycle"), (11, "numrics")):
        assert word in said[line], said[line]


def test_valid_calls_are_accepted(tmp_path: Path) -> None:
    assert refused(ACCEPTED, tmp_path) == {}


@pytest.mark.parametrize("name", generate.WRITTEN)
def test_what_is_written_is_up_to_date(name: str) -> None:
    """After a change of a declaration: python -m hwsim.request.generate"""
    assert (generate.FOLDER / name).read_text(encoding="utf-8") == generate.WRITTEN[name]()


def test_the_type_has_every_option_of_hwsim() -> None:
    names = set(declared_by_name()) - {"c"}
    assert set(typing.get_type_hints(run_options.RunOptions)) == names
    assert {"tile", "split_k", "accumulation", "library", "at"} <= names


def test_the_signature_is_short_and_the_docstring_has_every_option() -> None:
    for function in (hwsim.run, hwsim.matmul):
        parameters = inspect.signature(function).parameters
        assert list(parameters) == ["a", "b", "c", "device", "scheme", "gemm", "progress", "options"]
    assert hwsim.run.__doc__ is not None
    lines = hwsim.run.__doc__.splitlines()
    missing = [entry for entry in declared() if f"    {entry.option.name}: {entry.text}" not in lines]
    assert missing == []
