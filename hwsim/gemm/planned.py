"""A scheme's options and plan, as passed between the functions of this package."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hwsim.gemm.plan import Mixed, Plan


@dataclass(frozen=True, slots=True)
class Planned:
    """A scheme's complete options and its plan.

    refused: {choice: reason} for choices of an option left to the device that the device does not support.
    """

    options: dict[str, Any]
    plan: Plan | Mixed
    refused: dict[str, str] = field(default_factory=dict)
