"""The versions of libraries whose choices are known: their files, and the chips that they were asked on.

It knows version files (configs/libraries/*.version.yaml) and chips by name and SMs; no call and no answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING

from hwsim.errors import UnsupportedError, nearest
from hwsim.gemm.record import LibraryId
from hwsim.libraries.model import facts

if TYPE_CHECKING:
    from hwsim.datafiles.reading import FileRecord
    from hwsim.devices.device import Device
    from hwsim.libraries.model.version_model import AskedKind, LibraryVersion, NeighboursModel, TakenModel

SUFFIX = ".npz"  # of a file of answers
#: The version on which the rules of the kernels' sums were found.
RULES = ("cublas", "13.1")


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a library whose choices are known: files of fitted trees, of its own answers for weights of layers,
    of times and of what these are multiplied by, and the chips that it was asked on; and of how often estimates are
    right, for others.

    devices, asked_on, same_with_c: `chips`, `alone` and `same_with_c` under `asked` in the version file; taken and
    neighbours stand there under their names (hwsim.libraries.model.version_model). evidence: of the trees. mixed_alike: the
    share of answers for operands of two formats that are as for the first one's.
    """

    library: str
    version: str
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
    """All of them, the newest of each library first."""
    return tuple(_version(one) for one in facts.versions())


def _version(found: FileRecord[LibraryVersion]) -> Version:
    said = found.record
    return Version(
        said.library, said.version, said.files.trees, said.files.layers, said.files.times, said.files.factors,
        said.files.shares, said.asked.chips, found.evidence["files.trees"].evidence.value, said.asked.alone,
        said.asked.same_with_c, 1 - said.mixed.differing / said.mixed.answers, said.taken, said.neighbours,
    )  # fmt: skip


def version_of(name: str, version: str | None) -> Version:
    """A version of a library; None: the newest. Raises UnsupportedError where there is none."""
    names = known_libraries()
    if name not in names:
        raise UnsupportedError(
            f"no library {name!r}; there is {', '.join(names)}, and files of answers ({SUFFIX}){nearest(name, names)}"
        )
    own = [one for one in versions() if one.library == name]
    fits = [one for one in own if version in (None, one.version)]
    if not fits:
        known = ", ".join(repr(one.version) for one in own)
        raise UnsupportedError(f"{name}: no version {version!r}; there is {known}")
    return fits[0]


def version_on(library: str, version: str, device: str, cores: int) -> Version:
    """The version that was asked on a chip, or where none was, one without answers. device: as of `observed_as`."""
    asked = [one for one in versions() if (one.library, one.version) == (library, version)]
    fits = [one for one in asked if one.devices.get(device) == cores]
    return fits[0] if fits else versions()[0].without_answers(version)


def calls_taken() -> TakenModel:
    """The calls that the library takes, where no version is said: those of the version that the rules are of."""
    return version_of(*RULES).taken


def known_libraries() -> list[str]:
    """Their names."""
    return sorted({one.library for one in versions()})


def has_seen_rules(id: LibraryId, device: str, cores: int) -> bool:
    """Whether the rules of the kernels' sums (`orders`) were found with this version on this chip; else they are
    assumed. device: as of `observed_as`; a chip of that name with other SMs was not asked.
    """
    return any(id == one.id and one.devices.get(device) == cores for one in versions())


def rules_text() -> str:
    """With which versions and on which chips the rules of the kernels' sums were found."""
    return "; ".join(f"{one.library} {one.version} on {', '.join(one.devices)}" for one in versions())


def observed_as(chip: Device) -> str:
    """The name under which answers for this chip stand."""
    seen = None if chip.library is None else chip.library.observations
    return chip.name if seen is None else seen
