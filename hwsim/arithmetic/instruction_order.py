"""Arranges operands along K in the order in which a chain of instructions consumes them.

The module knows pieces of a matrix as codes, the K of an instruction and which axis K is; no unit, no plan, no device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.host.multiples import round_up

Codes = NDArray[Any]
MATRIX = 2  # dimensions
CACHE_BYTES = 1 << 24  # of the runs arranged at a time
THREADED_BYTES = 1 << 22  # arrangements from this size on are made by several threads


class InstructionRuns:
    """One operand, rearranged for many runs of K of equal length; each run holds all its products in order of
    execution.

    stages: for each stage the piece of each product. For the K of each instruction all products of a stage alternate,
    over the whole run, then the next stage follows. step: the K of an instruction. axis: that of K. Many short runs are
    arranged at once, because doing so for each would cost more than its products. The memory is reused, because fresh
    pages cost more than copying.
    """

    def __init__(self, stages: Sequence[Sequence[int]], step: int, axis: int) -> None:
        self.stages, self.step, self.axis = stages, step, axis
        self.products = sum(map(len, stages))
        self._pieces: Sequence[Codes] = ()
        self._length = self._first = self._last = 0
        self._codes: Codes | None = None
        self._room: Codes | None = None

    def cached(self, pieces: Sequence[Codes], span: tuple[int, int], threads: int = 1) -> Codes | None:
        """The arranged operand of the run `span` and of some that follow it, one after another.

        None for a run that is too long, or not one of a series of equal runs, and for stacks.
        """
        start, stop = span
        length, depth = stop - start, pieces[0].shape[self.axis]
        if pieces[0].ndim > MATRIX:
            return None
        if length <= 0 or length % self.step or start % length or stop > depth or 2 * length > depth:
            return None
        index = start // length
        is_cached = pieces is self._pieces and length == self._length and self._first <= index < self._last
        if not is_cached:
            self._keep(pieces, length, index, threads)
        assert self._codes is not None
        first = (index - self._first) * length * self.products
        return self._codes[:, first:] if self.axis else self._codes[first:]

    def _keep(self, pieces: Sequence[Codes], length: int, index: int, threads: int) -> None:
        depth, others = pieces[0].shape[self.axis], pieces[0].shape[1 - self.axis]
        run_bytes = length * self.products * others * pieces[0].itemsize
        count = max(1, CACHE_BYTES // max(run_bytes, 1))
        first = index // count * count
        last = min(first + count, depth // length)
        within = slice(first * length, last * length)
        blocks = (last - first, length // self.step, self.step)
        runs = (last - first, length * self.products)
        size = run_bytes * (last - first)
        if self._room is None or self._room.size < size:
            self._room = np.empty_like(pieces[0], np.uint8, order="C", shape=(size,))
        flat = self._room[:size].view(pieces[0].dtype)
        codes = flat.reshape((others, *runs) if self.axis else (*runs, others))
        copies: list[tuple[Codes, Codes]] = []
        at = 0
        for stage in self.stages:
            part = slice(at, at + length * len(stage))
            at += length * len(stage)
            shape = (blocks[0], blocks[1], len(stage), self.step)
            if self.axis:
                to = codes[:, :, part].reshape(others, *shape)
                for place, piece in enumerate(stage):
                    copies.append((to[..., place, :], pieces[piece][:, within].reshape(others, *blocks)))
            else:
                to = codes[:, part].reshape(*shape, others)
                for place, piece in enumerate(stage):
                    copies.append((to[:, :, place], pieces[piece][within].reshape(*blocks, others)))
        if threads > 1 and codes.nbytes >= THREADED_BYTES:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(lambda copy: np.copyto(*copy), copies))
        else:
            for to, piece_codes in copies:
                np.copyto(to, piece_codes)
        self._codes = codes.reshape(others, -1) if self.axis else codes.reshape(-1, others)
        self._pieces, self._length, self._first, self._last = pieces, length, first, last


def in_instruction_order(
    pieces: Sequence[Codes], span: tuple[int, int], step: int, permutation: tuple[int, ...] | None, axis: int
) -> list[Codes]:
    """The codes of a span of K in the order in which the instructions consume them: one array, or two that are chained.

    pieces: matrices, or stacks of them. axis: 1: K is their last dimension; 0: the one before. Several pieces (products
    of one stage) alternate per instruction. The last instruction is padded with zeros, which
    matters for units that distinguish -0 from +0.
    """
    start, stop = span
    length = stop - start
    if len(pieces) == 1 and permutation is None:
        split = length - length % step
        cut = pieces[0]
        parts = [_span(cut, start, start + split, axis)] if split else []
        if split < length:
            parts.append(_padded(cut, start + split, stop, step, axis))
        return parts
    filled = [whole(piece, span, step, permutation, axis) for piece in pieces]
    if len(filled) == 1:
        return filled
    *lead, rows, columns = filled[0].shape
    if axis:
        blocks = [piece.reshape(*lead, rows, -1, step) for piece in filled]
        return [np.stack(blocks, -2).reshape(*lead, rows, -1)]
    blocks = [piece.reshape(*lead, -1, step, columns) for piece in filled]
    return [np.stack(blocks, -3).reshape(*lead, -1, columns)]


def whole(piece: Codes, span: tuple[int, int], step: int, permutation: tuple[int, ...] | None, axis: int) -> Codes:
    """A span of K of one piece, permuted, and padded with zeros to whole instructions."""
    start, stop = span
    unit = math.lcm(step, len(permutation)) if permutation is not None else step
    length = round_up(stop - start, unit)
    if length == stop - start:
        full = _span(piece, start, stop, axis)
    else:
        full = _padded(piece, start, stop, length, axis)
    if permutation is None:
        return full
    count = length // len(permutation)
    index = (np.arange(count)[:, None] * len(permutation) + np.array(permutation)).ravel()
    taken: Codes = full.take(index, axis - MATRIX)
    return taken


def _padded(piece: Codes, start: int, stop: int, length: int, axis: int) -> Codes:
    """A copy of piece[start:stop] along the axis, zero-padded to `length` (+0 is code 0 in every operand format)."""
    shape = list(piece.shape)
    shape[axis - MATRIX] = length
    full = np.zeros_like(piece, order="C", shape=shape)
    _span(full, 0, stop - start, axis)[...] = _span(piece, start, stop, axis)
    return full


def _span(piece: Codes, start: int, stop: int, axis: int) -> Codes:
    """A view of a span of K."""
    return piece[..., start:stop] if axis else piece[..., start:stop, :]
