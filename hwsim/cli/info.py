"""`hwsim info`: versions, and the kernel build in use on this machine."""

from __future__ import annotations

import argparse
import json
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from hwsim._version import __version__
from hwsim.backend.by_name import NAMES, chosen
from hwsim.backend.cpu import CPU
from hwsim.devices.registry import search_path
from hwsim.host.cache import cache_folder
from hwsim.report.text.words import facts

PACKAGES = ("numpy", "ml_dtypes", "pydantic", "pyyaml", "tqdm")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")


def execute(arguments: argparse.Namespace) -> int:
    """Print the information."""
    info = _gather()
    if arguments.json:
        print(json.dumps({"schema": "hwsim.info/1"} | info))
        return 0
    packages = ", ".join(f"{name} {number or 'not installed'}" for name, number in info["packages"].items())
    path = [("" if i else "device files", place) for i, place in enumerate(info["device_search_path"])]
    print(
        "\n".join(
            facts(
                [
                    ("hwsim", info["hwsim_version"]),
                    ("Python", f"{info['python']} on {info['platform']}"),
                    ("packages", packages),
                    (
                        "kernel",
                        f"{info['kernel']}; this machine runs {', '.join(info['kernels'])} (HWSIM_KERNEL chooses)",
                    ),
                    ("engine", f"{info['engine']}, of {', '.join(NAMES)} (HWSIM_ENGINE chooses)"),
                    ("threads", str(info["threads"])),
                    *path,
                    ("cache", f"{info['cache']} (HWSIM_CACHE chooses)"),
                ]
            )
        )
    )
    return 0


def version_line() -> str:
    """The versions of hwsim, its kernel build, Python and NumPy, in one line."""
    return (
        f"hwsim {__version__} (kernel {CPU.variant} of {', '.join(CPU.variants)}; "
        f"Python {platform.python_version()}, NumPy {_installed('numpy')})"
    )


def _gather() -> dict[str, Any]:
    return {
        "hwsim_version": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _installed(name) for name in PACKAGES},
        "kernel": CPU.variant,
        "kernels": list(CPU.variants),
        "engine": chosen(),
        "threads": os.cpu_count() or 1,
        "device_search_path": search_path(),
        "cache": str(cache_folder("")),
    }


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
