"""The file of fitted trees that ships with a library's data: its header, and its trees when they are asked for.

It knows the file's layout; not what is asked of it. lab/tools/library/fit.py writes it.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import as_file
from typing import Any

from hwsim.errors import ConfigError
from hwsim.host.places import package_folder
from hwsim.libraries.cublas.answers.tree import Tree, unpack

UNDEFINED = 0  # cuBLASLt's number of stages that says nothing
Rows = Sequence[Sequence[int]]  # 40,000 in a file: as they are read, as few of them are asked for


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One fitted model: for which calls it is, its tables of labels, and how many answers it was fitted to.

    batched: is it for batches? Those, and those of A by columns, take the choice for one product with A by rows beside
    the sizes. biased: is it for products with a bias alone, of which the choice is another one? narrow: for 16-bit
    results alone. base: name of the model whose choice it takes beside the sizes; "": of none. asked_on: the chips that
    the library was asked on; devices: those that it is for. order: rows of (id, stages, slices, reduction, custom
    option) as cuBLASLt numbers them. tile: rows of (tile, cluster), or None where the model has no tree for them.
    order_right: share of held-back answers that the order tree gives.
    """

    name: str
    operand: str
    a_layout: str
    b_layout: str
    workspace_bytes: int
    reductions: int
    aligned: bool | None
    fast: bool | None
    devices: tuple[str, ...]
    order: Rows
    tile: Rows | None
    samples: int
    order_right: float
    batched: bool = False
    biased: bool = False
    narrow: bool = False
    base: str = ""
    asked_on: tuple[str, ...] = ()

    @property
    def is_further(self) -> bool:
        """Whether it takes the choice for the simple call beside the sizes."""
        return self.batched or self.a_layout == "columns"


@dataclass(frozen=True, slots=True, eq=False)
class VectorEntry:
    """A fitted model of batches of matrix-vector products, all layouts. operands: formats; order, order_right: as of
    Entry.
    """

    name: str
    operands: tuple[str, ...]
    order: Rows
    order_right: float


@dataclass(frozen=True, slots=True, eq=False)
class BatchTiles:
    """A fitted model of the tiles of batches. operands: formats; tile: as of Entry."""

    name: str
    operands: tuple[str, ...]
    a_layout: str
    b_layout: str
    tile: Rows


@dataclass(eq=False)
class Store:
    """A file of trees. tiles, stages, clusters: what cuBLASLt's numbers mean: (n, m), (k, count or 0), (n, m); (0, 0)
    are stages that are undefined.
    """

    path: str
    version: int
    entries: tuple[Entry, ...]
    vectors: tuple[VectorEntry, ...]
    batch_tiles: tuple[BatchTiles, ...]
    tiles: dict[int, tuple[int, int]]
    stages: dict[int, tuple[int, int]]
    clusters: dict[int, tuple[int, int]]
    _trees: dict[str, Tree] = field(default_factory=dict)

    def entry(self, name: str) -> Entry:
        """The model of a name."""
        return next(entry for entry in self.entries if entry.name == name)

    def tree(self, name: str) -> Tree:
        """A tree of the file by its name ("NAME.order", "NAME.tile"); read once."""
        if name not in self._trees:
            with as_file(package_folder("libraries") / self.path) as path, zipfile.ZipFile(path) as file:
                self._trees[name] = unpack(file.read(name))
        return self._trees[name]


def _pairs(table: dict[str, list[int]]) -> dict[int, tuple[int, int]]:
    return {int(key): (value[0], value[1]) for key, value in table.items()}


@cache
def store(name: str) -> Store:
    """The file of trees of that name beside the library files. Raises ConfigError where it cannot be read."""
    try:
        with as_file(package_folder("libraries") / name) as path, zipfile.ZipFile(path) as file:
            head: dict[str, Any] = json.loads(file.read("head.json"))
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise ConfigError(
            [f"{name}: no file of fitted choices ({error}); lab/tools/library/fit.py writes it"]
        ) from None
    entries = tuple(
        Entry(
            **{key: entry[key] for key in ("name", "operand", "a_layout", "b_layout", "workspace_bytes", "reductions")},
            **{key: entry[key] for key in ("aligned", "fast", "samples", "order_right")},
            devices=tuple(entry["devices"]),
            batched=entry.get("batched", False),
            biased=entry.get("biased", False),
            narrow=entry.get("narrow", False),
            base=entry.get("base", ""),
            asked_on=tuple(entry.get("asked_on", entry["devices"])),
            order=entry["order"],
            tile=entry.get("tile"),
        )
        for entry in head["models"]
    )
    vectors = tuple(
        VectorEntry(entry["name"], tuple(entry["operands"]), entry["order"], entry["order_right"])
        for entry in head.get("vectors", ())
    )
    batch_tiles = tuple(
        BatchTiles(entry["name"], tuple(entry["operands"]), entry["a_layout"], entry["b_layout"], entry["tile"])
        for entry in head.get("batch_tiles", ())
    )
    tiles, stages, clusters = (_pairs(head["names"][key]) for key in ("tiles", "stages", "clusters"))
    stages[UNDEFINED] = (0, 0)
    return Store(
        path=name,
        version=head["version"],
        entries=entries,
        vectors=vectors,
        batch_tiles=batch_tiles,
        tiles=tiles,
        stages=stages,
        clusters=clusters,
    )
