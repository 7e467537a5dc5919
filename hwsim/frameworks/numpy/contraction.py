"""Tensor contractions as matrix products: dot, tensordot and einsum rewritten as batched matmul calls.

The module handles index letters and shapes only. The caller passes `multiply(a, b)`, which takes (..., m, k) and (...,
k, n) arrays with equal leading dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

AnyArray = NDArray[Any]
PAIR = 2  # operands
Multiply = Callable[[AnyArray, AnyArray], AnyArray]


def matmul(a: AnyArray, b: AnyArray, multiply: Multiply) -> AnyArray:
    """numpy.matmul for vectors, matrices and stacks, by `multiply`. Raises ValueError for shapes that NumPy refuses."""
    left = a[None, :] if a.ndim == 1 else a
    right = b[:, None] if b.ndim == 1 else b
    if not a.ndim or not b.ndim or left.shape[-1] != right.shape[-2]:
        raise ValueError(f"matmul: shapes {a.shape} and {b.shape} do not fit")
    lead = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    product = multiply(np.broadcast_to(left, lead + left.shape[-2:]), np.broadcast_to(right, lead + right.shape[-2:]))
    if a.ndim == 1:
        product = product[..., 0, :]
    return product[..., 0] if b.ndim == 1 else product


def tensordot(a: AnyArray, b: AnyArray, axes: Any, multiply: Multiply) -> AnyArray:
    """numpy.tensordot by `multiply`. Raises ValueError for axes that do not fit."""
    if np.ndim(axes) == 0:
        count = int(axes)
        left, right = list(range(a.ndim - count, a.ndim)), list(range(count))
    else:
        left, right = ([int(axis) for axis in np.atleast_1d(side)] for side in axes)
    left, right = [axis % a.ndim for axis in left], [axis % b.ndim for axis in right]
    if [a.shape[axis] for axis in left] != [b.shape[axis] for axis in right]:
        raise ValueError(f"tensordot: axes {axes} of shapes {a.shape} and {b.shape} do not fit")
    keep_a = [axis for axis in range(a.ndim) if axis not in left]
    keep_b = [axis for axis in range(b.ndim) if axis not in right]
    depth = prod([a.shape[axis] for axis in left])
    rows, columns = [a.shape[axis] for axis in keep_a], [b.shape[axis] for axis in keep_b]
    product = multiply(
        a.transpose(keep_a + left).reshape(prod(rows), depth), b.transpose(right + keep_b).reshape(depth, prod(columns))
    )
    return product.reshape(rows + columns)


def parse(subscripts: str, count: int) -> tuple[list[str], str] | None:
    """The index letters of each operand and of the result; None where the subscripts are not plain letters (an
    ellipsis, for example).
    """
    text = subscripts.replace(" ", "")
    inputs, arrow, output = text.partition("->")
    terms = inputs.split(",")
    if len(terms) != count or not all(c.isalpha() for term in [*terms, output] for c in term):
        return None
    if not arrow:
        letters = "".join(terms)
        output = "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    return terms, output


def einsum(terms: Sequence[str], output: str, operands: Sequence[AnyArray], multiply: Multiply, plain: Any) -> AnyArray:
    """numpy.einsum as a series of pairwise contractions, in the order that numpy.einsum_path finds.

    plain: numpy.einsum, which does what is not a product: diagonals, and sums over an index of one operand alone.
    """
    have: list[tuple[str, AnyArray]] = list(zip(terms, operands, strict=True))
    steps = [tuple(range(len(operands)))]
    if len(operands) > PAIR:
        shaped = [np.broadcast_to(np.float32(0), tuple(operand.shape)) for operand in operands]
        path = np.einsum_path(",".join(terms) + "->" + output, *shaped, optimize="greedy")[0][1:]
        steps = [tuple(step) for step in path]
    for step in steps:
        chosen = [have[i] for i in step]
        have = [x for i, x in enumerate(have) if i not in step]
        while len(chosen) > 1:
            (x, left), (y, right) = chosen[:2]
            needed = set(output).union(*(t for t, _ in [*have, *chosen[2:]]))
            chosen = [_pair(x, left, y, right, needed, multiply, plain), *chosen[2:]]
        have.append(chosen[0])
    letters, value = have[0]
    result: AnyArray = plain(f"{letters}->{output}", value)
    return result


def _pair(
    x: str, left: AnyArray, y: str, right: AnyArray, needed: set[str], multiply: Multiply, plain: Any
) -> tuple[str, AnyArray]:
    """Contract two operands: their shared letters that are needed later are batch dimensions, the others are summed.

    Without a letter to sum over this is no matrix product: NumPy, PyTorch and JAX multiply elements.
    """
    only_x = "".join(c for c in dict.fromkeys(x) if c in needed or c in y)
    only_y = "".join(c for c in dict.fromkeys(y) if c in needed or c in x)
    left, right = plain(f"{x}->{only_x}", left), plain(f"{y}->{only_y}", right)
    batch = [c for c in only_x if c in only_y and c in needed]
    inner = [c for c in only_x if c in only_y and c not in needed]
    rows, columns = [c for c in only_x if c not in only_y], [c for c in only_y if c not in only_x]
    size = dict(zip(only_x + only_y, left.shape + right.shape, strict=True))
    shape = {name: [size[c] for c in group] for name, group in (("batch", batch), ("m", rows), ("n", columns))}
    if not inner:
        a = plain(f"{only_x}->{''.join(batch + rows)}", left).reshape(
            *shape["batch"], *shape["m"], *(1 for _ in columns)
        )
        b = plain(f"{only_y}->{''.join(batch + columns)}", right).reshape(
            *shape["batch"], *(1 for _ in rows), *shape["n"]
        )
        return "".join(batch + rows + columns), a * b
    depth = prod([size[c] for c in inner])
    a = plain(f"{only_x}->{''.join(batch + rows + inner)}", left).reshape(*shape["batch"], prod(shape["m"]), depth)
    b = plain(f"{only_y}->{''.join(batch + inner + columns)}", right).reshape(*shape["batch"], depth, prod(shape["n"]))
    value = multiply(a, b).reshape(shape["batch"] + shape["m"] + shape["n"])
    return "".join(batch + rows + columns), value
