"""In which order PyTorch's softmax kernels add a row: each thread its elements, then threads in halves.

It knows lengths and threads; it knows no values, no device and no framework.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

WORD = 4  # bytes of fp32


class SoftmaxKernels(NamedTuple):
    """lanes: of a warp, which add a row of at most `most` elements. Longer rows: so many threads of a block, of which
    each has at most so many elements in registers; of still longer ones, elements that a thread takes at once, and
    bytes of shared memory, where a row waits that fits.
    """

    lanes: int
    most: int
    threads: int
    registers: int
    vector: int
    shared_bytes: int

    def kinds(self, count: int) -> int:
        """In how many orders rows of so many elements are added: row number i has the order of i modulo it."""
        is_long = count > self.threads * self.registers
        return self.vector if is_long and count % self.vector else 1

    def reads(self, count: int) -> int:
        """How often a kernel reads a row of so many elements from memory."""
        waits = count <= self.threads * self.registers or self._waits_in_shared(count)
        return 1 if waits else 3  # for the largest, for the sum, for the result

    def computes_again(self, count: int) -> bool:
        """Whether a kernel computes the powers of a row of so many elements twice: for the sum and for the result."""
        return count > self.most

    def name(self, count: int) -> str:
        """The kernel of rows of so many elements."""
        if count <= self.most:
            return "softmax_warp_forward"
        if count <= self.threads * self.registers:
            return "cunn_SoftMaxForwardReg"
        return "cunn_SoftMaxForwardSmem" if self._waits_in_shared(count) else "cunn_SoftMaxForward"

    def _waits_in_shared(self, count: int) -> bool:
        return count % self.vector == 0 and count < self.shared_bytes // WORD - self.threads // self.lanes

    def row_sum(self, count: int, number: int = 0) -> RowSum:
        """The order of row `number`. A row of vectors that does not fit into shared memory, or whose length no vector
        divides, begins inside a vector: its first elements are added one by one up to the block's width, and so are
        those behind the last whole turn of vectors.
        """
        if count <= self.most:
            width = min(self.lanes, 1 << (count - 1).bit_length())
            return RowSum(width, width, tuple(_singles(0, count, width)))
        if count <= self.threads * self.registers:
            return RowSum(self.threads, self.lanes, tuple(_singles(0, count, self.threads)))
        if self._waits_in_shared(count):
            return RowSum(self.threads, self.lanes, tuple(self._vectors(0, count)))
        shift = number * count % self.vector
        first = self.threads - shift if shift else 0
        whole = (count - first) // (self.threads * self.vector) * self.threads * self.vector
        steps = [
            *([SumStep(0, 1, shift, first)] if first else []),
            *self._vectors(first, whole),
            *_singles(first + whole, count - first - whole, self.threads),
        ]
        return RowSum(self.threads, self.lanes, tuple(steps))

    def _vectors(self, start: int, count: int) -> list[SumStep]:
        """Steps over `count` elements from `start` on, of which each thread takes a vector at a time."""
        turn = self.threads * self.vector
        steps = []
        for begin in range(start, start + count, turn):
            left = min(turn, start + count - begin)
            steps += [
                SumStep(begin + place, self.vector, 0, -(-(left - place) // self.vector))
                for place in range(self.vector)
            ]
        return steps


class SumStep(NamedTuple):
    """So many threads from `first` on add an element each: the first one `column`, the next one `stride` on."""

    column: int
    stride: int
    first: int
    threads: int

    @property
    def last(self) -> int:
        """The column of the last thread."""
        return self.column + (self.threads - 1) * self.stride


@dataclass(frozen=True, slots=True)
class RowSum:
    """width: threads that add a row, by `steps` one after the other. Then the threads of a warp meet in halves, and
    the sums of warps. lanes: threads of a warp.
    """

    width: int
    lanes: int
    steps: tuple[SumStep, ...]


def _singles(start: int, count: int, threads: int) -> list[SumStep]:
    """Steps over `count` elements from `start` on, one for each thread at a time."""
    return [SumStep(start + at, 1, 0, min(threads, count - at)) for at in range(0, count, threads)]
