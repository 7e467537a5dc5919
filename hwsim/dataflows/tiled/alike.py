"""Recognises GEMM kernels of one program that multiply other pieces of A and B and are otherwise identical."""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest

from hwsim.dataflows.tiled.buffers import KernelBuffers
from hwsim.dataflows.tiled.model import GemmKernel, KernelOperand
from hwsim.gemm.plan import Term
from hwsim.program.ir import Buffer, Kernel

Numbers = tuple[dict[int, int], dict[int, int]]  # piece of A by the number of the piece it replaces; the same of B


def numbers_between(first: GemmKernel, other: GemmKernel) -> Numbers | None:
    """The pieces of `other` by those of `first` that they replace; None if the kernels differ in anything else.

    None also for kernels that split or round operands themselves: the rule of each piece is part of their instructions.
    """
    a, b = _pieces(first.a, other.a), _pieces(first.b, other.b)
    if a is None or b is None:
        return None
    terms = tuple(_term(term, (a, b)) for term in first.terms)
    return (a, b) if replace(first, name=other.name, terms=terms, a=other.a, b=other.b) == other else None


def arrays_between(first: GemmKernel, other: GemmKernel) -> dict[str, str]:
    """The arrays of `other` by the names of those of `first` that they replace, for kernels with `numbers_between`."""
    return {
        x.matrix.name: y.matrix.name
        for mine, its in zip(first.operands, other.operands, strict=True)
        for x, y in zip(mine.pieces, its.pieces, strict=True)
    }


def buffers_between(kernel: Kernel, buffers: KernelBuffers) -> dict[str, str] | None:
    """The new names of buffers of `kernel` in a kernel with `buffers`; None if they differ in more than names."""
    names = {}
    for buffer, other in zip_longest(kernel.buffers, buffers.every):
        if buffer is None or other is None:
            return None
        if buffer != Buffer(buffer.name, other.memory, other.slots, other.slot_bytes, other.spread, other.spilled):
            return None
        names[buffer.name] = other.name
    return {name: other for name, other in names.items() if name != other}


def _pieces(first: KernelOperand, other: KernelOperand) -> dict[int, int] | None:
    if first.raw is not None or len(first.pieces) != len(other.pieces) or first.order != other.order:
        return None
    numbers = {}
    for x, y in zip(first.pieces, other.pieces, strict=True):
        is_like = replace(x, number=y.number, matrix=replace(x.matrix, name=y.matrix.name)) == y
        if not is_like or x.matrix.format != x.format:
            return None
        numbers[x.number] = y.number
    return numbers if first.rules == other.rules else None


def _term(term: Term, numbers: Numbers) -> Term:
    a, b = numbers
    stages = tuple(replace(stage, products=tuple((a[i], b[j]) for i, j in stage.products)) for stage in term.stages)
    return replace(term, stages=stages)
