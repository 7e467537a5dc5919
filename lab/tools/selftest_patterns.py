"""Write what `hwsim selftest` compares: hwsim/golden/patterns, cut from tests/golden and computed by hwsim.

    python lab/tools/selftest_patterns.py

DEVICE.npz: of the device's self set one set for each dot unit and format of results that no device before it has, every
third case, of the instruction with the largest K. DEVICE_silicon.npz: of each archive captured on silicon one case of
each set, a corner of the tile.
runs.json: whole GEMMs with bits and cycles as hwsim computes them now. A test fails when the folder is behind
tests/golden.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from hwsim.devices import dot_spec, load
from hwsim.devices.registry import shipped
from hwsim.golden.format import GoldenSet, Meta, read_meta, read_sets, write_sets
from hwsim.golden.selftest import PATTERNS, RUNS, computed_run, shipped_device
from hwsim.host.files import make_folder, write_text

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden"
SILICON = ("h200/instructions.npz", "h200_edge/edge.npz", "h200_nan/fp64_nan.npz")
STEP = 3  # of so many cases of a self set one is taken
EDGE = 4  # rows and columns of a captured tile that are taken
#: Options of `hwsim.run`: a scheme on a program, a library's kernel, and bits by the functional machine.
GEMMS: tuple[dict[str, Any], ...] = (
    {"device": "ascend910a", "scheme": "sgemm-cube", "m": 96, "n": 80, "k": 256},
    {"device": "h200", "library": "cublas", "format": "bf16", "m": 64, "n": 128, "k": 512},
    {"device": "a100", "scheme": "markidis", "m": 128, "n": 64, "k": 128, "functional": True},
    {"device": "mi300x", "scheme": "native", "format": "fp16", "m": 64, "n": 64, "k": 192},
)


def of_units() -> Iterator[tuple[str, Meta, list[GoldenSet]]]:
    """(name of the archive, origin, sets) for each device with a self set and a dot unit that none before it has."""
    seen: set[Any] = set()
    for name in shipped():
        device, path = load(shipped_device(name)), GOLDEN / "self" / f"{name}.npz"
        if not path.is_file():  # a variant whose bits are its base's
            continue
        deepest: dict[Any, GoldenSet] = {}
        for golden in read_sets(path):
            spec = dot_spec(device, golden.instruction)
            key = (spec.unit, spec.d, spec.scale_format, golden.name)
            if key not in seen and (key not in deepest or golden.a.shape[2] > deepest[key].a.shape[2]):
                deepest[key] = golden
        seen |= deepest.keys()
        taken = [cases(golden, slice(None, None, STEP)) for golden in deepest.values()]
        meta = read_meta(path)
        assert meta is not None
        if taken:
            yield name, replace(meta, device_sha256="", command="", note="part of the self set"), taken


def of_silicon() -> Iterator[tuple[str, Meta, list[GoldenSet]]]:
    """(name of the archive, origin, sets) for each device with captured sets: all distributions of an instruction as
    cases of one set.
    """
    found: dict[str, tuple[Meta, dict[str, list[GoldenSet]]]] = {}
    for path in (GOLDEN / name for name in SILICON):
        meta = read_meta(path)
        assert meta is not None
        sets = found.setdefault(meta.device, (meta, {}))[1]
        for golden in read_sets(path):
            sets.setdefault(golden.instruction, []).append(corner(cases(golden, slice(0, 1))))
    for device, (meta, sets) in found.items():
        yield f"{device}_silicon", replace(meta, note="corners of tiles"), [joined(one) for one in sets.values()]


def cases(golden: GoldenSet, taken: slice) -> GoldenSet:
    """Some cases of a set."""
    arrays = {x: getattr(golden, x)[taken] for x in "abcd"}
    scales = {name: array if array.ndim == 0 else array[taken] for name, array in golden.scales.items()}
    return replace(golden, **arrays, scales=MappingProxyType(scales))


def corner(golden: GoldenSet) -> GoldenSet:
    """The first rows and columns of each case; each result depends on its row of A and column of B alone."""
    assert golden.d is not None and not golden.scales
    a, b, c, d = (golden.a[:, :EDGE], golden.b[:, :EDGE], golden.c[:, :EDGE, :EDGE], golden.d[:, :EDGE, :EDGE])
    return replace(golden, a=a, b=b, c=c, d=d)


def joined(sets: list[GoldenSet]) -> GoldenSet:
    """Sets of one instruction as one."""
    arrays = {x: np.concatenate([getattr(one, x) for one in sets]) for x in "abcd"}
    return replace(sets[0], name="silicon", **arrays)


def write(folder: Path = PATTERNS) -> int:
    """Write the folder again. Returns its bytes."""
    make_folder(folder)
    for path in folder.iterdir():
        path.unlink()
    for name, meta, sets in (*of_units(), *of_silicon()):
        write_sets(folder / f"{name}.npz", sets, meta)
    runs = [asdict(computed_run(options)) for options in GEMMS]
    write_text(folder / RUNS, json.dumps(runs, indent=2) + "\n")
    return sum(path.stat().st_size for path in folder.iterdir())


if __name__ == "__main__":
    print(f"{PATTERNS}: {write():,} bytes")
    sys.exit(0)
