"""The options of verbs that run matrix instructions on this machine's GPU. It runs none."""

from __future__ import annotations

import argparse
from typing import Any

from hwsim.cli.option_flags import whole
from hwsim.errors import InputError, nearest
from hwsim.golden.recorder import DEFAULT_WGMMA_N
from hwsim.operands.code_draws import DISTRIBUTIONS


def add_gpu_options(parser: argparse.ArgumentParser, device: str) -> None:
    """The device, the instructions, and how operands are drawn. device: the help of --device."""
    parser.add_argument("--device", metavar="NAME", default="", help=device)
    parser.add_argument(
        "--instructions", metavar="LIST", help="names with commas, * stands for anything (default: all the GPU has)"
    )
    parser.add_argument("--distributions", metavar="LIST", help="names with commas (default: all eight)")
    parser.add_argument("--seed", type=whole(0), default=1, metavar="N", help="of the operands (default 1)")
    parser.add_argument("--arch", metavar="SM", help="target that is built, as 90a (default: the GPU's)")
    parser.add_argument("--wgmma-n", metavar="LIST", help="columns N of wgmma that are built (default 8,64,256)")


def gpu_choice(arguments: argparse.Namespace) -> dict[str, Any]:
    """These options as keyword arguments of recording; names are checked before anything is built."""
    distributions = tuple(DISTRIBUTIONS) if arguments.distributions is None else _words(arguments.distributions)
    for name in distributions:
        if name not in DISTRIBUTIONS:
            raise InputError(
                f"--distributions: {name!r} is none; allowed: {', '.join(DISTRIBUTIONS)}"
                f"{nearest(name, tuple(DISTRIBUTIONS))}"
            )
    try:
        columns = DEFAULT_WGMMA_N if arguments.wgmma_n is None else tuple(map(int, _words(arguments.wgmma_n)))
    except ValueError:
        raise InputError(f"--wgmma-n {arguments.wgmma_n}: allowed: integers with commas") from None
    return {
        "device": arguments.device,
        "arch": arguments.arch,
        "seed": arguments.seed,
        "wgmma_n": columns,
        "instructions": None if arguments.instructions is None else list(_words(arguments.instructions)),
        "distributions": distributions,
    }


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(","))
