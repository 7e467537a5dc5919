"""A random quantum circuit by tensor contraction: the state is a tensor with an index for each qubit.

Layers of random gates on neighbouring pairs; two layers on four qubits make one 16 x 16 operator, which is contracted
with the state by np.tensordot (complex: four real products). Claims: with bf16x9, the fidelity with the exact state
differs from 1 by less than 1e-10 and the norm by less than 1e-5; FP16 products lose fidelity at least a thousand times
faster; the cross-entropy benchmark sees neither, for it is made for errors of a percent.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from common import Application, Case

GROUP = 4


def haar(rng: np.random.Generator) -> Any:
    """A random 4 x 4 unitary."""
    q, r = np.linalg.qr(rng.standard_normal((4, 4)) + 1j * rng.standard_normal((4, 4)))
    return q * (np.diag(r) / np.abs(np.diag(r)))


def operator(rng: np.random.Generator) -> Any:
    """Gates on the pairs (0, 1), (2, 3), then on (1, 2), as one operator of four qubits."""
    return np.kron(np.eye(2), np.kron(haar(rng), np.eye(2))) @ np.kron(haar(rng), haar(rng))


def study(case: Case, quick: bool) -> dict[str, Any]:
    """The state after every cycle."""
    qubits, cycles = (8, 4) if quick else (12, 16)
    rng = np.random.default_rng(6)
    state = np.zeros((2,) * qubits, complex)
    state[(0,) * qubits] = 1
    states = []
    with case.products(threads=1):
        for cycle in range(cycles):
            for first in range(0, qubits, GROUP):
                places = [(first + i + 2 * (cycle % 2)) % qubits for i in range(GROUP)]
                gate = operator(rng).reshape((2,) * (2 * GROUP))
                state = np.tensordot(gate, state, (range(GROUP, 2 * GROUP), places))
                state = np.moveaxis(state, range(GROUP), places)
            states.append(state)
    return {"states": [x.ravel() for x in states]}


def lost(exact: Any, found: Any) -> float:
    """1 - fidelity of the normalised states, from the part of `found` that is orthogonal to `exact`."""
    overlap = exact.conj() @ found
    rest = found - overlap * exact
    return float(np.linalg.norm(rest) ** 2 / np.linalg.norm(found) ** 2)


def compare(exact: dict[str, Any], found: dict[str, Any]) -> dict[str, float]:
    ideal, got = exact["states"][-1], found["states"][-1]
    p, q = np.abs(ideal) ** 2, np.abs(got) ** 2
    return {
        "1 - fidelity": lost(ideal, got),
        "norm - 1": abs(float(np.linalg.norm(got)) - 1),
        "cross-entropy": (len(p) * float((p * q).sum() / q.sum()) - 1) / (len(p) * float((p * p).sum()) - 1),
    }


def claims(rows: Any) -> list[tuple[str, bool]]:
    own, half = rows["bf16x9"], rows["fp16"]
    return [
        ("bf16x9: fidelity to 1e-10, norm to 1e-5", own["1 - fidelity"] < 1e-10 and own["norm - 1"] < 1e-5),
        ("FP16 products lose a thousand times more", half["1 - fidelity"] > 1000 * own["1 - fidelity"]),
        ("cross-entropy within a percent for all", all(abs(row["cross-entropy"] - 1) < 0.01 for row in rows.values())),
    ]


def draw(axes: Any, rows: Any, results: Any) -> None:
    for label in rows:
        if label != "fp64":
            pairs = zip(results["fp64"]["states"], results[label]["states"], strict=True)
            axes.semilogy([lost(*pair) for pair in pairs], "o-", label=label)
    axes.set(xlabel="cycle", ylabel="1 - fidelity")
    axes.legend()


APPLICATION = Application(
    "random quantum circuit by tensor contraction",
    ("fp64", "fp32", "fp16", "tf32", "tf32x3", "ape-fp32-f", "bf16x9"),
    study,
    compare,
    claims,
    draw,
)

if __name__ == "__main__":
    raise SystemExit(APPLICATION.main())
