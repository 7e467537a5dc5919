"""Damaged golden archives: each is refused with one of hwsim's errors, or passes with every array as it was.

python lab/tools/fuzz/goldens.py [--count 2000] [--first 0] [--log FILE]

A small archive's bytes, its members or its arrays are changed; then it is verified. A verification that passes although
an array differs, or with fewer results, is a fault.
"""

import io
import random
import tempfile
import zipfile
from pathlib import Path

import numpy as np
from campaign import main

from hwsim.devices import load
from hwsim.devices.arithmetic import mma
from hwsim.errors import HwsimError
from hwsim.golden.format import GoldenSet, Meta, read_sets, write_sets
from hwsim.golden.verify import verify

INSTRUCTION = "mma.m16n8k16.f32.f16.f16.f32"
ORIGINAL = {}


def computed(device, instruction, a, b, c, **scales):
    """What hwsim computes."""
    return mma(load(device), instruction, a, b, c, **scales)


def original():
    """The bytes of a good archive, and its arrays."""
    if not ORIGINAL:
        rng = np.random.default_rng(0)
        chip = load("a100")
        name = next(
            x
            for x in chip.instructions()
            if chip.matrix_instructions[x].a == "fp16" and chip.matrix_instructions[x].d == "fp32"
        )
        model = chip.matrix_instructions[name]
        sets = []
        for index in range(2):
            a = rng.integers(0, 1 << 16, (2, model.m, model.k)).astype(np.uint16)
            b = rng.integers(0, 1 << 16, (2, model.n, model.k)).astype(np.uint16)
            c = rng.integers(0, 1 << 32, (2, model.m, model.n)).astype(np.uint32)
            d = computed("a100", name, a, b.swapaxes(1, 2), c)
            sets.append(GoldenSet(name, f"set{index}", a, b, c, d))
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "x.npz"
            write_sets(file, sets, Meta("self", "a100"))
            ORIGINAL["bytes"] = file.read_bytes()
        ORIGINAL["sets"] = sets
    return ORIGINAL["bytes"], ORIGINAL["sets"]


def bytes_of(members):
    """An archive of (name, bytes)."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return out.getvalue()


def damaged(rng, data):
    """The archive's bytes, damaged."""
    kind = rng.random()
    if kind < 0.4:  # its own bytes
        found = bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 8))):
            at, what = rng.randrange(len(found)), rng.randrange(4)
            if what == 0:
                found[at] ^= 1 << rng.randrange(8)
            elif what == 1:
                found[at] = rng.randrange(256)
            elif what == 2:
                del found[at : at + rng.choice((1, 2, 16, 1000))]
            else:
                found[at:at] = rng.randbytes(rng.choice((1, 2, 16)))
            if not found:
                break
        return bytes(found)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [[name, archive.read(name)] for name in archive.namelist()]
    for _ in range(rng.choice((1, 1, 2))):
        one = rng.choice(members)
        what = rng.randrange(7)
        if what == 0 and len(members) > 1:
            members.remove(one)
        elif what == 1:
            one[0] = rng.choice(
                ("x", "a/b/c.npy", one[0] + "x", one[0].replace("set0", "set1"), "/".join([one[0]] * 2), "meta.npy")
            )
        elif what == 2:
            one[1] = rng.choice(members)[1]
        elif what == 3:  # the header
            at = rng.randrange(min(128, max(len(one[1]), 1)))
            one[1] = one[1][:at] + bytes([rng.randrange(256)]) + one[1][at + 1 :]
        elif what == 4:
            one[1] = one[1][: rng.randrange(len(one[1]) + 1)]
        elif what == 5:  # an array's values
            at = rng.randrange(len(one[1]) or 1)
            one[1] = one[1][:at] + bytes([rng.randrange(256)]) + one[1][at + 1 :]
        else:
            made = io.BytesIO()
            shape = rng.choice(((), (0,), (2,), (2, 16, 16), (0, 16, 8), (2, 16, 8), (1, 1, 1)))
            kind = rng.choice(("u2", "u4", "u1", "u8", "i4", "f4", "?", "U1", "S3", "c8", "M8[s]"))
            np.save(made, np.zeros(shape, kind))
            one[1] = made.getvalue()
    return bytes_of(members)


def case(number):
    """One damaged archive."""
    rng = random.Random(number)
    good, sets = original()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "x.npz"
        file.write_bytes(damaged(rng, good))
        try:
            report = verify([file], computed)
        except HwsimError:
            return "refused"
        if report.mismatches:
            return "differs"
        found = list(read_sets(file))
        assert [one.key for one in found] == [one.key for one in sets], "sets are missing"
        for one, other in zip(found, sets, strict=True):
            for name in "abcd":
                assert np.array_equal(getattr(one, name), getattr(other, name)), f"{one.key}: {name} is another array"
        assert report.results == sum(one.results for one in sets)
        return "passes"


if __name__ == "__main__":
    main("goldens", case, __doc__.partition("\n")[0])
