"""The ground state of an open transverse-field Ising chain as a binary tree tensor network, optimised tensor by tensor.

It knows the Hamiltonian, the tree and its optimisation; which arithmetic multiplies the matrices, and in which type
vectors are made orthogonal, is the caller's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Multiply = Callable[[Array, Array], Array]
SPINS = 16
BOND = 16
STEPS = 6  # of Lanczos, for each tensor
X = np.array([[0.0, 1.0], [1.0, 0.0]])
Z = np.diag([1.0, -1.0])


@dataclass(frozen=True)
class Part:
    """A part of the chain as seen through one bond: its energy, and Z of its outermost spins (None: it has none there).

    Of a subtree `left` and `right` are its own first and last spin; of what surrounds one, the spins beside it.
    """

    energy: Array
    left: Array | None
    right: Array | None


@dataclass
class TreeState:
    """A tree of SPINS spins, H = -sum z_i z_(i+1) - field sum x_i. multiply: of matrices of `dtype`. orthogonal: the
    type of vectors in Lanczos and in Gram-Schmidt.

    tensors: by node; node n has children 2 n and 2 n + 1, spins are nodes SPINS to 2 SPINS - 1; axes: children, parent.
    """

    strength: float
    multiply: Multiply
    dtype: Any
    orthogonal: Any
    seed: int
    tensors: dict[int, Array] = field(default_factory=dict)
    parts: dict[int, Part] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rng = np.random.default_rng([self.seed, SPINS])
        spin = Part(-self.strength * X, Z, Z)
        width = dict.fromkeys(range(SPINS, 2 * SPINS), 2)
        self.parts = dict.fromkeys(range(SPINS, 2 * SPINS), spin)
        for node in range(SPINS - 1, 0, -1):
            children = width[2 * node], width[2 * node + 1]
            width[node] = 1 if node == 1 else min(children[0] * children[1], BOND)
            drawn = rng.standard_normal((children[0] * children[1], width[node]))
            self.tensors[node] = self._gram_schmidt(drawn)[0].reshape(*children, width[node])
            if node > 1:
                self.parts[node] = self._subtree(node)

    # --- products -----------------------------------------------------------------------------------------------------

    def _on_axis(self, operator: Array, tensor: Array, axis: int) -> Array:
        """An operator on one axis of a tensor."""
        first = np.moveaxis(tensor, axis, 0)
        product = self._product(operator, first.reshape(first.shape[0], -1))
        return np.moveaxis(product.reshape(len(operator), *first.shape[1:]), 0, axis)

    def _product(self, a: Array, b: Array) -> Array:
        return self.multiply(*(np.ascontiguousarray(x, self.dtype) for x in (a, b)))

    def _coupled(self, tensor: Array, one: tuple[int, Array | None], other: tuple[int, Array | None]) -> Array | None:
        """-Z Z across two axes; None where the chain ends there."""
        if one[1] is None or other[1] is None:
            return None
        return -self._on_axis(other[1], self._on_axis(one[1], tensor, one[0]), other[0])

    def _energy_of(self, tensor: Array, parts: tuple[Part, Part, Part], axes: tuple[int, ...]) -> Array:
        """The energies of the parts on these axes, and the couplings between them, applied to a tensor.

        parts: left child, right child, what surrounds the node.
        """
        left, right, around = parts
        total = [self._on_axis(parts[axis].energy, tensor, axis) for axis in axes]
        bonds = (
            ((0, left.right), (1, right.left)),
            ((0, left.left), (2, around.left)),
            ((1, right.right), (2, around.right)),
        )
        for one, other in bonds:
            if one[0] in axes and other[0] in axes and (coupled := self._coupled(tensor, one, other)) is not None:
                total.append(coupled)
        found = total[0]
        for term in total[1:]:
            found = found + term
        return found

    def _seen(self, isometry: Array, operated: Array, axis: int) -> Array:
        """<isometry| operated> with this axis open."""
        flat = [np.moveaxis(x, axis, -1).reshape(-1, x.shape[axis]) for x in (isometry, operated)]
        return self._product(flat[0].T, flat[1])

    def _end(self, isometry: Array, operator: Array | None, of: int, axis: int) -> Array | None:
        return None if operator is None else self._seen(isometry, self._on_axis(operator, isometry, of), axis)

    def _subtree(self, node: int) -> Part:
        """The subtree of a node whose tensor is an isometry from its children."""
        left, right, tensor = self.parts[2 * node], self.parts[2 * node + 1], self.tensors[node]
        around = Part(np.zeros((tensor.shape[2],) * 2), None, None)
        energy = self._seen(tensor, self._energy_of(tensor, (left, right, around), (0, 1)), 2)
        return Part(energy, self._end(tensor, left.left, 0, 2), self._end(tensor, right.right, 1, 2))

    def _surroundings(self, node: int, around: Part, side: int, isometry: Array) -> Part:
        """What surrounds a child, through its parent's tensor as an isometry to it."""
        left, right = self.parts[2 * node], self.parts[2 * node + 1]
        energy = self._seen(isometry, self._energy_of(isometry, (left, right, around), (1 - side, 2)), side)
        if side == 0:
            outermost = self._end(isometry, around.left, 2, 0), self._end(isometry, right.left, 1, 0)
        else:
            outermost = self._end(isometry, left.right, 0, 1), self._end(isometry, around.right, 2, 1)
        return Part(energy, *outermost)

    # --- optimisation -------------------------------------------------------------------------------------------------

    def _gram_schmidt(self, columns: Array) -> tuple[Array, Array]:
        """Q with orthonormal columns and R with Q R = columns, by modified Gram-Schmidt in the type asked for."""
        q = columns.astype(self.orthogonal)
        count = q.shape[1]
        r = np.zeros((count, count), self.orthogonal)
        for j in range(count):
            r[j, j] = np.sqrt(np.sum(q[:, j] * q[:, j], dtype=self.orthogonal))
            q[:, j] /= max(r[j, j], np.finfo(self.orthogonal).tiny)
            for i in range(j + 1, count):
                r[j, i] = np.sum(q[:, j] * q[:, i], dtype=self.orthogonal)
                q[:, i] -= r[j, i] * q[:, j]
        return q, r

    def _lowest(self, node: int, around: Part) -> None:
        """The tensor of a node by Lanczos, started from the present one."""
        parts = self.parts[2 * node], self.parts[2 * node + 1], around
        shape, kind = self.tensors[node].shape, self.orthogonal
        vector = self.tensors[node].ravel().astype(kind)
        basis = [vector / np.sqrt(np.sum(vector * vector))]
        alphas: list[float] = []
        betas: list[float] = []
        for _ in range(min(STEPS, vector.size)):
            following = self._energy_of(basis[-1].reshape(shape), parts, (0, 1, 2)).ravel().astype(kind)
            alphas.append(float(np.sum(basis[-1] * following)))
            for one in basis:
                following = following - np.sum(one * following) * one
            beta = np.sqrt(np.sum(following * following))
            if beta < 64 * np.finfo(self.dtype).eps:
                break
            betas.append(float(beta))
            basis.append(following / beta)
        size = len(alphas)
        beside = np.array(betas[: size - 1])
        _, vectors = np.linalg.eigh(np.diag(alphas) + np.diag(beside, 1) + np.diag(beside, -1))
        found = np.sum([weight * one for weight, one in zip(vectors[:, 0].astype(kind), basis, strict=False)], axis=0)
        self.tensors[node] = found.reshape(shape)

    def sweep(self) -> float:
        """Every tensor once, from the root down and back; the energy after it."""
        nowhere = Part(np.zeros((1, 1)), None, None)
        self._visit(1, nowhere)
        self._lowest(1, nowhere)
        return self.energy()

    def _visit(self, node: int, around: Part) -> None:
        self._lowest(node, around)
        if 2 * node >= SPINS:
            return
        for side in (0, 1):
            child = 2 * node + side
            moved = np.moveaxis(self.tensors[node], side, -1)
            q, r = self._gram_schmidt(moved.reshape(-1, moved.shape[-1]))
            isometry = np.moveaxis(q.reshape(moved.shape), -1, side)
            below = self.tensors[child]
            taken = self._product(below.reshape(-1, below.shape[2]), r.T).reshape(below.shape)
            self.tensors[child] = taken.astype(self.orthogonal)
            self._visit(child, self._surroundings(node, around, side, isometry))
            q, r = self._gram_schmidt(self.tensors[child].reshape(-1, below.shape[2]))
            self.tensors[child] = q.reshape(below.shape)
            self.tensors[node] = self._on_axis(r, isometry, side).astype(self.orthogonal)
            self.parts[child] = self._subtree(child)

    def energy(self) -> float:
        """<H> / <1> at the root, by products of the same arithmetic."""
        root = self.tensors[1]
        around = Part(np.zeros((1, 1)), None, None)
        applied = self._energy_of(root, (self.parts[2], self.parts[3], around), (0, 1, 2))
        above, below = (self._product(root.reshape(1, -1), x.reshape(-1, 1)) for x in (applied, root))
        return float(above[0, 0]) / float(below[0, 0])


def exact_energy(strength: float, spins: int = SPINS) -> float:
    """The lowest energy of the open chain, from free fermions, in fp64."""
    a = strength * np.eye(spins) + np.diag(np.ones(spins - 1), 1)
    return -float(np.linalg.svd(a, compute_uv=False).sum())
