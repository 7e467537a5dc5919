"""The versions of libraries whose choices are known: their files, and the chips that they were asked on.

It knows version files (configs/libraries/*.version.yaml) and chips by name and SMs; no call and no answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING

from hwsim.errors import UnsupportedError
from hwsim.gemm.record import LibraryId
from hwsim.libraries.model import facts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hwsim.datafiles.reading import FileRecord
    from hwsim.devices.device import Device
    from hwsim.libraries.model.version_model import AskedKind, LibraryVersion, NeighboursModel, TakenModel

SUFFIX = ".npz"  # of a file of answers
ASSUMED = "assumption"  # evidence: the library was not asked for such a call, or it was another version
SPOKEN_WITH_A_VOWEL = "aefhilmnorsx"  # letters, at the beginning of a chip's name
LIBRARY = "cublas"  # whose kernels' rules hwsim.libraries.cublas has


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a library whose choices are known: files of sums of kernels, of fitted trees, of its own answers for
    weights of layers, of times and of what these are multiplied by, and the chips that it was asked on; and of how
    often estimates are right, for others.

    devices, asked_on, same_with_c: `chips`, `alone` and `same_with_c` under `asked` in the version file; taken and
    neighbours stand there under their names (hwsim.libraries.model.version_model). evidence: of the trees.
    mixed_alike: the share of answers for operands of two formats that are as for the first one's. rules_version,
    rules_chips: on which the rules of the kernels' sums were found. is_asked: whether the answers are this version's
    own. launch_us: of one call, which times leave out; None: not known.
    """

    library: str
    version: str
    sums: str
    path: str
    layers: str
    times: str
    factors: str
    shares: str
    devices: dict[str, int] = field(hash=False)
    evidence: str
    asked_on: dict[AskedKind, tuple[str, ...]] = field(hash=False)
    same_with_c: tuple[str, ...]
    mixed_alike: float
    taken: TakenModel = field(hash=False)
    neighbours: NeighboursModel = field(hash=False)
    rules_version: str
    rules_chips: tuple[str, ...]
    is_asked: bool
    launch_us: float | None = None

    @property
    def has_rules(self) -> bool:
        """Whether the rules of the kernels' sums were found on this version."""
        return self.rules_version == self.version

    @property
    def id(self) -> LibraryId:
        """As the record names it."""
        return LibraryId(self.library, self.version)

    def chips_instead(self, device: str, kind: AskedKind) -> tuple[str, ...]:
        """The chips on which the library was asked about such calls, where that is not this one; else none."""
        chips = self.asked_on.get(kind, tuple(self.devices))
        return () if device in chips else chips

    def without_answers(self, version: str) -> Version:
        """As a version, or on a chip, that only a user's file has: with the trees' layout and no other file."""
        return replace(self, version=version, devices={}, asked_on={}, layers="", times="", factors="", shares="")


@cache
def versions() -> tuple[Version, ...]:
    """All of cuBLAS's, the newest first. Version files of other libraries are read by no rule of this package."""
    return tuple(_version(file) for file in facts.versions() if file.record.library == LIBRARY)


def _version(file: FileRecord[LibraryVersion]) -> Version:
    record = file.record
    is_asked = record.asked.version == record.version
    return Version(
        library=record.library,
        version=record.version,
        sums=record.files.sums,
        path=record.files.trees,
        layers=record.files.layers,
        times=record.files.times,
        factors=record.files.factors,
        shares=record.files.shares,
        devices=record.asked.chips,
        evidence=file.evidence["files.trees"].evidence.value if is_asked else ASSUMED,
        asked_on=record.asked.alone,
        same_with_c=record.asked.same_with_c,
        mixed_alike=1 - record.mixed.differing / record.mixed.answers,
        taken=record.taken,
        neighbours=record.neighbours,
        rules_version="" if record.rules_seen is None else record.rules_seen.version,
        rules_chips=() if record.rules_seen is None else record.rules_seen.chips,
        is_asked=is_asked,
        launch_us=record.launch_us,
    )


def version_of(version: str | None) -> Version:
    """A version; None: the newest one on which its rules were found. Raises UnsupportedError where there is none."""
    if version is None:
        return next((entry for entry in versions() if entry.has_rules), versions()[0])
    fits = [entry for entry in versions() if entry.version == version]
    if not fits:
        names = ", ".join(repr(entry.version) for entry in versions())
        raise UnsupportedError(f"{LIBRARY}: no version {version!r}; there is {names}")
    return fits[0]


def version_on(version: str, device: str, cores: int) -> Version:
    """The version that was asked on a chip, or where none was, one without answers. device: as of `observed_as`."""
    fits = [entry for entry in versions() if entry.version == version and entry.devices.get(device) == cores]
    return fits[0] if fits else version_of(None).without_answers(version)


def calls_taken() -> TakenModel:
    """The calls that the library takes, where no version is said."""
    return version_of(None).taken


def has_seen_rules(id: LibraryId, device: str, cores: int) -> bool:
    """Whether the rules of the kernels' sums (`orders`) were found with this version on this chip; else they are
    assumed. device: as of `observed_as`; a chip of that name with other SMs was not asked.
    """
    return any(
        id == version.id
        and version.has_rules
        and device in version.rules_chips
        and version.devices.get(device) == cores
        for version in versions()
    )


def rules_text() -> str:
    """With which versions and on which chips the rules of the kernels' sums were found."""
    texts = [f"{version.library} {version.rules_version} on {', '.join(version.rules_chips)}" for version in versions()]
    return "; ".join(
        dict.fromkeys(text for text, version in zip(texts, versions(), strict=True) if version.rules_version)
    )


def chips_text(chips: Iterable[str]) -> str:
    """Chips in words, as "an H100 and an H200"."""
    return " and ".join(f"{'an' if name[0] in SPOKEN_WITH_A_VOWEL else 'a'} {name.upper()}" for name in chips)


def observed_as(chip: Device) -> str:
    """The name under which answers for this chip stand."""
    seen = None if chip.library is None else chip.library.observations
    return chip.name if seen is None else seen
