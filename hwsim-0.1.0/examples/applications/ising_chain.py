"""Ground-state energy of an open transverse-field Ising chain, H = -sum Z Z - sum X, 16 spins, by DMRG.

The state is a matrix product; each step finds the lowest state of two neighbouring sites by Lanczos, whose products
with the effective Hamiltonian go to the matrix unit, as do the updates of its two halves. Exact diagonalisation
(Lanczos over all 65536 states) and the closed form 1 - 1/sin(pi / (4 N + 2)) stand beside it.

Claims: DMRG in fp64 is exact to 1e-7. With FP32-like products the energy of the state, measured in fp64, is exact to
1e-8, for an eigenvalue's error is the square of its vector's; the energy that the products themselves add up is off by
up to 1e-4, for NVIDIA's units truncate as they add. FP16 or TF32 products are off by more than 1e-3.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from common import Application, Case

X = np.array([[0.0, 1.0], [1.0, 0.0]])
Z = np.diag([1.0, -1.0])
#: The Hamiltonian as a matrix product: W[left, right] acts on one site.
W = np.zeros((3, 3, 2, 2))
W[0, 0], W[2, 2], W[0, 1], W[1, 2], W[0, 2] = np.eye(2), np.eye(2), -Z, Z, -X


def closed_form(spins: int) -> float:
    """The lowest energy, from free fermions."""
    return 1 - 1 / math.sin(math.pi / (4 * spins + 2))


@functools.cache
def exact_energy(spins: int, steps: int = 120) -> float:
    """The lowest energy by Lanczos over all 2^spins states."""
    index = np.arange(2**spins)
    signs = 1 - 2 * ((index[:, None] >> np.arange(spins)) & 1)
    diagonal = -(signs[:, 1:] * signs[:, :-1]).sum(1).astype(float)

    def apply(v: Any) -> Any:
        out = diagonal * v
        for site in range(spins):
            out -= v.reshape(-1, 2, 2**site)[:, ::-1].reshape(-1)
        return out

    vector = np.full(2**spins, 2.0 ** (-spins / 2))
    before, alphas, betas, beta = np.zeros_like(vector), [], [], 0.0
    for _ in range(steps):
        following = apply(vector) - beta * before
        alphas.append(float(vector @ following))
        following -= alphas[-1] * vector
        beta = float(np.linalg.norm(following))
        if beta < 1e-10:
            break
        betas.append(beta)
        before, vector = vector, following / beta
    size = len(alphas)
    beside = betas[: size - 1]
    return float(np.linalg.eigvalsh(np.diag(alphas) + np.diag(beside, 1) + np.diag(beside, -1))[0])


class Chain:
    """A matrix-product state (sites a x 2 x b) and the Hamiltonian's halves, (3, a, a), around each site."""

    def __init__(self, spins: int, bond: int) -> None:
        self.bond, self.weight = bond, np.ones(1)
        self.sites = [np.full((1, 2, 1), 0.5**0.5) for _ in range(spins)]
        first, last = np.zeros((3, 1, 1)), np.zeros((3, 1, 1))
        first[0] = last[2] = 1
        self.left, self.right = [first] * (spins + 1), [last] * (spins + 1)
        for i in range(spins - 1, 1, -1):
            self.right[i] = narrowed(self.joined_right(i), self.sites[i].reshape(len(self.sites[i]), -1).T)

    def joined_left(self, i: int) -> Any:
        """The half left of site i with that site's operators: (3, 2a, 2a)."""
        size = 2 * self.left[i].shape[1]
        return np.einsum("vac,vwst->wasct", self.left[i], W).reshape(3, size, size)

    def joined_right(self, i: int) -> Any:
        """The half right of site i with that site's operators: (3, 2b, 2b)."""
        size = 2 * self.right[i + 1].shape[1]
        return np.einsum("wbd,vwst->vsbtd", self.right[i + 1], W).reshape(3, size, size)

    def sweep(self) -> float:
        """Two sites at a time, to the right end and back; the last energy."""
        last = len(self.sites) - 2
        for i in range(last):
            self.step(i, rightward=True)
        return [self.step(i, rightward=False) for i in range(last, -1, -1)][-1]

    def step(self, i: int, *, rightward: bool) -> float:
        """Sites i and i + 1 in their lowest state; the weights go to the site that the next step takes again."""
        a, b = self.sites[i], self.sites[i + 1]
        left, right = self.joined_left(i), self.joined_right(i + 1)
        shape = left.shape[1], right.shape[1]

        def apply(v: Any) -> Any:
            half = np.matmul(left.reshape(-1, shape[0]), v.reshape(shape)).reshape(3, *shape)
            return np.tensordot(half, right, ((0, 2), (0, 2))).ravel()

        start = a.reshape(-1, a.shape[2]) @ b.reshape(len(b), -1)
        energy, vector = lowest(apply, start.ravel())
        u, s, v = np.linalg.svd(vector.reshape(shape), full_matrices=False)
        keep = min(self.bond, int((s > 1e-9).sum()))
        u, s, v = u[:, :keep], s[:keep] / np.linalg.norm(s[:keep]), v[:keep]
        self.sites[i] = (u if rightward else u * s).reshape(len(a), 2, keep)
        self.sites[i + 1] = (s[:, None] * v if rightward else v).reshape(keep, 2, b.shape[2])
        if rightward:
            self.left[i + 1] = narrowed(left, u)
        else:
            self.right[i + 1] = narrowed(right, v.T)
        return energy


def narrowed(half: Any, basis: Any) -> Any:
    """basis^T half_w basis for each w: two products."""
    size, keep = basis.shape
    part = np.matmul(half.reshape(-1, size), basis).reshape(3, size, keep)
    return np.tensordot(part, basis, (1, 0)).transpose(0, 2, 1)


def lowest(apply: Any, start: Any, steps: int = 6) -> tuple[float, Any]:
    """The lowest eigenvalue and eigenvector in a small Krylov space; only `apply` multiplies matrices."""
    basis, images = [start / np.linalg.norm(start)], []
    while True:
        images.append(apply(basis[-1]))
        following = images[-1]
        for _ in range(2):
            for x in basis:
                following = following - (x @ following) * x
        norm = float(np.linalg.norm(following))
        if len(basis) == min(steps, len(start)) or norm < 1e-9:
            break
        basis.append(following / norm)
    projected = np.array(basis) @ np.array(images).T
    values, vectors = np.linalg.eigh((projected + projected.T) / 2)
    vector = vectors[:, 0] @ np.array(basis)
    return float(values[0]), vector / np.linalg.norm(vector)


def energy_of(sites: Any) -> float:
    """<H> / <1> of a matrix-product state, in fp64."""
    half, norm = np.zeros((3, 1, 1)), np.ones((1, 1))
    half[0] = 1
    for site in sites:
        half = np.einsum("vac,asb,vwst,ctd->wbd", half, site, W, site, optimize=True)
        norm = np.einsum("ac,asb,csd->bd", norm, site, site, optimize=True)
    return float(half[2, 0, 0] / norm[0, 0])


def study(case: Case, quick: bool) -> dict[str, Any]:
    """Energies: exact, as the products give it after each sweep, and of the state."""
    spins, bond, sweeps = (8, 8, 2) if quick else (16, 16, 3)
    with case.products(threads=1):
        chain = Chain(spins, bond)
        seen = [chain.sweep() for _ in range(sweeps)]
    return {"spins": spins, "seen": seen, "state": energy_of(chain.sites), "exact": exact_energy(spins)}


def compare(_: dict[str, Any], found: dict[str, Any]) -> dict[str, float]:
    exact = closed_form(found["spins"])
    return {
        "energy": found["seen"][-1],
        "error": abs(found["seen"][-1] - exact),
        "of the state": abs(found["state"] - exact),
        "Lanczos - closed": found["exact"] - exact,
    }


def claims(rows: Any) -> list[tuple[str, bool]]:
    best, half = rows["fp64"], max(rows[label]["error"] for label in ("fp16", "tf32"))
    good = [label for label in rows if label not in ("fp64", "fp16", "tf32")]
    return [
        ("fp64 DMRG: exact to 1e-7", best["error"] < 1e-7),
        ("Lanczos over all states agrees with the closed form to 1e-9", abs(best["Lanczos - closed"]) < 1e-9),
        ("FP32-like products: energy within 1e-4", all(rows[x]["error"] < 1e-4 for x in good)),
        ("FP32-like products: energy of the state within 1e-8", all(rows[x]["of the state"] < 1e-8 for x in good)),
        ("FP16 or TF32 products: off by more than 1e-3", half > 1e-3),
    ]


def draw(axes: Any, rows: Any, results: Any) -> None:
    for label in rows:
        seen, exact = results[label]["seen"], closed_form(results[label]["spins"])
        axes.semilogy(range(1, len(seen) + 1), np.abs(np.array(seen) - exact), "o-", label=label)
    axes.set(xlabel="sweep", ylabel="error of the energy", xticks=range(1, len(seen) + 1))
    axes.legend()


APPLICATION = Application(
    "ground state of a transverse-field Ising chain",
    ("fp64", "fp32", "fp16", "tf32", "tf32x3", "ape-fp32-f", "bf16x9"),
    study,
    compare,
    claims,
    draw,
)

if __name__ == "__main__":
    raise SystemExit(APPLICATION.main())
