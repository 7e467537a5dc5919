"""The place of a product in a model: settings, layer, pass and operation. It knows no tensor."""

from __future__ import annotations

from dataclasses import dataclass

from hwsim.frameworks.settings import PassName


@dataclass(frozen=True, slots=True)
class Place:
    """Where a product belongs: the settings' key, the layer's name, the pass, the operation (for the record), and which
    operand is a gradient ("a", "b", or "").
    """

    key: str
    layer: str
    stage: PassName
    operation: str
    gradient: str = ""
