"""The platforms that wheels are built for, as data: compiler target, Python's name of the platform, wheel tag."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WheelTarget:
    """One platform. triple: zig's target, with the oldest libc. platform: sysconfig.get_platform() there.
    abi: end of the names of extension modules (.cpython-311-ABI.so). tag: platform of the wheel, as pip selects it.
    provided: libraries that are there under this name, though auditwheel does not find them on the building machine.
    """

    triple: str
    platform: str
    abi: str
    tag: str
    provided: tuple[str, ...] = ()


TARGETS = {
    "manylinux-x86_64": WheelTarget(
        "x86_64-linux-gnu.2.17", "linux-x86_64", "x86_64-linux-gnu", "manylinux_2_17_x86_64"
    ),
    "manylinux-aarch64": WheelTarget(
        "aarch64-linux-gnu.2.17", "linux-aarch64", "aarch64-linux-gnu", "manylinux_2_17_aarch64"
    ),
    "musllinux-x86_64": WheelTarget(
        "x86_64-linux-musl",
        "linux-x86_64",
        "x86_64-linux-musl",
        "musllinux_1_2_x86_64",
        provided=("libc.so",),  # musl's loader takes it for itself
    ),
}
