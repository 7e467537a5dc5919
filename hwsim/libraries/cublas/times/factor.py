"""The factor by which a GEMM takes longer than its row's sum, by small networks. The module knows no feature and no
library.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from importlib.resources import as_file

import numpy as np

from hwsim.errors import InputError
from hwsim.host.places import package_folder
from hwsim.libraries.cublas.times import network
from hwsim.libraries.cublas.times.network import Networks

MOST_LOGARITHM = 1.5  # what is beyond is no other time but another kernel; nothing is fitted to it


def factor_at(networks: Networks, point: Sequence[float]) -> float:
    """The factor for a point: the geometric mean of what the networks give, within its bounds."""
    return math.exp(min(max(networks.at(point), -MOST_LOGARITHM), MOST_LOGARITHM))


@cache
def networks_of(name: str) -> Networks | None:
    """The networks of a file beside the library files; None without a name.

    Raises InputError where it cannot be read.
    """
    if not name:
        return None
    try:
        with as_file(package_folder("libraries") / name) as path, np.load(path) as file:
            return network.unpack({key: file[key] for key in file.files})
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise InputError(f"{name}: {error}; install hwsim again") from None
