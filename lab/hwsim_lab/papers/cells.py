"""Parts of experiments that are kept one by one: a stopped run goes on within an experiment, processes share its work.

A cell is a function of plain arguments. The module knows where results lie and how they are written; neither what is
computed, nor which experiment asks.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar, get_type_hints

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from hwsim.host.files import whole_file, write_text

P = ParamSpec("P")
R = TypeVar("R")
SECONDS_APART = 20.0  # between two states of a long cell
PLAIN = (type(None), bool, int, float, complex, str, bytes, np.generic)


class _Keeping:
    """folder: where results are kept; None: they are not, as where an assumption has another value."""

    folder: Path | None = None


@contextmanager
def stored_in(folder: Path | None) -> Iterator[None]:
    """Keep results of cells in a folder, and take those that are there, in this process and within the block."""
    before = _Keeping.folder
    _Keeping.folder = folder
    try:
        yield
    finally:
        _Keeping.folder = before


class Cell(Generic[P, R]):
    """A function whose results are kept as JSON within `stored_in`.

    Arguments are plain: numbers, text, tuples, frozen dataclasses, types, functions of modules. The result is of the
    type that the function is annotated with: numbers, text, tuples, lists, dictionaries and dataclasses of them.
    """

    def __init__(self, function: Callable[P, R]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self._signature = inspect.signature(function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        path = self.path(self.key(*args, **kwargs))
        if path is None:
            return self.function(*args, **kwargs)
        if not path.exists():
            given = self.function(*args, **kwargs)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, json.dumps(self._adapter.dump_python(given)))
        return self._adapter.validate_python(json.loads(path.read_text(encoding="utf-8")))

    def __reduce__(self) -> str:
        """By name, as functions are sent to processes."""
        return self.function.__qualname__

    def key(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """The arguments as text; defaults count as given. Raises TypeError for one that is not plain."""
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        own = self.function.__qualname__
        return json.dumps({name: _text(value, f"{own}: {name}") for name, value in bound.arguments.items()})

    def path(self, key: str, suffix: str = ".json") -> Path | None:
        """The file of a result; None where none is kept."""
        if _Keeping.folder is None:
            return None
        module, name = self.function.__module__, self.function.__qualname__
        digest = hashlib.sha256(f"{module}:{name}{key}".encode()).hexdigest()[:24]
        return _Keeping.folder / f"{module.rpartition('.')[2]}.{name}-{digest}{suffix}"

    @functools.cached_property
    def _adapter(self) -> TypeAdapter[R]:
        return TypeAdapter(get_type_hints(self.function)["return"])


class HeldCell(Cell[P, R]):
    """A cell whose results this process also holds."""

    def __init__(self, function: Callable[P, R]) -> None:
        super().__init__(function)
        self._held: dict[str, R] = {}

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        key = self.key(*args, **kwargs)
        if key not in self._held:
            self._held[key] = super().__call__(*args, **kwargs)
        return self._held[key]

    def cache_clear(self) -> None:
        """Forget what this process holds; what is kept in a folder stays."""
        self._held.clear()


def _text(value: Any, where: str) -> Any:
    """What tells a plain argument from every other one, ready for JSON. Raises TypeError for one that is not plain."""
    if isinstance(value, Cell):
        value = value.function
    if isinstance(value, PLAIN):
        return repr(value)
    if isinstance(value, tuple | list):
        return [type(value).__name__, *(_text(one, where) for one in value)]
    if isinstance(value, dict):
        return {repr(name): _text(one, where) for name, one in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        own = {entry.name: _text(getattr(value, entry.name), where) for entry in dataclasses.fields(value)}
        return {_text(type(value), where): own}
    if (inspect.isfunction(value) or isinstance(value, type)) and "<" not in value.__qualname__:  # as in <locals>
        return f"{value.__module__}:{value.__qualname__}"
    raise TypeError(f"{where} is not plain, and a result cannot be kept by it: {value!r:.200}")


@dataclass(frozen=True)
class CellCall:
    """One result of a cell, to be computed in any process."""

    cell: Cell[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def path(self) -> Path:
        """The file of the result, within `stored_in`."""
        found = self.cell.path(self.cell.key(*self.args, **self.kwargs))
        assert found is not None
        return found

    def run(self) -> None:
        """Compute the result and keep it, unless it is there."""
        self.cell(*self.args, **self.kwargs)


class Checkpoint:
    """The state of a long cell, kept now and then, from which a stopped one goes on; removed when it has ended."""

    def __init__(self, cell: Cell[..., Any], *args: Any) -> None:
        self._path = cell.path(cell.key(*args), ".npz")
        self._last = time.monotonic()

    def state(self) -> dict[str, NDArray[Any]] | None:
        """The arrays that were kept last; None where there are none."""
        if self._path is None:
            return None
        try:
            with np.load(self._path, allow_pickle=False) as arrays:
                return dict(arrays)
        except FileNotFoundError:
            return None

    def keep(self, **arrays: NDArray[Any]) -> None:
        """Keep arrays, if some time has passed since they were kept last."""
        if self._path is None or time.monotonic() - self._last < SECONDS_APART:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(self._path) as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        self._last = time.monotonic()

    def remove(self) -> None:
        """The cell has ended."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def call(cell: Cell[..., Any], *args: Any, **kwargs: Any) -> CellCall:
    """The call of a cell."""
    return CellCall(cell, args, kwargs)
