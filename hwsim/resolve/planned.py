"""A scheme's options and plan, as the choices of a study pass them on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hwsim.gemm.plan import Mixed, Plan


@dataclass(frozen=True, slots=True)
class Planned:
    """A scheme's complete options and its plan. refused: {choice: why not} of an option that was left to the device."""

    options: dict[str, Any]
    plan: Plan | Mixed
    refused: dict[str, str] = field(default_factory=dict)
