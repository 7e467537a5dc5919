"""The floating-point environment of hwsim's functions: the default one, whatever another library has set on a thread.

XLA's callbacks and code built with -ffast-math flush subnormals to zero on their threads, which would change bits. The
kernels see to themselves (kernels_ext/include/hw_environment.h); this module sees to NumPy's arithmetic between their
calls. It knows the control register and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from hwsim._kernels.convert import DEFAULT_ENVIRONMENT, environment, set_environment

P = ParamSpec("P")
R = TypeVar("R")


def in_default_environment(function: Callable[P, R]) -> Callable[P, R]:
    """The function, run in the default environment; the caller's is put back afterwards."""

    @wraps(function)
    def inside(*args: P.args, **kwargs: P.kwargs) -> R:
        before = environment()
        if before == DEFAULT_ENVIRONMENT:
            return function(*args, **kwargs)
        set_environment(DEFAULT_ENVIRONMENT)
        try:
            return function(*args, **kwargs)
        finally:
            set_environment(before)

    return inside
