"""How people write the names of chips: which device a spelling means, and which devices have a chip's matrix units.

It knows names alone, not where device files are or what is in them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hwsim.errors import nearest

#: Words that say whose chip it is, or which line of products, and no more.
MAKERS = frozenset(("nvidia", "geforce", "tesla", "quadro", "amd", "instinct", "huawei", "gpu"))

#: Names that drivers and vendors give a device's chip, without makers' words and separators, by the device.
SPELLINGS = {
    "a100": ("a100sxm", "a100sxm4", "a100sxm480gb"),
    "a100pcie": ("a100pcie40gb",),
    "ada": ("rtx1000ada", "rtx1000adageneration", "rtx1000adagenerationlaptop"),
    "ascend910a": ("910a",),
    "ascend910b1": ("910b1",),
    "ascend910b3": ("910b3",),
    "b300": ("b300sxm6", "b300sxm6ac"),
    "gb10": ("dgxspark",),
    "h100": ("h100sxm", "h100sxm5", "h10080gbhbm3"),
    "h200": ("h200sxm",),
    "h800": ("h800sxm", "h800sxm5"),
    "rtx3090": ("3090",),
    "rtx4090": ("4090",),
    "rtx5090": ("5090",),
    "rtxpro6000": (
        "rtxpro6000blackwell",
        "rtxpro6000blackwellserveredition",
        "rtxpro6000blackwellworkstationedition",
    ),
    "v100": ("v100sxm2", "v100sxm216gb", "v100sxm232gb"),
}
_DEVICES = {spelling: device for device, spellings in SPELLINGS.items() for spelling in spellings}

#: Chips without a device file, as patterns of whole names, and devices of their generation with the same units, the
#: likeliest first. The first pattern that fits counts. No device: nothing is known of such units.
GENERATIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"v100.*|gv100|titanv", ("v100",)),
    (r"(rtx)?20[678]0.*|titanrtx|rtx[3458]000", ("rtx2080ti", "t4")),
    (r"(rtx)?\d{4}ada.*|(rtx)?40[5-9]0.*|l\d+[a-z]*", ("rtx4090", "l40s")),
    (r"a100.*|a800.*|a30x?", ("a100",)),
    (r"(rtx)?30[5-9]0.*|(rtx)?a\d{4}|a\d{1,2}[a-z]?", ("rtx3090", "a40")),
    (r"(rtx)?50[5-9]0.*|rtxpro\d+.*", ("rtx5090", "rtxpro6000")),
    (r"gh200.*|h[128]00.*|h20.*", ("h100", "h200")),
    (r"gb?300.*|b300.*", ("b300",)),
    (r"gb?[12]00.*|b[12]00.*", ("b200",)),
    (r"(ascend)?910[bc].*", ("ascend910b3", "ascend910b1")),
    (r"(ascend)?910.*", ("ascend910a",)),
    (r"(ascend)?310.*|(ascend)?950.*|mi35\d.*", ()),
    (r"mi3\d\d.*", ("mi300x",)),
    (r"mi2\d\d.*", ("mi250", "mi210")),
)


def plain(name: str) -> str:
    """The name in lower case, without separators and makers' words: "NVIDIA GeForce RTX 4090" gives "rtx4090"."""
    return "".join(word for word in re.findall(r"[a-z0-9]+", name.lower()) if word not in MAKERS)


def device_of(name: str, device_names: Sequence[str]) -> str | None:
    """The device, of `device_names`, that this spelling means; None: none of them. A spelling has letters, digits,
    spaces and the signs between words.
    """
    if not re.fullmatch(r"[A-Za-z0-9 _().+-]+", name):
        return None
    wanted = plain(name)
    device = _DEVICES.get(wanted, wanted)
    return device if device in device_names else None


def suggestion(name: str, device_names: Sequence[str]) -> str:
    """Return "; did you mean 'x' or 'y'?": devices of the chip's generation, else the name spelt most alike, or ""."""
    wanted = plain(name)
    for pattern, devices in GENERATIONS:
        if re.fullmatch(pattern, wanted):
            there = [repr(device) for device in devices if device in device_names]
            return f"; did you mean {' or '.join(there)}?" if there else ""
    return nearest(name, list(device_names))
