"""A random quantum circuit on Sycamore's layout, or a patch of it, as a network of gate tensors, and as a state vector.

It knows the layout, the gates and the order of the couplers; neither contraction paths nor the simulator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Place = tuple[int, int]  # row, column
#: First and last column of each row of the chip; one qubit did not work.
ROWS = ((5, 6), (4, 7), (3, 8), (2, 9), (1, 9), (0, 8), (1, 7), (2, 6), (3, 5), (4, 4))
BROKEN = (2, 3)
CENTRE = (4.5, 4.75)
#: Couplers of a layer: along columns or rows, from places whose row and column add to an even or odd number.
COUPLERS = {"A": (True, 0), "B": (True, 1), "C": (False, 1), "D": (False, 0)}
ORDER = "ABCDCDAB"
X = np.array([[0, 1], [1, 0]], complex)
Y = np.array([[0, -1j], [1j, 0]])
THETA, PHI, SPREAD = np.pi / 2, np.pi / 6, 0.05  # of the coupler's gate; deviation from pair to pair as published


def places(qubits: int) -> list[Place]:
    """The qubits nearest to the chip's middle along its couplers, all 53 or fewer."""
    every = [(r, c) for r, (first, last) in enumerate(ROWS) for c in range(first, last + 1) if (r, c) != BROKEN]
    return sorted(every, key=lambda at: abs(at[0] - CENTRE[0]) + abs(at[1] - CENTRE[1]))[:qubits]


def couplers(at: list[Place], layer: int) -> list[tuple[int, int]]:
    """The pairs of qubits (by number) that a layer's gates act on."""
    is_down, odd = COUPLERS[ORDER[layer % len(ORDER)]]
    number = {place: i for i, place in enumerate(at)}
    found = []
    for (r, c), i in number.items():
        other = (r + 1, c) if is_down else (r, c + 1)
        if (r + c) % 2 == odd and other in number:
            found.append((i, number[other]))
    return found


@dataclass(frozen=True)
class CircuitGate:
    """A pair's gate with the one-qubit gates before it. tensor: two outputs, then two inputs; qubits: by number."""

    tensor: Array
    qubits: tuple[int, int]


@dataclass(frozen=True)
class RandomCircuit:
    """gates: in order, fp64. last: the one-qubit gate (2, 2) that ends each qubit, after `gates`."""

    qubits: int
    gates: list[CircuitGate]
    last: list[Array]


def root(of: Array) -> Array:
    """The square root of a matrix whose square is one, the eigenvalue -1 taken to i."""
    return np.asarray((1 + 1j) / 2 * np.eye(2) + (1 - 1j) / 2 * of)


def phase(angle: float) -> Array:
    """A rotation about z."""
    return np.diag(np.exp([-0.5j * angle, 0.5j * angle]))


def coupler_gate(theta: float, phi: float) -> Array:
    """fSim: exchange by theta, and a phase phi of |11>."""
    c, s = np.cos(theta), -1j * np.sin(theta)
    return np.array([[1, 0, 0, 0], [0, c, s, 0], [0, s, c, 0], [0, 0, 0, np.exp(-1j * phi)]])


def random_circuit(qubits: int, layers: int, seed: int) -> RandomCircuit:
    """Layers of a root of X, Y or (X + Y) / sqrt 2 on each qubit, none twice in a row, and gates on couplers.

    Around each coupler's gate are random phases; its angles deviate from the nominal ones, pair by pair.
    """
    random = np.random.default_rng(seed)
    roots = [root(X), root(Y), root((X + Y) / np.sqrt(2))]
    at = places(qubits)
    angles: dict[tuple[int, int], Array] = {}
    chosen = random.integers(0, 3, qubits)
    waiting = [roots[i] for i in chosen]
    gates = []
    for layer in range(layers):
        for pair in couplers(at, layer):
            theta, phi = angles.setdefault(pair, random.normal([THETA, PHI], SPREAD))
            before, after = (np.kron(phase(x), phase(y)) for x, y in random.uniform(-np.pi, np.pi, (2, 2)))
            own = after @ coupler_gate(theta, phi) @ before @ np.kron(waiting[pair[0]], waiting[pair[1]])
            gates.append(CircuitGate(own.reshape(2, 2, 2, 2), pair))
            for qubit in pair:
                waiting[qubit] = np.eye(2, dtype=complex)
        chosen = (chosen + random.integers(1, 3, qubits)) % 3
        waiting = [roots[i] @ before_it for i, before_it in zip(chosen, waiting, strict=True)]
    return RandomCircuit(qubits, gates, waiting)


def state_vector(circuit: RandomCircuit) -> Array:
    """All amplitudes from |0...0>, one axis a qubit, in fp64."""
    state = np.zeros((2,) * circuit.qubits, complex)
    state[(0,) * circuit.qubits] = 1
    for gate in circuit.gates:
        state = np.moveaxis(np.tensordot(gate.tensor, state, ((2, 3), gate.qubits)), (0, 1), gate.qubits)
    for qubit, own in enumerate(circuit.last):
        state = np.moveaxis(np.tensordot(own, state, (1, qubit)), 0, qubit)
    return state


@dataclass(frozen=True)
class Network:
    """Tensors whose axes, all of length 2, are named by numbers: two tensors with a name share an axis, summed over.

    names: of each tensor's axes. open: names of one tensor only, the axes of the result.
    """

    tensors: list[Array]
    names: list[tuple[int, ...]]
    open: tuple[int, ...]


def network(circuit: RandomCircuit, bits: Array, open: tuple[int, ...]) -> Network:
    """The amplitudes of bit strings that differ at the open qubits: inputs and outputs are put into the gates.

    bits: of every qubit; those at open qubits are not read.
    """
    latest: dict[int, int] = {}  # qubit -> its gate that came last
    names: list[list[int]] = []
    tensors = [gate.tensor for gate in circuit.gates]
    wire: list[int | None] = [None] * circuit.qubits
    for number, gate in enumerate(circuit.gates):
        inputs = [wire[qubit] for qubit in gate.qubits]
        for axis in (1, 0):
            if inputs[axis] is None:
                tensors[number] = np.take(tensors[number], 0, 2 + axis)
        for side, qubit in enumerate(gate.qubits):
            wire[qubit], latest[qubit] = 2 * number + side, number
        names.append([2 * number, 2 * number + 1, *(x for x in inputs if x is not None)])
    outputs = []
    for qubit, own in enumerate(circuit.last):
        number, name = latest[qubit], wire[qubit]
        assert name is not None
        axis = names[number].index(name)
        tensor = np.moveaxis(np.tensordot(own, tensors[number], (1, axis)), 0, axis)
        if qubit in open:
            outputs.append(name)
        else:
            tensor = np.take(tensor, int(bits[qubit]), axis)
            del names[number][axis]
        tensors[number] = tensor
    return Network(tensors, [tuple(x) for x in names], tuple(outputs))
