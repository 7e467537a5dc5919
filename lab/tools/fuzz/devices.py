"""Mutated devices: each is refused with one of hwsim's errors, or runs, with equal bits by program and evaluator.

python lab/tools/fuzz/devices.py [--count 2000] [--first 0] [--log FILE]

A shipped device file is changed in one to three places (numbers scaled or replaced, keys removed or added, names
exchanged, text damaged), loaded, and used for a small product of a random scheme, timed and computed both ways.
"""

import copy
import math
import random
import tempfile
from pathlib import Path

import numpy as np
import yaml
from campaign import main

import hwsim
from hwsim.devices.registry import package_folder, shipped
from hwsim.errors import HwsimError
from hwsim.schemes import schemes

NAMES = shipped()
TEXTS = {name: (package_folder() / f"{name}.yaml").read_text(encoding="utf-8") for name in NAMES}
FULL = {}  # by name: as hwsim.devices.loader.expanded gives it
FACTORS = (0, -1, 0.5, 2, 3, 10, 1e3, 1e6, 1e9, 1e18, 1e-3, 1e-9, 1e-18)
VALUES = (
    *(0, 1, 2, 3, 7, -1, 2**31 - 1, 2**31, 2**32, 2**62, 2**63, 2**64, 10**30, -(2**63), 0.0, 1e308, 5e-324, 1e18, 0.1),
    *(
        True,
        False,
        None,
        "",
        "x",
        "fp32",
        "\x1b[2J",
        "\0",
        "9" * 500,
        [],
        {},
        [1],
        {"a": 1},
        float("nan"),
        float("inf"),
    ),
)
CHARACTERS = "0123456789-+.:eE{}[],'\"#&*!|>%@`\t\n \0\x1b\u00e9"


def full(name):
    """A fresh copy of a device's whole mapping."""
    if name not in FULL:
        from hwsim.devices.loader import expanded

        FULL[name] = expanded(hwsim.device(name))
    return copy.deepcopy(FULL[name])


def places(tree, path=()):
    """Every (block, key) of a tree."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in list(items):
        yield tree, key
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


def mutate(rng, tree):
    """Change one place of a tree."""
    found = list(places(tree))
    numbers = [(block, key) for block, key in found if type(block[key]) in (int, float)]
    kind = rng.random()
    if kind < 0.45 and numbers:
        block, key = rng.choice(numbers)
        factor = rng.choice(FACTORS)
        value = block[key] * factor
        block[key] = (
            int(value) if isinstance(block[key], int) and math.isfinite(value) and rng.random() < 0.9 else value
        )
    elif kind < 0.6 and numbers:
        block, key = rng.choice(numbers)
        block[key] = rng.choice(VALUES)
    elif kind < 0.7:
        block, key = rng.choice(found)
        block[key] = copy.deepcopy(rng.choice(VALUES))
    elif kind < 0.85:
        block, key = rng.choice(found)
        del block[key]
    elif kind < 0.93:
        (one, key), (other, place) = rng.choice(found), rng.choice(found)
        one[key] = copy.deepcopy(other[place])
    else:
        block, key = rng.choice(found)
        if isinstance(block, dict):
            block[str(rng.choice([*block, "x", "", "value", 3]))] = copy.deepcopy(block[key])
        else:
            block.append(copy.deepcopy(block[key]))


def damaged(rng, text):
    """Text with some characters or lines changed."""
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(text))
        kind = rng.randrange(4)
        if kind == 0:
            text = text[:at] + rng.choice(CHARACTERS) + text[at + 1 :]
        elif kind == 1:
            text = text[:at] + rng.choice(CHARACTERS) + text[at:]
        else:
            lines = text.splitlines(keepends=True)
            one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
            if kind == 2:
                del lines[one]
            else:
                lines.insert(one, lines[other])
            text = "".join(lines) or "x"
    return text


def load(rng):
    """A mutated device, or None where it was refused."""
    name = rng.choice(NAMES)
    try:
        if rng.random() < 0.2:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "device.yaml"
                file.write_text(damaged(rng, TEXTS[name]), encoding="utf-8")
                return hwsim.device(file)
        tree = full(name) if rng.random() < 0.7 else yaml.load(TEXTS[name], Loader=yaml.CSafeLoader)
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            mutate(rng, tree)
        return hwsim.device(tree)
    except HwsimError as error:
        if any(ord(x) < 32 and x != "\n" for x in str(error)):
            raise AssertionError("the message has control characters") from error
        return None


def same(one, other):
    """Whether two products have the same bits; any NaN for any."""
    return one.dtype == other.dtype and one.tobytes() == other.tobytes()


def case(number):
    """One device."""
    rng = random.Random(number)
    device = load(rng)
    if device is None:
        return "refused"
    m, n, k = (rng.choice((1, 3, 16, 17, 32, 64, 100)) for _ in "mnk")
    scheme = "native" if rng.random() < 0.5 else rng.choice(sorted(schemes()))
    data = np.random.default_rng(number)
    a, b = (data.standard_normal(shape).astype(np.float32) for shape in ((m, k), (k, n)))
    given = {"device": device, "scheme": scheme, "threads": 1}
    if scheme == "native" and device.native and rng.random() < 0.8:
        given["format"] = rng.choice(sorted(device.native))
    try:
        result = hwsim.run(a, b, **given)
    except HwsimError:
        return "no run"
    assert result.c is not None and result.c.shape == (m, n)
    assert result.cycles is None or (result.cycles >= 0 and math.isfinite(result.seconds))
    result.to_dict()
    if result.cycles is None:
        return "bits"
    try:
        program = hwsim.run(a, b, functional=True, timing=False, **given)
    except HwsimError:
        return "cycles"
    assert same(program.c, result.c), "bits differ between program and evaluator"
    return "both"


if __name__ == "__main__":
    main("devices", case, __doc__.partition("\n")[0])
