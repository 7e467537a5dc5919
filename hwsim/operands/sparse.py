"""2:4 sparsity of arrays: pruning, compression to stored elements and 2-bit indices, and back.

The module knows arrays and groups along the last axis, which is K of A. It knows no unit and no device.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.errors import InputError
from hwsim.formats import WORD_BITS
from hwsim.numerics.sparsity import METADATA_BITS, group_of, require_groups
from hwsim.operands.operand import Operand, operand

AnyArray = NDArray[Any]
INDEX_BITS = 2
PAIR_CODES = (0b0100, 0b1110)  # metadata of a 32-bit element that is the first, or the second, of two


def prune(a: Any, *, input_format: str | None = None) -> AnyArray:
    """A with the smaller elements of each group along K set to zero: two of four stay, of 32-bit elements one of two.

    a: (..., m, k), typed, or bit patterns of `input_format`; k a multiple of four. Of equal magnitudes the first stay;
    a NaN counts as larger than all numbers. Returns an array of a's shape and dtype. Raises InputError for another k.
    """
    source = operand("A", a, input_format=input_format)
    stored, elements = group_of(source.format)
    size = np.abs(_groups(source.values().astype(np.float64), elements))
    order = np.argsort(-np.where(np.isnan(size), np.inf, size), axis=-1, kind="stable")
    mask = np.zeros(size.shape, bool)
    np.put_along_axis(mask, order[..., :stored], True, axis=-1)
    x = np.asarray(a)
    return np.where(mask.reshape(x.shape), x, np.zeros((), x.dtype))


def require_sparse(source: Operand) -> AnyArray:
    """Which elements are not zero, booleans (..., m, groups, elements). Raises InputError where a group has more of
    them than are stored.
    """
    _, elements = group_of(source.format)
    used: AnyArray = _groups(source.values(), elements) != 0
    require_groups(used, source.format, "hwsim.prune(a) makes it so")
    return used


def positions(source: Operand) -> AnyArray:
    """Places within their group of the stored elements, int64 (..., m, groups, stored), in order.

    A group's elements that are not zero are stored, and of its zeros the first. Which zeros a library stores is not
    known; it matters beside an infinity or a NaN of B alone. Errors as of `require_sparse`.
    """
    stored, _ = group_of(source.format)
    used = require_sparse(source)
    first = np.argsort(~used, axis=-1, kind="stable")[..., :stored]
    places: AnyArray = np.sort(first, axis=-1)
    return places


def stored_mask(source: Operand) -> AnyArray:
    """Which elements are stored: booleans of the operand's shape. Errors as of `positions`."""
    places = positions(source)
    _, elements = group_of(source.format)
    mask = np.zeros((*places.shape[:-1], elements), bool)
    np.put_along_axis(mask, places, True, axis=-1)
    return mask.reshape(source.codes.shape)


def compress(a: Any, *, input_format: str | None = None) -> tuple[AnyArray, AnyArray]:
    """The stored elements (..., m, k / 2) of a's dtype, and their metadata uint32 (..., m, words).

    Each group's stored elements have 4 bits of metadata, the first group in the lowest bits of the first word (PTX ISA,
    sparse matrix storage): the 2-bit indices of two elements of four, the first in the low bits; of 32-bit elements
    0b0100 or 0b1110. The last word is filled up with zeros. a, errors: as of `prune` and `positions`.
    """
    source = operand("A", a, input_format=input_format)
    places = positions(source)
    stored, elements = group_of(source.format)
    x = np.asarray(a)
    values = np.take_along_axis(x.reshape(*x.shape[:-1], -1, elements), places, axis=-1)
    codes = places[..., 0] | places[..., -1] << INDEX_BITS if stored > 1 else np.array(PAIR_CODES)[places[..., 0]]
    per_word = WORD_BITS // METADATA_BITS
    words = -(-codes.shape[-1] // per_word)
    filled = np.zeros((*codes.shape[:-1], words * per_word), np.uint32)
    filled[..., : codes.shape[-1]] = codes
    shifts = METADATA_BITS * np.arange(per_word, dtype=np.uint32)
    metadata = np.bitwise_or.reduce(filled.reshape(*filled.shape[:-1], words, per_word) << shifts, axis=-1)
    return values.reshape(*x.shape[:-1], -1), metadata.astype(np.uint32)


def decompress(values: Any, metadata: Any, *, input_format: str | None = None) -> AnyArray:
    """The matrix (..., m, k), with zeros, of what `compress` gives. Raises InputError for indices that are not allowed:
    two must be in increasing order, and those of 32-bit elements 0b0100 or 0b1110.
    """
    x = np.asarray(values)
    stored, elements = group_of(operand("A", x, input_format=input_format).format)
    words = np.asarray(metadata).astype(np.uint32)
    groups = x.shape[-1] // stored
    shifts = METADATA_BITS * np.arange(WORD_BITS // METADATA_BITS, dtype=np.uint32)
    codes = (words[..., None] >> shifts & 0xF).reshape(*words.shape[:-1], -1)
    if codes.shape[-1] < groups or codes.shape[:-1] != x.shape[:-1]:
        raise InputError(f"metadata has shape {words.shape}; allowed: 4 bits for each group of values {x.shape}")
    codes = codes[..., :groups].astype(np.int64)
    if stored == 1:
        is_valid, places = np.isin(codes, PAIR_CODES), (codes == PAIR_CODES[1])[..., None].astype(np.int64)
    else:
        low, high = codes & 3, codes >> INDEX_BITS
        is_valid, places = low < high, np.stack((low, high), axis=-1)
    if not is_valid.all():
        raise InputError(
            f"metadata has the index pair {int(codes[~is_valid][0]):04b}; allowed: two in increasing order"
        )
    out = np.zeros((*x.shape[:-1], groups, elements), x.dtype)
    np.put_along_axis(out, places, x.reshape(*x.shape[:-1], groups, stored), axis=-1)
    return out.reshape(*x.shape[:-1], groups * elements)


def _groups(values: AnyArray, elements: int) -> AnyArray:
    """The values (..., k) as (..., groups, elements)."""
    if values.shape[-1] % 4:
        raise InputError(f"A has k = {values.shape[-1]}; allowed with sparsity 2:4: multiples of 4")
    return values.reshape(*values.shape[:-1], -1, elements)
