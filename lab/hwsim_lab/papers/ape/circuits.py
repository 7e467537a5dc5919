"""Quantum circuits by state vector (Ape's Fig. 13): gates fused to small matrices, complex GEMMs as four real ones.

It knows circuits by name and formula, which stand in for those that the paper gives by name only, and the A100.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from hwsim.api import matmul
from hwsim.devices.device import Device
from hwsim_lab.papers.ape.gemm_errors import with_exact_sums
from hwsim_lab.papers.cells import Cell, CellCall, call
from hwsim_lab.papers.conditions import Quantity
from hwsim_lab.papers.experiment import Experiment, Found, Scale, Series
from hwsim_lab.papers.splits import Array

DEVICE = "a100"
Gate = tuple[Array, tuple[int, ...]]  # a matrix, and the qubits that it acts on, most significant first
Circuit = list[Gate]
TYPES: dict[str, dict[str, Any]] = {
    "FP32": {"format": "fp32"},
    "FP32-F": {"scheme": "ape-fp32-f"},
    "FP32-B": {"scheme": "ape-fp32-b"},
    "FP16": {"format": "fp16"},
}
EMULATED = ("FP32-F", "FP32-B")
STEPS, TIME_STEP, FIELD = 10, 0.1, 1.0  # of the Ising model's Trotter formula; coupling 1
QUBITS: dict[Scale, int] = {"quick": 12, "full": 16}
ISING_QUBITS: dict[Scale, int] = {"quick": 14, "full": 22}
FUSED: dict[Scale, int] = {"quick": 6, "full": 9}  # qubits of a fused gate: matrices of 64 and of 512
ABOVE = 1e-8  # of the largest amplitude
X = np.array([[0, 1], [1, 0]], complex)
Z = np.diag([1.0 + 0j, -1.0])
H = np.array([[1, 1], [1, -1]], complex) / np.sqrt(2)
CZ = np.diag([1, 1, 1, -1.0 + 0j])
CNOT = np.eye(4, dtype=complex)[[0, 1, 3, 2]]
CLAIMS = ("fig13-emulations-equal-fp32", "fig13-fp16-obvious-errors", "fig13-ising-values", "fig13-ising-ratio")


def ising(qubits: int) -> Circuit:
    """Trotter steps of exp(-i t (sum Z Z + sum X)) on an open chain, from |0...0>."""
    pair = np.diag(np.exp(-1j * TIME_STEP * np.diag(np.kron(Z, Z))))
    one = np.cos(TIME_STEP * FIELD) * np.eye(2) - 1j * np.sin(TIME_STEP * FIELD) * X
    step: Circuit = [(pair, (i, i + 1)) for i in range(qubits - 1)] + [(one, (i,)) for i in range(qubits)]
    return STEPS * step


def fourier(qubits: int) -> Circuit:
    """The quantum Fourier transform of a random product state, without the final exchanges."""
    found: Circuit = rotations(qubits, 1)
    for i in range(qubits):
        found.append((H, (i,)))
        for j in range(i + 1, qubits):
            found.append((np.diag([1, 1, 1, np.exp(2j * np.pi / 2 ** (j - i + 1))]), (i, j)))
    return found


def rotations(qubits: int, seed: int) -> Circuit:
    """A random rotation about y, then z, of each qubit."""
    rng = np.random.default_rng(seed)
    found: Circuit = []
    for qubit in range(qubits):
        y, z = rng.uniform(0, 2 * np.pi, 2) / 2
        rotated = np.array([[np.cos(y), -np.sin(y)], [np.sin(y), np.cos(y)]])
        found.append((np.diag(np.exp([-1j * z, 1j * z])) @ rotated, (qubit,)))
    return found


def random_circuit(qubits: int) -> Circuit:
    """Layers of random rotations, and CZ on neighbours."""
    found: Circuit = []
    for layer in range(STEPS):
        found += rotations(qubits, 10 + layer)
        found += [(CZ, (i, i + 1)) for i in range(layer % 2, qubits - 1, 2)]
    return found


def ghz(qubits: int) -> Circuit:
    """(|0...0> + |1...1>) / sqrt 2, then random rotations."""
    return [(H, (0,)), *((CNOT, (i, i + 1)) for i in range(qubits - 1)), *rotations(qubits, 2)]


CIRCUITS: dict[str, Callable[[int], Circuit]] = {
    "Ising": ising, "Fourier": fourier, "random": random_circuit, "GHZ": ghz,
}  # fmt: skip


def fused(circuit: Sequence[Gate], most: int) -> Iterator[Gate]:
    """Gates in order, joined while they act on at most `most` qubits."""
    waiting: list[Gate] = []
    qubits: set[int] = set()
    for gate in circuit:
        if waiting and len(qubits | set(gate[1])) > most:
            yield joined(waiting, tuple(sorted(qubits)))
            waiting, qubits = [], set()
        waiting.append(gate)
        qubits |= set(gate[1])
    yield joined(waiting, tuple(sorted(qubits)))


def joined(gates: Sequence[Gate], qubits: tuple[int, ...]) -> Gate:
    """One matrix for gates, in fp64."""
    size = len(qubits)
    matrix = np.eye(2**size, dtype=complex).reshape((2,) * size + (2**size,))
    for gate, own in gates:
        matrix = applied(gate, [qubits.index(qubit) for qubit in own], matrix, np.matmul)
    return matrix.reshape(2**size, 2**size), qubits


def applied(gate: Array, axes: Sequence[int], state: Array, product: Callable[[Array, Array], Array]) -> Array:
    """The gate times the state's axes."""
    front = np.moveaxis(state, axes, range(len(axes)))
    shape = front.shape
    found = product(gate, front.reshape(len(gate), -1)).reshape(shape)
    return np.moveaxis(found, range(len(axes)), axes)


def on_device(options: dict[str, Any], device: Device | str = DEVICE) -> Callable[[Array, Array], Array]:
    """Complex products of FP32 parts as four real ones on the device."""

    def product(gate: Array, state: Array) -> Array:
        left, right = ((x.real.astype(np.float32), x.imag.astype(np.float32)) for x in (gate, state))
        (rr, ri), (ir, ii) = ([matmul(x, y, device=device, **options) for y in right] for x in left)
        return (rr - ii) + 1j * (ri + ir)

    return product


def final_state(circuit: Sequence[Gate], qubits: int, product: Callable[[Array, Array], Array]) -> Array:
    """The amplitudes after fused gates, from |0...0>."""
    state = np.zeros((2,) * qubits, complex)
    state[(0,) * qubits] = 1
    for gate, own in circuit:
        state = applied(gate, own, state, product)
    return state.ravel()


@dataclass(frozen=True)
class Deviation:
    """Of one type: see CircuitErrors."""

    largest: float
    norm: float
    least: float


@dataclass(frozen=True)
class CircuitErrors:
    """By type: the largest relative error of the amplitudes selected, and the relative error of all in the 2-norm.

    least: the smallest amplitude selected, over the largest. exact_sums: `norm` on a unit that adds without cutting.
    """

    largest: dict[str, float]
    norm: dict[str, float]
    least: float
    exact_sums: dict[str, float]


@lru_cache(maxsize=1)
def exact(name: str, qubits: int, most: int) -> tuple[Circuit, Array]:
    """A circuit with its gates fused, and its amplitudes in fp64."""
    circuit = list(fused(CIRCUITS[name](qubits), most))
    return circuit, final_state(circuit, qubits, np.matmul)


@Cell
def deviation(name: str, qubits: int, most: int, above: float, kind: str, is_exact: bool = False) -> Deviation:
    """Errors of one type. is_exact: on a unit that adds without cutting."""
    circuit, reference = exact(name, qubits, most)
    size = np.abs(reference)
    selected = (size > above * size.max()) & (size > 0)
    device: Device | str = with_exact_sums("RNE") if is_exact else DEVICE
    apart = np.abs(final_state(circuit, qubits, on_device(TYPES[kind], device)) - reference)
    return Deviation(
        float((apart[selected] / size[selected]).max()),
        float(np.linalg.norm(apart) / np.linalg.norm(size)),
        float(size[selected].min() / size.max()),
    )


def errors(name: str, qubits: int, most: int, above: float, is_explained: bool = False) -> CircuitErrors:
    """Errors against fp64 of the amplitudes above a part of the largest one. is_explained: with `exact_sums`."""
    found = {kind: deviation(name, qubits, most, above, kind) for kind in TYPES}
    other = {kind: deviation(name, qubits, most, above, kind, True) for kind in EMULATED} if is_explained else {}
    largest = {kind: one.largest for kind, one in found.items()}
    norm, without_cuts = ({kind: one.norm for kind, one in each.items()} for each in (found, other))
    return CircuitErrors(largest, norm, next(iter(found.values())).least, without_cuts)


def _cells(scale: Scale) -> list[CellCall]:
    qubits, most = QUBITS[scale], FUSED[scale]
    return [
        *(call(deviation, "Ising", ISING_QUBITS[scale], most, 0.0, kind) for kind in TYPES),
        *(call(deviation, name, qubits, most, ABOVE, kind) for name in CIRCUITS for kind in TYPES),
        *(call(deviation, "Ising", qubits, most, ABOVE, kind, True) for kind in EMULATED),
    ]


def measure(scale: Scale) -> Found:
    """Four circuits, and the Ising model again with more qubits."""
    qubits, most = QUBITS[scale], FUSED[scale]
    by_circuit = {name: errors(name, qubits, most, ABOVE, name == "Ising") for name in CIRCUITS}
    found = {kind: [one.largest[kind] for one in by_circuit.values()] for kind in TYPES}
    long = errors("Ising", ISING_QUBITS[scale], most, 0.0)
    chain, short = long.largest, by_circuit["Ising"]
    measured: dict[str, dict[str, Quantity]] = {
        "fig13-emulations-equal-fp32": {
            "fp32f": found["FP32-F"], "fp32b": found["FP32-B"], "fp32": found["FP32"],
        },
        "fig13-fp16-obvious-errors": {"fp16": found["FP16"], "fp32": found["FP32"]},
        "fig13-ising-values": {
            "fp32f": 100 * chain["FP32-F"], "fp32b": 100 * chain["FP32-B"], "fp32": 100 * chain["FP32"],
            "fp16": 100 * chain["FP16"],
        },
        "fig13-ising-ratio": {"ratio": chain["FP16"] / chain["FP32-F"]},
    }  # fmt: skip
    small = f"Stand-in circuits ({', '.join(CIRCUITS)}) of {qubits} qubits, gates fused to matrices of {2**most}; the "
    small += "reference has unrounded gates."
    per_cent = {kind: f"{100 * short.largest[kind]:.2g} %" for kind in TYPES}
    large = (
        f"A stand-in Ising chain of {ISING_QUBITS[scale]} qubits instead of 25, {STEPS} Trotter steps of {TIME_STEP}, "
        f"gates fused to matrices of {2**most}; the real circuit and its error's formula are not given. At {qubits} "
        f"qubits FP32-F's error is {per_cent['FP32-F']}, FP32's {per_cent['FP32']}, FP16's {per_cent['FP16']}: the "
        f"largest relative errors are of the smallest amplitudes ({long.least:.0e} of the largest), so they depend on "
        "qubits, steps and angles."
    )
    notes = dict.fromkeys(CLAIMS[:2], small) | dict.fromkeys(CLAIMS[2:], large)
    notes["fig13-emulations-equal-fp32"] += (
        " In the 2-norm of all amplitudes the errors are "
        + "; ".join(
            f"{name}: " + ", ".join(f"{kind} {one.norm[kind]:.1e}" for kind in ("FP32", *EMULATED))
            for name, one in by_circuit.items()
        )
        + ". On a unit with exact sums rounded to nearest those of Ising are "
        + ", ".join(f"{kind} {one:.1e}" for kind, one in short.exact_sums.items())
        + "."
    )
    rows = [(kind, name, by_circuit[name].largest[kind]) for kind in TYPES for name in CIRCUITS]
    columns: dict[str, list[Any]] = {
        "type": [row[0] for row in rows],
        "circuit": [row[1] for row in rows],
        "largest relative error": [row[2] for row in rows],
    }
    return Found(measured, notes, (Series("fig13", columns),))


EXPERIMENTS = (Experiment("circuits", CLAIMS, measure, {"quick": 14, "full": 1200}, _cells),)
