"""Small neural networks over numbers of a GEMM: packing, unpacking, and their mean at a point.

A network's inputs are numbers, their logarithms, or whether a number has a value, each shifted and scaled; its layers
are matrices with x / (1 + exp(-x)) between them. All networks have the same inputs and are evaluated at once. The
module knows no feature, no library and no file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

MOST = 4.0  # an input, scaled: beyond what was recorded a network gets what was at its edge
LEAST = 1e-3  # of which a logarithm is taken
LAYERS = 3
PLAIN, LOGARITHM, EQUAL = 0, 1, 2  # kinds of inputs


@dataclass(frozen=True, slots=True, eq=False)
class Networks:
    """number: (inputs,) uint8, the place of each input's number in a point. kind: (inputs,) uint8, of PLAIN, LOGARITHM
    and EQUAL. shift, scale: (inputs,) float32; an EQUAL input is 1 where the number is `shift`, else 0. weights: of
    each layer, (networks, inputs of the layer, its outputs). biases: of each layer, (networks, 1, its outputs).
    """

    number: NDArray[np.uint8]
    kind: NDArray[np.uint8]
    shift: NDArray[np.float32]
    scale: NDArray[np.float32]
    weights: tuple[NDArray[np.float32], ...]
    biases: tuple[NDArray[np.float32], ...]

    def inputs(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """(points, inputs) of (points, numbers)."""
        values = np.asarray(points, np.float64)[:, self.number]
        scaled = np.where(self.kind == LOGARITHM, np.log(np.maximum(values, LEAST)), values)
        scaled = np.clip((scaled - self.shift) * self.scale, -MOST, MOST)
        inputs: NDArray[np.float64] = np.where(self.kind == EQUAL, values == self.shift, scaled)
        return inputs

    def at(self, point: Sequence[float]) -> float:
        """The networks' mean for a point."""
        values = self.inputs(np.array([point]))[None]
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            if layer:
                values = values / (1 + np.exp(-values))
            values = values @ weight.astype(np.float64) + bias
        return float(values.mean())

    def pack(self) -> dict[str, NDArray[np.generic]]:
        """Small arrays that `unpack` takes."""
        layers = {f"weights_{i}": x.astype(np.float16) for i, x in enumerate(self.weights)}
        layers |= {f"biases_{i}": x.astype(np.float16) for i, x in enumerate(self.biases)}
        return {"number": self.number, "kind": self.kind, "shift": self.shift, "scale": self.scale, **layers}


def unpack(parts: Mapping[str, NDArray[np.generic]]) -> Networks:
    """The networks that `Networks.pack` gave. Raises ValueError for arrays of shapes that do not fit."""
    number, kind = (np.asarray(parts[name], np.uint8) for name in ("number", "kind"))
    shift, scale = (np.asarray(parts[name], np.float32) for name in ("shift", "scale"))
    weights, biases = (
        tuple(np.asarray(parts[f"{name}_{layer}"], np.float32) for layer in range(LAYERS))
        for name in ("weights", "biases")
    )
    shapes = [(len(weights[0]), 1, weight.shape[-1]) for weight in weights]
    lengths = [len(number), *(shape[-1] for shape in shapes)]
    fits = [weight.shape == (len(weights[0]), *pair) for weight, pair in zip(weights, pairwise(lengths), strict=True)]
    if not all(fits) or [bias.shape for bias in biases] != shapes or lengths[-1] != 1:
        raise ValueError(f"layers of {[weight.shape for weight in weights]} do not follow {lengths[0]} inputs")
    if {len(kind), len(shift), len(scale)} != {len(number)}:
        raise ValueError(f"{lengths[0]} inputs have kinds, shifts or scales of other lengths")
    return Networks(number, kind, shift, scale, weights, biases)
