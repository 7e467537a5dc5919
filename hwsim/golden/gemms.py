"""Recorded blocks of whole GEMMs: keys cublas.FORMAT[.fast|.slow].kK/{a,bt,d}. It knows the file, not how it is
computed.

The format of h200/gemm.npz: a (M, K), bt (N, K), d (M, N), each the leading block of a larger product whose d is fp32.
"""

from __future__ import annotations

import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from hwsim.datafiles.archive import open_archive
from hwsim.errors import InputError
from hwsim.golden.format import META, UnsignedCodes, read_meta
from hwsim.golden.verify import Report, SetReport

#: What cuBLAS calls slow accumulation is promoted here: partial sums of every 128 of K are added in fp32.
ACCUMULATE: dict[str, Literal["fast", "promoted"]] = {"fast": "fast", "slow": "promoted"}
FORMATS = {"f16": "fp16"}
CUBLAS, SCHEME = "cublas.", "scheme."
ARRAYS = ("a", "bt", "d")


@dataclass(frozen=True, slots=True, eq=False)
class GemmSet:
    """One recorded block. format: of A and B (hwsim.formats). accumulate: for e4m3, else None. Arrays are codes."""

    name: str
    format: str
    accumulate: Literal["fast", "promoted"] | None
    a: UnsignedCodes
    bt: UnsignedCodes
    d: UnsignedCodes


def read_gemms(path: Path) -> Iterator[GemmSet]:
    """The native GEMMs of an archive, in order of their keys (keys scheme.* are left out).

    Raises InputError for a key that belongs to neither, and a block that lacks an array, has no element, or whose
    arrays do not fit each other.
    """
    with open_archive(path) as archive:
        for key in archive.files:
            block, _, array = key.partition("/")
            is_block = block.startswith(CUBLAS) and block.count(".") >= 2 and array in ARRAYS
            if key != META and not is_block and not block.startswith(SCHEME):
                raise InputError(
                    f"{path}: key {key} is of no GEMM; allowed: {CUBLAS}FORMAT[.fast|.slow].kK/ARRAY with ARRAY of "
                    f"{', '.join(ARRAYS)}, {SCHEME}*, {META}"
                )
        for name in _names(path):
            parts = name.split(".")
            a, bt, d = (archive[f"{name}/{x}"] for x in ARRAYS)
            shapes = {"a": a.shape, "bt": bt.shape, "d": d.shape}
            if not a.ndim == bt.ndim == 2 or a.shape[1] != bt.shape[1] or d.shape != (a.shape[0], bt.shape[0]):
                raise InputError(f"{path}: {name}: a (M, K), bt (N, K), d (M, N) are needed; got {shapes}")
            if 0 in (*a.shape, *bt.shape):
                raise InputError(f"{path}: {name}: zero cases prove nothing; got {shapes}")
            if any(x.dtype.kind != "u" for x in (a, bt, d)):
                raise InputError(f"{path}: {name}: unsigned codes are needed; got {a.dtype}, {bt.dtype}, {d.dtype}")
            yield GemmSet(name, FORMATS.get(parts[1], parts[1]), ACCUMULATE.get(parts[2]), a, bt, d)


def _names(path: Path) -> list[str]:
    with open_archive(path) as archive:
        return sorted({name.partition("/")[0] for name in archive.files if name.startswith(CUBLAS)})


def gemm_files(paths: Iterable[Path]) -> list[Path]:
    """The archives under these files and folders that hold blocks of GEMMs, sorted; other files are skipped."""
    candidates = (file for path in paths for file in (sorted(path.rglob("*.npz")) if path.is_dir() else [path]))
    return [file for file in candidates if file.is_file() and zipfile.is_zipfile(file) and _names(file)]


def verify_gemms(
    path: Path, matmul: Callable[[str, GemmSet], UnsignedCodes], *, device: str = "", only: str = ""
) -> Report:
    """Compare each block with `matmul(device, gemm)`, fp32 codes (M, N). The report has counts, but no single
    mismatches.

    only: part of the name. Raises InputError for an archive without such blocks, or one whose device nobody says.
    """
    meta = read_meta(path)
    device, origin = device or (meta.device if meta else ""), meta.origin if meta else "silicon"
    if not device:
        raise InputError(f"{path}: does not say which device it is of; name the device")
    reports = []
    for gemm in read_gemms(path):
        if only not in gemm.name:
            continue
        start = time.perf_counter()
        got = matmul(device, gemm)
        seconds = time.perf_counter() - start
        if got.shape != gemm.d.shape or got.dtype != gemm.d.dtype:
            raise InputError(
                f"{path}: {gemm.name} holds {gemm.d.shape} of {gemm.d.dtype}; "
                f"the computation gave {got.shape} of {got.dtype}"
            )
        reports.append(
            SetReport(
                path=str(path),
                instruction="gemm",
                set=gemm.name,
                device=device,
                origin=origin,
                results=gemm.d.size,
                mismatches=int(np.count_nonzero(got != gemm.d)),
                seconds=seconds,
            )
        )
    if not reports:
        raise InputError(f"{path}: no GEMM block (keys cublas.*) was found; zero cases prove nothing")
    return Report(tuple(reports), ())
