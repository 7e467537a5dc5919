from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

class Maker:
    """Makes instances of a frozen dataclass with slots, as its `__new__`.

    members: descriptors of the slots; names, defaults: of the fields; missing: the default of one that has none.
    """

    def __init__(
        self, members: tuple[Any, ...], names: tuple[str, ...], defaults: tuple[Any, ...], missing: object
    ) -> None: ...
    def __call__(self, *args: Any, **named: Any) -> Any: ...

class Flattener:
    """The tables of one kernel, stream by stream (hwsim.program.flat)."""

    skipped: bool
    forms: dict[Hashable, int]
    kinds: list[int]
    firsts: list[int]
    examples: list[Any]

    def __init__(
        self,
        classes: tuple[type, type, type],
        opcodes: Mapping[str, int],
        engines: Mapping[str, int],
        arrays: Mapping[str, int],
        buffers: Mapping[str, int],
        semaphores: Mapping[str, int],
        column_major: frozenset[str],
        reader: object | None,
    ) -> None: ...
    @property
    def count(self) -> int: ...
    def stream(self, body: tuple[Any, ...], derived: tuple[Any, ...], core: str) -> None: ...
    def tables(self) -> dict[str, NDArray[np.int64]]: ...
