"""The factor by which a GEMM takes longer than its row's sum, by small networks. The module knows no feature and no
library.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import as_file

import numpy as np
from numpy.typing import NDArray

from hwsim.errors import InputError
from hwsim.host.places import package_folder
from hwsim.libraries.cublas.times import network
from hwsim.libraries.cublas.times.network import Networks

MOST_LOGARITHM = 1.5  # what is beyond is no other time but another kernel; nothing is fitted to it


@dataclass(frozen=True, slots=True, eq=False)
class TimeFactor:
    """Networks for the factor's logarithm."""

    networks: Networks

    def at(self, point: Sequence[float]) -> float:
        """The factor for a point: the geometric mean of the networks'."""
        return math.exp(min(max(self.networks.at(point), -MOST_LOGARITHM), MOST_LOGARITHM))

    def pack(self) -> dict[str, NDArray[np.generic]]:
        """Small arrays that `unpack` takes."""
        return self.networks.pack()


def unpack(parts: Mapping[str, NDArray[np.generic]]) -> TimeFactor:
    """The factor that `TimeFactor.pack` gave. Raises ValueError, or KeyError for an array that is missing."""
    return TimeFactor(network.unpack(parts))


@cache
def factor_of(name: str) -> TimeFactor | None:
    """The factor of a file beside the library files; None without a name.

    Raises InputError where it cannot be read.
    """
    if not name:
        return None
    try:
        with as_file(package_folder("libraries") / name) as path, np.load(path) as file:
            return unpack({key: file[key] for key in file.files})
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise InputError(f"{name}: {error}; install hwsim again") from None
