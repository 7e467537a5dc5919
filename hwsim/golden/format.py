"""The golden format: an .npz of codes with a record of their origin (docs/golden.md).

Keys are INSTRUCTION/SET/ARRAY. `meta` is a JSON text; an archive without one may have it in a file of the same name
with the suffix .meta.json. It knows nothing of how results are computed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from hwsim.datafiles.archive import HEADER_BYTES, LIMIT, Archive, digest, open_archive, text_of
from hwsim.errors import InputError
from hwsim.host.files import make_folder, write_npz
from hwsim.host.input_files import read_text

UnsignedCodes = npt.NDArray[np.unsignedinteger[Any]]
Origin = Literal["silicon", "third party", "self", "operands"]

ORIGINS: tuple[Origin, ...] = get_args(Origin)
OPERANDS = ("a", "b", "c")
#: Arrays that a set may have beside a, b, c, d: codes of block scales, and one exponent of scale-input-d.
SCALES = ("scale_a", "scale_b", "scale_d")
META = "meta"
DIGEST = "arrays_sha256"  # key of the meta: of all other arrays (`digest`); archives without it are read too


@dataclass(frozen=True, slots=True)
class Meta:
    """The origin of the bits in a golden file.

    origin: "silicon" recorded on the chip by whoever made the file; "third party" published by others; "self" computed
        by hwsim, a regression and no evidence; "operands" inputs without results, to be recorded.
    device: hwsim's name of it. hardware: what the driver calls it. driver, command, date (ISO 8601): of the
    capture. device_sha256: of the device file behind self-made results.
    """

    origin: Origin
    device: str = ""
    hardware: str = ""
    driver: str = ""
    date: str = ""
    command: str = ""
    device_sha256: str = ""
    source: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if self.origin not in ORIGINS:
            raise InputError(f"origin {self.origin!r}: allowed are {', '.join(ORIGINS)}")


@dataclass(frozen=True, slots=True, eq=False)
class GoldenSet:
    """Cases of one instruction as codes: a (cases, M, K), b (cases, N, K) with the columns of B, c and d (cases, M, N).

    d is None for operands that wait to be recorded. scales: arrays of SCALES that the set has; scale_a (cases, M,
    K / block), scale_b (cases, N, K / block), scale_d () an exponent from 0 to 15.
    """

    instruction: str
    name: str
    a: UnsignedCodes
    b: UnsignedCodes
    c: UnsignedCodes
    d: UnsignedCodes | None
    scales: Mapping[str, UnsignedCodes] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        shapes = {name: array.shape for name in "abcd" if (array := getattr(self, name)) is not None}
        where = f"set {self.key}"
        if any(len(shape) != 3 for shape in shapes.values()):
            raise InputError(f"{where}: arrays of three dimensions are needed; got {shapes}")
        (cases, m, k), n = self.a.shape, self.b.shape[1]
        wanted = {"a": (cases, m, k), "b": (cases, n, k), "c": (cases, m, n), "d": (cases, m, n)}
        if any(shape != wanted[name] for name, shape in shapes.items()):
            raise InputError(f"{where}: a (cases, M, K), b (cases, N, K), c, d (cases, M, N) are needed; got {shapes}")
        if 0 in (cases, m, n, k):
            raise InputError(f"{where}: zero cases prove nothing; got {shapes}")
        for x, array in {**{x: getattr(self, x) for x in shapes}, **self.scales}.items():
            if array.dtype.kind != "u":
                raise InputError(f"{where}: {x} must be unsigned codes; got {array.dtype}")

    @property
    def key(self) -> str:
        """The set's key, INSTRUCTION/SET."""
        return f"{self.instruction}/{self.name}"

    @property
    def results(self) -> int:
        """Number of output elements."""
        return self.c.size

    def element(self, case: int, row: int, column: int) -> dict[str, Any]:
        """Codes of one output element's operands: lists a and b, c, and its scales (scale_a, scale_b, scale_d)."""
        record: dict[str, Any] = {
            "a": self.a[case, row].tolist(),
            "b": self.b[case, column].tolist(),
            "c": int(self.c[case, row, column]),
        }
        for name, array in self.scales.items():
            place = {"scale_a": (case, row), "scale_b": (case, column)}.get(name, ())
            record[name] = array[place].tolist()
        return record


def write_sets(path: Path, sets: Iterable[GoldenSet], meta: Meta) -> int:
    """Write sets to a compressed .npz, reproducibly: the bytes depend on the sets and the meta only. Returns the number
    of results.

    Raises InputError for no sets, two of one name, a set without results unless the origin is "operands", more bytes
    than an archive may have (hwsim.datafiles.archive), or a file that cannot be written.
    """
    arrays: dict[str, npt.NDArray[Any]] = {}
    total = size = 0
    for golden in sets:
        if golden.d is None and meta.origin != "operands":
            raise InputError(f"{path}: set {golden.key} has no results; only origin 'operands' may lack them")
        if f"{golden.key}/a" in arrays:
            raise InputError(f"{path}: two sets are called {golden.key}")
        arrays_of_set = {
            name: getattr(golden, name) for name in (*OPERANDS, "d") if getattr(golden, name) is not None
        } | {**golden.scales}
        arrays |= {f"{golden.key}/{name}": array for name, array in arrays_of_set.items()}
        size += sum(array.nbytes + HEADER_BYTES for array in arrays_of_set.values())
        if size > LIMIT:
            raise InputError(f"{path}: more than {LIMIT:,} bytes of arrays; write fewer cases or several files")
        total += golden.results
    if not total:
        raise InputError(f"{path}: nothing to write")
    meta_record = asdict(meta) | {DIGEST: digest(arrays)}
    arrays[META] = np.frombuffer(json.dumps(meta_record, sort_keys=True).encode(), np.uint8)
    make_folder(path.parent)
    write_npz(path, arrays)
    return total


def read_meta(path: Path) -> Meta | None:
    """The origin record of an archive, from itself or the .meta.json beside it; None where there is neither.

    Raises InputError for a record that does not fit, or a file that is no archive.
    """
    with open_archive(path) as archive:
        text = text_of(archive, META) if META in archive.files else None
    beside = path.with_suffix(".meta.json")
    if text is None and beside.exists():
        text = read_text(beside, "origin record")
    if text is None:
        return None
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: its meta is no JSON: {error}") from None
    if isinstance(data, dict):
        data.pop(DIGEST, None)
    names = {entry.name for entry in fields(Meta)}
    is_text = isinstance(data, dict) and all(isinstance(value, str) for value in data.values())
    if not is_text or "origin" not in data or set(data) - names:
        raise InputError(
            f"{path}: its meta must be an object of texts with origin, and of {', '.join(sorted(names))}; "
            f"got {str(data)[:400]}"
        )
    try:
        return Meta(**data)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def keys(path: Path) -> list[str]:
    """The key INSTRUCTION/SET of every set of an archive, sorted."""
    with open_archive(path) as archive:
        files = set(archive.files)
        # not schemes' results
        return [key for key in _keys(files) if any(f"{key}/{name}" in files for name in OPERANDS)]


def is_of_sets(path: Path) -> bool:
    """Whether an archive is intended to hold sets: some key has the ending of operands, or there is only `meta`.

    `read_sets` checks whether it does hold them, and nothing else. Raises InputError for a file that is no archive.
    """
    with open_archive(path) as archive:
        parts = [name.split("/") for name in archive.files if name != META]
    return not parts or any(len(part) >= 3 and part[-1] in OPERANDS for part in parts)


def read_sets(path: Path, only: str = "") -> Iterator[GoldenSet]:
    """The sets of an archive, in order of their keys; with `only`, those whose key contains it.

    Raises InputError for a file that is no archive of sets, has a key that belongs to none, or a set that lacks
    operands or has no cases.
    """
    with open_archive(path) as archive:
        for name in archive.files:
            if name != META and not _is_key(name):
                raise InputError(
                    f"{path}: key {name} is of no set; allowed: INSTRUCTION/SET/ARRAY with ARRAY of "
                    f"{', '.join((*OPERANDS, 'd', *SCALES))}, and {META}"
                )
        if not _keys(archive.files):
            raise InputError(f"{path}: holds no set; zero cases prove nothing")
        _check_digest(archive)
        for key in _keys(archive.files):
            if only not in key:
                continue
            instruction, _, name = key.partition("/")
            missing = [name for name in OPERANDS if f"{key}/{name}" not in archive.files]
            if missing:
                raise InputError(f"{path}: set {key} lacks {', '.join(missing)}")
            a, b, c, d = (
                archive[f"{key}/{name}"] if f"{key}/{name}" in archive.files else None for name in (*OPERANDS, "d")
            )
            assert a is not None and b is not None and c is not None
            scales = {name: archive[f"{key}/{name}"] for name in SCALES if f"{key}/{name}" in archive.files}
            try:
                golden = GoldenSet(
                    instruction=instruction, name=name, a=a, b=b, c=c, d=d, scales=MappingProxyType(scales)
                )
            except InputError as error:
                raise InputError(f"{path}: {error}") from None
            yield golden


def _check_digest(archive: Archive) -> None:
    """Raise InputError where the arrays are not those that the meta's digest is of."""
    if META not in archive.files:
        return
    try:
        data = json.loads(text_of(archive, META))
    except (ValueError, RecursionError):
        return  # read_meta says so
    wanted = data.get(DIGEST) if isinstance(data, dict) else None
    if wanted is not None and wanted != digest({name: archive[name] for name in archive.files if name != META}):
        raise InputError(
            f"{archive.path}: its arrays are not those that were written: their SHA-256 is not the {DIGEST} of its "
            "meta; take the file from its source again"
        )


def _keys(names: Iterable[str]) -> list[str]:
    return sorted({name.rpartition("/")[0] for name in names if _is_key(name)})


def _is_key(name: str) -> bool:
    parts = name.split("/")
    return len(parts) == 3 and all(parts) and parts[2] in (*OPERANDS, "d", *SCALES)
