"""What a library itself answered when it was asked for a weight at every number of rows: a file of such answers.

It knows the file's layout and finds an answer; not what an answer means, nor how other sizes are chosen.
lab/tools/library/pack_layers.py and `hwsim library record` (hwsim/libraries/recording) write such files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from importlib.resources import as_file
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwsim.datafiles.archive import digest, open_archive
from hwsim.errors import ConfigError, InputError
from hwsim.host.files import write_npz
from hwsim.host.places import package_folder
from hwsim.libraries.cublas.calls import REDUCTION_MASKS

NOT_ASKED = 65535  # the label of a run that no answer is known of
REFUSED_ID = -1  # the id of an answer where cuBLASLt has no algorithm
#: Columns of `answers`: cuBLASLt's numbers. tile, cluster, swizzle are -1 where they were not kept.
FIELDS = ("id", "stages", "slices", "reduction", "custom", "tile", "cluster", "swizzle")
ARRAYS = ("n", "k", "counts", "firsts", "labels")  # of each entry
SCHEMA = 1
MOST_K = (1 << 32) - 1  # the part of a key that is k
MOST_SIZE = (1 << 31) - 1  # of n, k and m
DIGEST = "arrays_sha256"  # the array with the SHA-256 of all others, as text
Recorded = tuple[int, ...]
Runs = list[tuple[int, Recorded | None]]  # first m, answer


@dataclass(frozen=True, slots=True)
class CallKind:
    """All of a call but its sizes: formats, epilogue, layouts, and what the library is allowed.

    fast: accumulation of fp8 operands, None for others. reductions: cuBLASLt's mask.
    """

    operand: str
    output: str
    bias: bool
    fast: bool | None
    a_layout: str
    b_layout: str
    workspace_bytes: int
    reductions: int

    @property
    def text(self) -> str:
        """Formats, epilogue and layouts in words."""
        words = [f"{self.operand} to {self.output}"]
        words += [] if self.fast is None else ["fast" if self.fast else "promoted"]
        words += ["bias"] if self.bias else []
        words += ["A by columns"] if self.a_layout == "columns" else []
        words += ["B by rows"] if self.b_layout == "rows" else []
        return ", ".join(words)

    @property
    def full_text(self) -> str:
        """All of it in words."""
        names = {mask: name for name, mask in REDUCTION_MASKS.items()}
        told = f"{self.workspace_bytes:,} bytes of workspace, reductions {names.get(self.reductions, self.reductions)}"
        return f"{self.text}, {told}"


@dataclass(frozen=True, slots=True, eq=False)
class Sweep:
    """Answers for weights over m. keys: (weights,) ascending n 2^32 + k. starts: (weights + 1,) places in firsts and
    labels, where a weight's runs begin. firsts: the first m of each run; labels: its row of `answers`."""

    keys: NDArray[np.int64]
    starts: NDArray[np.int64]
    firsts: NDArray[np.int64]
    labels: NDArray[np.int64]
    answers: tuple[Recorded, ...]

    def runs_of(self, n: int, k: int) -> slice:
        """Where a weight's runs stand; empty where it was not asked for."""
        key = (n << 32) + k
        place = int(np.searchsorted(self.keys, key))
        if place == len(self.keys) or int(self.keys[place]) != key:
            return slice(0, 0)
        return slice(int(self.starts[place]), int(self.starts[place + 1]))

    def beside(self, n: int, k: int) -> tuple[int | None, int | None]:
        """The nearest k below and above this one that were asked about with this n (None: none)."""
        key = (n << 32) + k
        below, above = int(np.searchsorted(self.keys, key)) - 1, int(np.searchsorted(self.keys, key, side="right"))
        keys = [int(self.keys[at]) if 0 <= at < len(self.keys) else -1 for at in (below, above)]
        low, high = (key & MOST_K if key >> 32 == n else None for key in keys)
        return low, high

    def at(self, sizes_m: Iterable[int], n: int, k: int) -> list[Recorded | None]:
        """What was answered for each m (None: not asked)."""
        sizes = np.asarray(list(sizes_m), np.int64)
        runs = self.runs_of(n, k)
        if runs.start == runs.stop:
            return [None] * len(sizes)
        runs_before = np.searchsorted(self.firsts[runs], sizes, side="right") - 1
        labels = np.where(runs_before < 0, NOT_ASKED, self.labels[runs][runs_before])
        return [None if label == NOT_ASKED else self.answers[label] for label in labels.tolist()]


@dataclass(frozen=True, slots=True, eq=False)
class Sweeps:
    """A file: the library and its version, where it was asked, and a sweep per device and kind of call.

    path: of the file. source: how and when. cores: of each device by its name, SMs.
    """

    path: Path
    library: str
    version: str
    source: str
    cores: dict[str, int]
    by_kind: dict[tuple[str, CallKind], Sweep]

    def sweep(self, device: str, kind: CallKind) -> Sweep | None:
        """That of a device and a kind of call, None where it was not asked."""
        return self.by_kind.get((device, kind))

    def kinds(self, device: str, n: int, k: int) -> list[CallKind]:
        """The kinds of call for which a device was asked about a weight."""
        return [
            kind
            for (name, kind), sweep in self.by_kind.items()
            if name == device and (runs := sweep.runs_of(n, k)).start < runs.stop
        ]


def read(path: Path) -> Sweeps:
    """The file at `path`; read once for as long as it is not replaced. Raises ConfigError where it is none."""
    try:
        at = path.stat()
    except (OSError, ValueError) as error:
        raise _bad(path, getattr(error, "strerror", None) or error) from None
    return _read(path, at.st_ino, at.st_mtime_ns, at.st_size)


def _bad(path: Path, why: object) -> ConfigError:
    text = f"{path}: no file of a library's answers ({why}); `hwsim library record` writes one on a GPU"
    return ConfigError([text], kind="library")


@lru_cache(maxsize=8)
def _read(path: Path, *_state: int) -> Sweeps:
    try:
        with open_archive(path) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except InputError as error:
        raise _bad(path, str(error).removeprefix(f"{path}: ")) from None
    except OSError as error:
        raise _bad(path, error) from None
    try:
        sweeps = _of_arrays(path, arrays)
    except ValueError as error:
        raise _bad(path, error) from None
    written = arrays.pop(DIGEST, None)  # files of before 2026-11-28 have none
    if written is not None and written.tobytes().decode(errors="replace") != digest(arrays):
        raise _bad(path, f"its arrays are not as they were written: their SHA-256 differs from its array {DIGEST}")
    return sweeps


def _of_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> Sweeps:
    """The file's contents. Raises ValueError, which says what is wrong, for contents that no such file has."""
    head = _head(_array(arrays, "head", "u", 1).tobytes())
    table = _array(arrays, "answers", "i", 2)
    if table.shape[1] != len(FIELDS):
        raise ValueError(f"answers have {table.shape[1]} numbers, not {len(FIELDS)}")
    answers = tuple(tuple(row) for row in table.tolist())
    by_kind: dict[tuple[str, CallKind], Sweep] = {}
    for number, (kind, devices) in enumerate(head.entries):
        sweep = _sweep({name: _array(arrays, f"{number}.{name}", "iu", 1) for name in ARRAYS}, answers)
        for device in devices:
            if by_kind.setdefault((device, kind), sweep) is not sweep:
                raise ValueError(f"{device}, {kind.full_text}: answers stand twice")
    return Sweeps(path, head.library, head.version, head.source, head.cores, by_kind)


def _array(arrays: Mapping[str, NDArray[Any]], name: str, kinds: str, dimensions: int) -> NDArray[Any]:
    """An array of the file, of one of NumPy's kinds of integers. Raises ValueError."""
    array = arrays.get(name)
    if array is None:
        raise ValueError(f"there is no array {name}")
    if array.dtype.kind not in kinds or array.ndim != dimensions:
        raise ValueError(f"array {name} is {array.dtype}, {array.ndim}-dimensional; allowed: integers, {dimensions}")
    return array


class _Head(NamedTuple):
    """What a file says beside its arrays: as Sweeps has it, and of each entry its kind of call and its devices."""

    library: str
    version: str
    source: str
    cores: dict[str, int]
    entries: list[tuple[CallKind, list[str]]]


def _head(data: bytes) -> _Head:
    """The file's head. Raises ValueError, which names the key, for anything that `write` would not have written."""
    try:
        head = json.loads(data.decode())
    except RecursionError:
        raise ValueError("its head is nested too deep") from None
    if not isinstance(head, dict) or head.get("schema") != SCHEMA:
        raise ValueError(f"schema {head.get('schema') if isinstance(head, dict) else None!r}, not {SCHEMA}")
    for name in ("library", "version", "source"):
        _expect(isinstance(head.get(name), str), name, "a text")
    cores: Any = head.get("cores")
    entries: Any = head.get("entries")
    _expect(isinstance(cores, dict) and all(map(_is_count, cores.values())), "cores", "SMs by device")
    _expect(isinstance(entries, list), "entries", "a list")
    kinds = []
    for number, entry in enumerate(entries):
        where = f"entries[{number}]"
        devices: Any = entry.get("devices") if isinstance(entry, dict) else None
        is_list = isinstance(devices, list) and all(isinstance(device, str) for device in devices)
        _expect(is_list, f"{where}.devices", "a list of names")
        kinds.append((_kind(entry.get("kind"), f"{where}.kind"), devices))
    return _Head(head["library"], head["version"], head["source"], cores, kinds)


def _kind(kind: Any, where: str) -> CallKind:
    names = CallKind.__dataclass_fields__
    _expect(isinstance(kind, dict) and set(kind) == set(names), where, ", ".join(names))
    for name in ("operand", "output", "a_layout", "b_layout"):
        _expect(isinstance(kind[name], str), f"{where}.{name}", "a text")
    _expect(isinstance(kind["bias"], bool), f"{where}.bias", "true, false")
    _expect(kind["fast"] in (None, True, False), f"{where}.fast", "true, false, null")
    for name in ("workspace_bytes", "reductions"):
        _expect(kind[name] == 0 or _is_count(kind[name]), f"{where}.{name}", "an integer of at least 0")
    return CallKind(**kind)


def _expect(is_so: bool, where: str, allowed: str) -> None:
    if not is_so:
        raise ValueError(f"{where} of its head; allowed: {allowed}")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_K


@cache
def shipped(name: str) -> Sweeps:
    """The file of that name beside the library files. Raises ConfigError where it cannot be read."""
    with as_file(package_folder("libraries") / name) as path:
        return read(path)


def _sweep(arrays: Mapping[str, NDArray[Any]], answers: tuple[Recorded, ...]) -> Sweep:
    for name in ARRAYS:
        if arrays[name].size and not -1 <= int(arrays[name].min()) <= int(arrays[name].max()) <= MOST_SIZE:
            raise ValueError(f"{name} has numbers beyond 0 to {MOST_SIZE:,}")
    n, k, counts, firsts, labels = (arrays[name].astype(np.int64) for name in ARRAYS)
    if len(n) != len(k) or (np.minimum(n, k) < 1).any():
        raise ValueError("weights without an n or a k")
    keys = (n << 32) + k
    starts = np.concatenate([[0], np.cumsum(counts)])
    if len(counts) != len(keys) or (np.diff(keys) <= 0).any():
        raise ValueError("weights are not in ascending order, each once")
    if not len(firsts) == len(labels) == starts[-1] or (counts < 1).any():
        raise ValueError("runs are missing")
    rises = np.diff(firsts) > 0
    rises[starts[1:-1] - 1] = True  # from one weight to the next
    if not rises.all() or (firsts < 1).any():
        raise ValueError("the first m of a weight's runs are not in ascending order, from 1 on")
    is_label = (labels == NOT_ASKED) | ((labels >= 0) & (labels < len(answers)))
    if not is_label.all():
        raise ValueError("an answer is missing")
    return Sweep(keys, starts, firsts, labels, answers)


def write(
    path: Path,
    *,
    library: str,
    version: str,
    source: str,
    cores: Mapping[str, int],
    entries: Iterable[tuple[CallKind, tuple[str, ...], Mapping[tuple[int, int], Runs]]],
) -> None:
    """Write a file that `read` takes.

    entries: kind, devices, and by weight (n, k) its runs: (first m, answer; None: not asked) in ascending order. The
    file appears whole or not at all. Raises InputError where it cannot be written, or has too many different answers.
    """
    table: dict[Recorded, int] = {}
    listed, arrays = [], {}
    for number, (kind, devices, weights) in enumerate(entries):
        order = sorted(weights)
        runs = [run for weight in order for run in weights[weight]]
        labels = [NOT_ASKED if answer is None else table.setdefault(answer, len(table)) for _, answer in runs]
        if len(table) >= NOT_ASKED:
            raise InputError(
                f"{path}: {len(table):,} different answers; a file holds {NOT_ASKED:,}; record fewer shapes"
            )
        arrays[f"{number}.n"] = np.array([n for n, _ in order], np.int32)
        arrays[f"{number}.k"] = np.array([k for _, k in order], np.int32)
        arrays[f"{number}.counts"] = np.array([len(weights[weight]) for weight in order], np.int32)
        arrays[f"{number}.firsts"] = np.array([first for first, _ in runs], np.int32)
        arrays[f"{number}.labels"] = np.array(labels, np.uint16)
        listed.append({"kind": asdict(kind), "devices": list(devices)})
    head = {
        "schema": SCHEMA,
        "library": library,
        "version": version,
        "source": source,
        "cores": dict(cores),
        "entries": listed,
    }
    arrays["head"] = np.frombuffer(json.dumps(head).encode(), np.uint8)
    arrays["answers"] = np.array(list(table), np.int32).reshape(-1, len(FIELDS))
    arrays[DIGEST] = np.frombuffer(digest(arrays).encode(), np.uint8)
    write_npz(path, arrays)
