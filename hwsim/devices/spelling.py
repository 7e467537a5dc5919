"""How people write the names of chips: which device a spelling means, and which devices have a chip's matrix units.

It knows names alone (configs/names/chips.yaml), not where device files are or what is in them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from pydantic import BaseModel, ConfigDict

from hwsim.datafiles.yaml_text import common_yaml
from hwsim.errors import nearest
from hwsim.host.places import package_folder, text_of


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class UnfiledChips(_Record):
    """Chips without a device file. names: a pattern of their whole names. devices: with the same units, the likeliest
    first.
    """

    names: str
    devices: tuple[str, ...]


class ChipNames(_Record):
    """makers: words that say whose chip it is, or which line of products, and no more. spellings: of each device's
    chip. generations: the first that fits a name counts.
    """

    makers: frozenset[str]
    spellings: dict[str, tuple[str, ...]]
    generations: tuple[UnfiledChips, ...]


@cache
def chip_names() -> ChipNames:
    """The names that ship with hwsim."""
    return ChipNames.model_validate(common_yaml(text_of(package_folder("names") / "chips.yaml", "names")))


@cache
def _devices() -> dict[str, str]:
    return {spelling: device for device, spellings in chip_names().spellings.items() for spelling in spellings}


def plain(name: str) -> str:
    """The name in lower case, without separators and makers' words: "NVIDIA GeForce RTX 4090" gives "rtx4090"."""
    makers = chip_names().makers
    return "".join(word for word in re.findall(r"[a-z0-9]+", name.lower()) if word not in makers)


def device_of(name: str, device_names: Sequence[str]) -> str | None:
    """The device, of `device_names`, that this spelling means; None: none of them. A spelling has letters, digits,
    spaces and the signs between words.
    """
    if not re.fullmatch(r"[A-Za-z0-9 _().+-]+", name):
        return None
    wanted = plain(name)
    device = _devices().get(wanted, wanted)
    return device if device in device_names else None


def suggestion(name: str, device_names: Sequence[str]) -> str:
    """Return "; did you mean 'x' or 'y'?": devices of the chip's generation, else the name spelt most alike, or ""."""
    wanted = plain(name)
    for generation in chip_names().generations:
        if re.fullmatch(generation.names, wanted):
            there = [repr(device) for device in generation.devices if device in device_names]
            return f"; did you mean {' or '.join(there)}?" if there else ""
    return nearest(name, list(device_names))
