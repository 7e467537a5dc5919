"""CCSD of a Pariser-Parr-Pople model in spin orbitals, every contraction a matrix product of the caller's arithmetic.

It knows the model and the equations (Stanton, Gauss, Watts and Bartlett, 1991); no precision.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Multiply = Callable[[Array, Array], Array]
HOPPING, REPULSION = -2.4 / 27.2114, 11.13 / 27.2114  # hartree, of neighbouring carbons; on one site
BOND = 1.4 / 0.529177  # bohr
MOST_CYCLES = 80
HISTORY = 6  # amplitudes that the next ones are extrapolated from


@dataclass(frozen=True)
class Model:
    """Orbital energies (n,), antisymmetric integrals <pq||rs> (n, n, n, n) and occupied spin orbitals, in fp64."""

    energies: Array
    integrals: Array
    occupied: int


def polyene(atoms: int) -> Model:
    """A chain of carbon atoms with one electron each, as Ohno's integrals and restricted Hartree-Fock give it."""
    x = BOND * np.arange(atoms)
    away = np.abs(x[:, None] - x)
    gamma = REPULSION / np.sqrt(1 + (REPULSION * away) ** 2)
    hopping = HOPPING * (np.abs(np.subtract.outer(np.arange(atoms), np.arange(atoms))) == 1)
    core = hopping - np.diag(gamma.sum(1) - np.diag(gamma))
    density = np.eye(atoms)
    for _ in range(500):
        fock = core + np.diag(gamma @ np.diag(density)) - 0.5 * gamma * density
        values, vectors = np.linalg.eigh(fock)
        filled = vectors[:, : atoms // 2]
        new = 2 * filled @ filled.T
        if np.abs(new - density).max() < 1e-13:
            break
        density = 0.5 * (density + new)
    chemists = np.einsum("ap,aq,ab,br,bs->pqrs", vectors, vectors, gamma, vectors, vectors, optimize=True)
    spin = np.arange(2 * atoms) % 2
    same = spin[:, None] == spin
    wide = chemists.repeat(2, 0).repeat(2, 1).repeat(2, 2).repeat(2, 3) * same[:, :, None, None] * same
    physicists = wide.transpose(0, 2, 1, 3)
    return Model(values.repeat(2), physicists - physicists.transpose(0, 1, 3, 2), atoms)


def contracted(multiply: Multiply, dtype: Any, text: str, a: Array, b: Array) -> Array:
    """A contraction of two tensors as one matrix product; text as of einsum."""
    inputs, _, out = text.partition("->")
    left, _, right = inputs.partition(",")
    shared = [name for name in left if name in right]
    rows, columns = [x for x in left if x not in shared], [x for x in right if x not in shared]
    x = a.transpose([left.index(name) for name in rows + shared])
    y = b.transpose([right.index(name) for name in shared + columns])
    sizes = x.shape[: len(rows)] + y.shape[len(shared) :]
    depth = int(np.prod(x.shape[len(rows) :], dtype=int))
    flat = (np.ascontiguousarray(one, dtype) for one in (x.reshape(-1, depth), y.reshape(depth, -1)))
    product = multiply(*flat).reshape(sizes)
    return product.transpose([(rows + columns).index(name) for name in out])


class CoupledCluster:
    """Single and double amplitudes of a model. multiply: of matrices of `dtype`, in which everything is held."""

    def __init__(self, model: Model, multiply: Multiply, dtype: Any) -> None:
        self.multiply, self.dtype = multiply, dtype
        n, size = model.occupied, len(model.energies)
        spaces = {"o": slice(0, n), "v": slice(n, size)}
        self.g = {
            "".join(names): model.integrals[tuple(spaces[x] for x in names)].astype(dtype)
            for names in (
                "oooo", "ooov", "oovv", "ovov", "ovvo", "ovvv", "vovv", "vvvo", "vvvv", "ovoo", "ooov", "oovo", "vvoo",
            )
        }  # fmt: skip
        occupied, empty = model.energies[:n], model.energies[n:]
        self.d1 = (occupied[:, None] - empty).astype(dtype)
        self.d2 = (occupied[:, None, None, None] + occupied[:, None, None] - empty[:, None] - empty).astype(dtype)
        self.t1 = np.zeros_like(self.d1)
        self.t2 = self.g["oovv"] / self.d2
        self.history: list[tuple[Array, Array, Array]] = []

    def _c(self, text: str, a: Array, b: Array) -> Array:
        return contracted(self.multiply, self.dtype, text, a, b)

    def energy(self) -> float:
        """The correlation energy of the amplitudes, hartree."""
        tau = self.t2 / 4 + self._pairs() / 2
        return float(self._c("ijab,ijab->", self.g["oovv"], tau))

    def _pairs(self) -> Array:
        """t_i^a t_j^b."""
        return np.asarray(self.t1[:, None, :, None] * self.t1[None, :, None, :])

    def cycle(self) -> None:
        """One step of the amplitudes towards the solution of their equations."""
        c, g, t1, t2 = self._c, self.g, self.t1, self.t2
        pairs = self._pairs()
        crossed = pairs - pairs.transpose(0, 1, 3, 2)
        tilde, tau = t2 + crossed / 2, t2 + crossed
        f_ae = c("mf,mafe->ae", t1, g["ovvv"]) - c("mnaf,mnef->ae", tilde, g["oovv"]) / 2
        f_mi = c("ne,mnie->mi", t1, g["ooov"]) + c("inef,mnef->mi", tilde, g["oovv"]) / 2
        f_me = c("nf,mnef->me", t1, g["oovv"])
        w_oooo = c("je,mnie->mnij", t1, g["ooov"])
        w_oooo = g["oooo"] + w_oooo - w_oooo.transpose(0, 1, 3, 2) + c("ijef,mnef->mnij", tau, g["oovv"]) / 4
        w_vvvv = c("mb,amef->abef", t1, g["vovv"])
        w_vvvv = g["vvvv"] - w_vvvv + w_vvvv.transpose(1, 0, 2, 3) + c("mnab,mnef->abef", tau, g["oovv"]) / 4
        w_ovvo = g["ovvo"] + c("jf,mbef->mbej", t1, g["ovvv"]) - c("nb,mnej->mbej", t1, g["oovo"])
        w_ovvo = w_ovvo - c("jnfb,mnef->mbej", t2 / 2 + pairs, g["oovv"])

        r1 = c("ie,ae->ia", t1, f_ae) - c("ma,mi->ia", t1, f_mi) + c("imae,me->ia", t2, f_me)
        r1 = r1 - c("nf,naif->ia", t1, g["ovov"]) - c("imef,maef->ia", t2, g["ovvv"]) / 2
        r1 = r1 - c("mnae,nmei->ia", t2, g["oovo"]) / 2

        r2 = g["oovv"].copy()
        dressed = f_ae - c("mb,me->be", t1, f_me) / 2
        term = c("ijae,be->ijab", t2, dressed)
        r2 = r2 + term - term.transpose(0, 1, 3, 2)
        dressed = f_mi + c("je,me->mj", t1, f_me) / 2
        term = c("imab,mj->ijab", t2, dressed)
        r2 = r2 - term + term.transpose(1, 0, 2, 3)
        r2 = r2 + c("mnab,mnij->ijab", tau, w_oooo) / 2 + c("ijef,abef->ijab", tau, w_vvvv) / 2
        term = c("imae,mbej->ijab", t2, w_ovvo) - c("ma,imbj->ijab", t1, c("ie,mbej->imbj", t1, g["ovvo"]))
        term = term - term.transpose(1, 0, 2, 3)
        r2 = r2 + term - term.transpose(0, 1, 3, 2)
        term = c("ie,abej->ijab", t1, g["vvvo"])
        r2 = r2 + term - term.transpose(1, 0, 2, 3)
        term = c("ma,mbij->ijab", t1, g["ovoo"])
        r2 = r2 - term + term.transpose(0, 1, 3, 2)
        self._extrapolate(r1 / self.d1, r2 / self.d2)

    def _extrapolate(self, t1: Array, t2: Array) -> None:
        """The mixture of the last new amplitudes whose steps cancel best (DIIS); its weights in fp64."""
        step = np.concatenate([(t1 - self.t1).ravel(), (t2 - self.t2).ravel()]).astype(np.float64)
        self.history = [*self.history[1 - HISTORY :], (t1, t2, step)]
        count = len(self.history)
        system = np.full((count + 1, count + 1), -1.0)
        system[:count, :count] = [[x @ y for *_, y in self.history] for *_, x in self.history]
        system[count, count] = 0
        system[:count, :count] /= np.abs(system[:count, :count]).max() or 1.0
        weights = np.linalg.lstsq(system, np.eye(count + 1)[count] * -1, rcond=None)[0][:count].astype(self.dtype)
        self.t1 = np.sum([w * one for w, (one, *_) in zip(weights, self.history, strict=True)], axis=0)
        self.t2 = np.sum([w * one for w, (_, one, _) in zip(weights, self.history, strict=True)], axis=0)

    def converged(self, threshold: float) -> tuple[float, int]:
        """The correlation energy once a cycle changes it by no more than the threshold, and the cycles."""
        last = self.energy()
        for count in range(1, MOST_CYCLES + 1):
            self.cycle()
            found = self.energy()
            if abs(found - last) <= threshold:
                return found, count
            last = found
        return last, MOST_CYCLES
