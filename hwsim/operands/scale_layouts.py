"""cuBLASLt's layouts of scales in memory, and their inverses. It knows arrays of scales; no element and no rule.

Source: cuBLAS 13, "1D Block Scaling Factors Layout" and cublasLtMatmulMatrixScale_t.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.errors import InputError
from hwsim.host.multiples import round_up

AnyArray = NDArray[Any]
TILE_ROWS, TILE_BLOCKS = 128, 4  # of a tile of swizzled scales
INNER_ROWS = 32


def swizzled(scales: AnyArray) -> AnyArray:
    """Scales (rows, blocks of K) of ue8m0 or ue4m3 as the tensor core reads them: one dimension, padded with zeros.

    A tile of 128 rows by 4 blocks is 512 bytes; scale (row, block) of a tile is at (row % 32) * 16 + (row / 32) * 4 +
    block. Tiles follow each other along K, then along the rows.
    """
    rows, blocks = scales.shape
    padded = np.zeros((round_up(rows, TILE_ROWS), round_up(blocks, TILE_BLOCKS)), scales.dtype)
    padded[:rows, :blocks] = scales
    tiles = padded.reshape(-1, TILE_ROWS // INNER_ROWS, INNER_ROWS, padded.shape[1] // TILE_BLOCKS, TILE_BLOCKS)
    return tiles.transpose(0, 3, 2, 1, 4).reshape(-1)


def unswizzled(flat: AnyArray, rows: int, blocks: int) -> AnyArray:
    """The scales (rows, blocks of K) that `swizzled` gave. Raises InputError for another number of them."""
    wide, long = round_up(rows, TILE_ROWS), round_up(blocks, TILE_BLOCKS)
    if flat.size != wide * long:
        raise InputError(f"{flat.size} swizzled scales; allowed for {rows} x {blocks}: {wide * long}, with padding")
    tiles = flat.reshape(-1, long // TILE_BLOCKS, INNER_ROWS, TILE_ROWS // INNER_ROWS, TILE_BLOCKS)
    return tiles.transpose(0, 3, 2, 1, 4).reshape(wide, long)[:rows, :blocks]


def vec128(scales: AnyArray) -> AnyArray:
    """fp32 scales (rows, blocks of K) of 1 x 128, in one dimension: rows are adjacent."""
    return np.ascontiguousarray(scales.T).reshape(-1)


def from_vec128(flat: AnyArray, rows: int, blocks: int) -> AnyArray:
    """The scales (rows, blocks of K) that `vec128` gave. Raises InputError for another number of them."""
    if flat.size != rows * blocks:
        raise InputError(f"{flat.size} scales; allowed for {rows} x {blocks}: {rows * blocks}")
    return flat.reshape(blocks, rows).T


def blk128(scales: AnyArray) -> AnyArray:
    """fp32 scales (blocks of rows, blocks of K) of 128 x 128, in one dimension: blocks of K are adjacent, padded with
    zeros to a multiple of 4.
    """
    rows, blocks = scales.shape
    padded = np.zeros((rows, round_up(blocks, TILE_BLOCKS)), scales.dtype)
    padded[:, :blocks] = scales
    return padded.reshape(-1)


def from_blk128(flat: AnyArray, rows: int, blocks: int) -> AnyArray:
    """The scales (blocks of rows, blocks of K) that `blk128` gave. Raises InputError for another number of them."""
    long = round_up(blocks, TILE_BLOCKS)
    if flat.size != rows * long:
        raise InputError(f"{flat.size} scales; allowed for {rows} x {blocks}: {rows * long}, with padding")
    return flat.reshape(rows, long)[:, :blocks]
