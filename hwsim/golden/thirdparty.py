"""Recordings by others, one dot product per case: DEVICE_FORMAT.npz with a, b (cases, K), c, d32 and optionally c16,
d16.

Their README says which instruction made each file; that table is here. Rows with K below the instruction's are padded
with +0, as the recording programs did.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hwsim.datafiles.archive import open_archive
from hwsim.errors import InputError
from hwsim.golden.format import GoldenSet, Meta, UnsignedCodes
from hwsim.golden.instructions import parse

ARRAYS = ("a", "b", "c", "d32", "c16", "d16", "case")
FP8 = ("e4m3", "e5m2")
#: Instruction shape of mma.sync by format; the V100 has m8n8k4 only.
SHAPES = {"fp16": "m16n8k16", "bf16": "m16n8k16", "tf32": "m16n8k8", "e4m3": "m16n8k32", "e5m2": "m16n8k32"}
SHAPE_OF_DEVICE = {"V100": "m8n8k4"}
#: Devices whose fp8 files with fp32 results were captured by wgmma from a zero accumulator, whatever c holds.
WGMMA_DEVICES = ("H100", "H200")
CDNA3_FP8, CDNA3_FP8_K = "v_mfma_f32_16x16x32_fp8_fp8", 32


def is_third_party(path: Path) -> bool:
    """Whether an archive has this layout."""
    with open_archive(path) as archive:
        return {"a", "b", "c", "d32"} <= set(archive.files)


def read_third_party(path: Path) -> Iterator[tuple[Meta, GoldenSet]]:
    """The sets of such a file: cases of one row and one column.

    Raises InputError for arrays that are missing, empty or do not fit, and for a name of which no instruction is known.
    """
    device = path.stem.partition("_")[0]
    meta = Meta("third party", device.lower(), hardware=device, source="README.md beside the file")
    with open_archive(path) as archive:
        data = {name: archive[name] for name in archive.files}
    unknown = [name for name in data if name not in ARRAYS]
    if unknown:
        raise InputError(f"{path}: key {unknown[0]} is not known; allowed: {', '.join(ARRAYS)}")
    for result, accumulator in (("d32", "c"), ("d16", "c16")):
        if result not in data:
            continue
        if accumulator not in data:
            raise InputError(f"{path}: has {result}, but no {accumulator}")
        a, b, c, d = data["a"], data["b"], data[accumulator], data[result]
        name, k = _instruction(path, result)
        fits = a.ndim == 2 and a.shape == b.shape and a.shape[1] <= k and c.shape == d.shape == a.shape[:1]
        if not fits:
            raise InputError(
                f"{path}: a and b (cases, K of at most {k}), {accumulator} and {result} (cases) are needed; "
                f"got {a.shape}, {b.shape}, {c.shape}, {d.shape}"
            )
        if name.startswith("wgmma"):
            c = np.zeros_like(c)
        try:
            golden = GoldenSet(name, path.stem, _rows(a, k), _rows(b, k), c[:, None, None], d[:, None, None])
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        yield meta, golden


def _instruction(path: Path, result: str) -> tuple[str, int]:
    """Name of the instruction behind a file's results, and its K."""
    device, _, fmt = path.stem.partition("_")
    if fmt != "e4m3fnuz" and fmt not in SHAPES:
        raise InputError(
            f"{path}: captures by others are called DEVICE_FORMAT.npz, with FORMAT of {', '.join(SHAPES)}, e4m3fnuz"
        )
    if fmt == "e4m3fnuz":
        return CDNA3_FP8, CDNA3_FP8_K
    operand, d = {"fp16": "f16"}.get(fmt, fmt), {"d32": "f32", "d16": "f16"}[result]
    if fmt in FP8 and d == "f32" and device in WGMMA_DEVICES:
        name = f"wgmma.m64n8k32.{d}.{operand}.{operand}"
    else:
        name = f"mma.{SHAPE_OF_DEVICE.get(device, SHAPES[fmt])}.{d}.{operand}.{operand}.{d}"
    return name, parse(name).k


def _rows(array: UnsignedCodes, k: int) -> UnsignedCodes:
    return np.pad(array, ((0, 0), (0, k - array.shape[1])))[:, None, :]
