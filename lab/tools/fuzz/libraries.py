"""Damaged files of a library's answers (`library=FILE`): each is refused with one of hwsim's errors, or reads the same.

python lab/tools/fuzz/libraries.py [--count 3000] [--first 0] [--log FILE]

A small file's bytes, its members, its head or its arrays are changed, with its digest and without; then a call is
looked up and computed. A file that keeps its digest and is read must give the answer that was written.
"""

import functools
import io
import json
import random
import tempfile
from pathlib import Path

import numpy as np
from campaign import main
from goldens import damaged
from records import change

import hwsim
from hwsim.errors import HwsimError
from hwsim.libraries.cublas.answers.sweeps import DIGEST, CallKind, write

CALL = {"m": 3, "n": 64, "k": 512, "format": "bf16", "output": "bf16", "b_layout": "columns"}
KINDS = ("u1", "u2", "u4", "i4", "i8", "f4", "f8", "?", "U1", "S3", "c8", "M8[s]")
NUMBERS = (0, 1, -1, 2, 7, 65535, 1 << 31, -(1 << 31), (1 << 63) - 1, float("nan"), float("inf"), 1e300)


@functools.cache
def original():
    """The bytes of a good file."""
    kind = CallKind("bf16", "bf16", False, None, "rows", "columns", 32 << 20, 2)
    other = CallKind("tf32", "fp32", True, None, "rows", "rows", 32 << 20, 7)
    sliced, plain = (66, 35, 3, 2, 0, -1, -1, -1), (66, 35, 1, 0, 0, 20, 2, 0)
    runs = {(64, 512): [(1, sliced), (5, plain), (100, None)], (64, 64): [(1, plain), (2, None)]}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.npz"
        entries = [(kind, ("h200", "h100"), runs), (other, ("h200",), {(64, 512): [(1, plain)]})]
        write(
            path, library="cublas", version="13.1", source="a test", cores={"h200": 132, "h100": 132}, entries=entries
        )
        return path.read_bytes()


def changed(rng, data):
    """The file with its head or its arrays changed; most without the digest."""
    with np.load(io.BytesIO(data)) as file:
        arrays = dict(file)
    if rng.random() < 0.8:
        del arrays[DIGEST]
    name = rng.choice([*(x for x in arrays if x != DIGEST), "head", "answers"])
    what = rng.randrange(6)
    if name == "head" and what < 5:
        head = json.loads(arrays["head"].tobytes().decode())
        change(rng, head)
        text = json.dumps(head) if rng.random() < 0.95 else "[" * 100_000
        arrays["head"] = np.frombuffer(text.encode(), np.uint8)
    elif what == 0:
        del arrays[name]
    elif what == 1:
        arrays[name] = np.zeros(rng.choice(((), (0,), (2,), (2, 8), (0, 8), (1, 1, 1))), rng.choice(KINDS))
    elif what == 2:
        with np.errstate(all="ignore"):
            arrays[name] = arrays[name].astype(rng.choice(("f4", "f8", "i8", "u4", "c8", "?", "i1")))
    elif what == 3:
        arrays[name] = arrays[rng.choice(list(arrays))]
    else:
        values = arrays[name].astype(rng.choice(("i8", "i8", "i8", "f8")))
        for _ in range(rng.choice((1, 1, 3))):
            number = rng.choice(NUMBERS)
            if isinstance(number, int) or values.dtype.kind == "f":
                values.flat[rng.randrange(values.size)] = number
        arrays[name] = values
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def answers(path):
    """What the file answers for a call, and the product's bits."""
    choice = hwsim.library(path, device="h200").choose(**CALL)
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((3, 512), np.float32), rng.standard_normal((512, 64), np.float32)
    own = {name: CALL[name] for name in ("format", "output", "b_layout")}
    return choice, hwsim.run(a, b, device="h200", library=str(path), timing=False, **own).c


@functools.cache
def expected():
    """What the good file answers."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.npz"
        path.write_bytes(original())
        return answers(path)


def case(number):
    """One damaged file."""
    rng = random.Random(number)
    good = original()
    choice, bits = expected()
    data = damaged(rng, good) if rng.random() < 0.5 else changed(rng, good)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.npz"
        path.write_bytes(data)
        try:
            found, c = answers(path)
        except HwsimError:
            return "refused"
        if found == choice and np.array_equal(c, bits):
            return "answers the same"
        with np.load(path) as file:
            assert DIGEST not in file.files, "a file with its digest answers otherwise"
        return "answers otherwise, without a digest"


if __name__ == "__main__":
    main("libraries", case, __doc__.partition("\n")[0])
