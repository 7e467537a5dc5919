"""Small neural networks over numbers of a GEMM: packing, unpacking, and their mean at a point.

A network's inputs are numbers, their logarithms, or whether a number has a value, each shifted and scaled; also ramps,
which rise from 0 to 1 over a part of a number's range. Its layers are matrices with x / (1 + exp(-x)) between them. All
networks have the same inputs and are evaluated at once. The module knows no feature, no library and no file.
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
PLAIN, LOGARITHM, EQUAL, RAMP, LOGARITHM_RAMP = range(5)  # kinds of inputs


@dataclass(frozen=True, slots=True, eq=False)
class Networks:
    """number: (inputs,) uint8, the place of each input's number in a point. kind: (inputs,) uint8, one of the kinds
    above. shift, scale: (inputs,) float32; an EQUAL input is 1 where the number is `shift`, else 0; a ramp is at most 1
    and at least 0. weights: of each layer, (networks, inputs of the layer, its outputs). biases: of each layer,
    (networks, 1, its outputs).
    """

    number: NDArray[np.uint8]
    kind: NDArray[np.uint8]
    shift: NDArray[np.float32]
    scale: NDArray[np.float32]
    weights: tuple[NDArray[np.float64], ...]
    biases: tuple[NDArray[np.float64], ...]

    def inputs(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """(points, inputs) of (points, numbers)."""
        values = np.asarray(points, np.float64)[:, self.number]
        has_logarithm = (self.kind == LOGARITHM) | (self.kind == LOGARITHM_RAMP)
        is_ramp = (self.kind == RAMP) | (self.kind == LOGARITHM_RAMP)
        scaled = np.where(has_logarithm, np.log(np.maximum(values, LEAST)), values)
        scaled = np.clip((scaled - self.shift) * self.scale, np.where(is_ramp, 0, -MOST), np.where(is_ramp, 1, MOST))
        inputs: NDArray[np.float64] = np.where(self.kind == EQUAL, values == self.shift, scaled)
        return inputs

    def at(self, point: Sequence[float]) -> float:
        """The networks' mean for a point."""
        return float(self.each_at(point).mean())

    def each_at(self, point: Sequence[float]) -> NDArray[np.float64]:
        """What each network gives for a point: (networks,)."""
        values = self.inputs(np.array([point]))[None]
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            if layer:
                values = values / (1 + np.exp(-values))
            values = values @ weight + bias
        return np.asarray(values, np.float64)[:, 0, 0]

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
        tuple(np.asarray(parts[f"{name}_{layer}"], np.float64) for layer in range(LAYERS))
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
