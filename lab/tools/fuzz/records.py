"""Damaged records of GEMMs (`hwsim run --gemm FILE`): each is refused with one of hwsim's errors, or is computed.

python lab/tools/fuzz/records.py [--count 3000] [--first 0] [--log FILE]

A record of one of many requests is changed in one or two places, as JSON; most lose their digest, as a file edited by
hand would. A record whose digest is still that of the original must give the original's bits. Where the program of a
changed record computes, its bits must be those of the direct evaluation.
"""

import copy
import functools
import json
import random

import numpy as np
from campaign import main

import hwsim
from hwsim.errors import HwsimError, UnsupportedError
from hwsim.gemm.record import Gemm

SIZE = {"m": 40, "n": 24, "k": 72}
LARGEST = 1 << 24  # multiply-adds of a changed record that are worth computing here
#: Device, scheme, and what else the request says.
REQUESTS = (
    *(("a100", scheme, {}) for scheme in ("native", "le-gemm", "bf16x9", "bf16x3", "ape-fp32-t", "tf32x3", "markidis")),
    *(("a100", scheme, {}) for scheme in ("egemm-tc", "ootomo-tf32", "quantensor", "ape")),
    *(("h200", scheme, {}) for scheme in ("native", "ape-fp32-f", "ozaki-fp16", "ozaki-int8", "tf32x4", "ootomo-fp16")),
    *(("b200", scheme, {}) for scheme in ("native", "bf16x6", "bf16x9", "sgemm-cube")),
    *(("mi300x", scheme, {}) for scheme in ("native", "le-gemm", "tf32x3", "ape-fp32-b")),
    *(("v100", scheme, {}) for scheme in ("native", "markidis", "egemm-tc")),
    *(("ascend910a", scheme, {}) for scheme in ("native", "sgemm-cube", "ape-fp32-f", "quantensor", "markidis")),
    *(("ascend910a", scheme, {}) for scheme in ("ootomo-fp16", "ozaki-int8")),
    *(("ascend910b1", scheme, {}) for scheme in ("native", "sgemm-cube", "ape-fp32-f", "bf16x3")),
    *(("tf64", scheme, {}) for scheme in ("tf64x3", "tf64x1")),
    ("a100", "ape-int16", {"input_format": "int16"}),
    ("a100", "native", {"format": "fp64"}),
    ("a100", "native", {"format": "int8"}),
    ("h100", "native", {"format": "e4m3", "split_k": 2, "output": "fp32"}),
    ("h100", "native", {"format": "bf16", "alpha": 2.0, "c": True, "beta": 0.5, "bias": True}),
    ("h100", "native", {"format": "fp16", "tile": (128, 128, 64), "stages": 2}),
    ("h200", "native", {"format": "bf16", "schedule": {"split_k": 2, "merge_order": "descending"}}),
    ("h200", "native", {"format": "bf16", "schedule": {"promotion_k": 32}}),
    ("h200", "native", {"format": "fp16", "library": "cublas"}),
    ("h200", "bf16x9", {"alpha": 2.0, "a_layout": "columns"}),
    ("h200", "sgemm-cube", {"accumulation": "termwise", "k_group": 32}),
    ("v100", "native", {"format": "fp16", "staging": "none"}),
    ("ascend910a", "sgemm-cube", {"accumulation": "elementwise"}),
    ("ascend910a", "sgemm-cube", {"convert_a": "kernel"}),
    ("ascend910b1", "native", {"format": "bf16", "distribution": "block", "alpha": 3.0}),
    ("ascend910b3", "native", {"format": "fp16", "unit_flag": True}),
    ("b200", "native", {"format": "bf16", "cta_group": 2, "tile": (256, 128, 64), "m": 512}),
    ("h100", "ape", {"strategy": "decide"}),
)
#: What takes a value's place.
VALUES = (
    *(None, True, False, 0, 1, -1, 2, 3, 7, 64, 255, 1 << 31, 1 << 63, 10**30, -(10**30), 1.5, 0.0, -1e300, "", "x"),
    *("fp16", "fp32", "int8", "e4m3", "instruction", "columns", "none", [], {}, [0], [0, 0], [[0, 0]]),
    *({"is": {}}, {"is": []}, {"is": "float", "value": "nan"}, {"is": "float", "value": []}, {"is": "Plan"}),
    *({"is": "Tile", "m": 0, "n": 1, "k": 1}, {"is": "TermValue", "term": 9}),
    *({"is": "Setting", "name": "k_group", "value": 0}, {"is": "Depth", "factor": 3}, {"is": "Chain", "ranges": []}),
)


@functools.cache
def original(index):
    """The record of a request as JSON text, and its bits."""
    device, scheme, options = REQUESTS[index]
    options = {**options, **{name: beside(name) for name in ("c", "bias") if options.get(name)}}
    one = hwsim.run(**SIZE | options, device=device, scheme=scheme)
    return one.gemm.to_json(), one.c


def beside(name):
    """C or a bias."""
    shape = (SIZE["m"], SIZE["n"]) if name == "c" else (SIZE["n"],)
    return np.random.default_rng(len(name)).standard_normal(shape).astype(np.float32)


def places(node, path=()):
    """The paths of everything in JSON data."""
    if path:
        yield path
    for key, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield from places(value, (*path, key))


def at(data, path):
    """What lies at a path."""
    for key in path:
        data = data[key]
    return data


def change(rng, data):
    """Change one place of the data, and say where."""
    known = [path for path in places(data) if path[0] not in ("decisions", "digest") or rng.random() < 0.05]
    path = rng.choice(known)
    parent, key, value = at(data, path[:-1]), path[-1], at(data, path)
    what = rng.randrange(4, 6) if type(value) in (int, float) and rng.random() < 0.5 else rng.randrange(8)
    if what == 0:
        del parent[key]
    elif what == 1 and isinstance(parent, dict):
        parent[rng.choice(("x", "is", key + "s", "k_group"))] = parent.pop(key)
    elif what == 2 and isinstance(parent, list):
        parent.insert(key, copy.deepcopy(value))
    elif what == 3:
        parent[key] = copy.deepcopy(at(data, rng.choice(known)))
    elif what in (4, 5) and isinstance(value, int | float):
        parent[key] = rng.choice((value + 1, value - 1, -value, value * 2, value // 2, value * 1000))
    elif what == 6 and isinstance(value, list | dict) and value:
        parent[key] = type(value)()
    else:
        parent[key] = copy.deepcopy(rng.choice(VALUES))
    return path


def mutant(rng, text):
    """A changed record, as data."""
    data = json.loads(text)
    for _ in range(rng.choice((1, 1, 1, 2))):
        change(rng, data)
    if rng.random() < 0.9:
        data.pop("digest", None)
    return data


def macs(record):
    """The multiply-adds of a record, as far as its sizes say them."""
    problem = record.problem
    return problem.m * problem.n * problem.k * problem.matrices * record.single.products


def case(number):
    """One damaged record."""
    rng = random.Random(number)
    index = rng.randrange(len(REQUESTS))
    text, bits = original(index)
    data = mutant(rng, text)
    try:
        record = Gemm.from_dict(data)
        given = {
            name: beside(name) for name, has in (("c", record.problem.has_c), ("bias", record.problem.bias)) if has
        }
        if macs(record) > LARGEST:
            hwsim.run(gemm=data, exact=False, **given)
            return "timed"
        exact = rng.random() < 0.8
        one = hwsim.run(gemm=data, exact=exact, **given)
        if not exact:
            return "timed"
        if record.digest == Gemm.from_dict(json.loads(text)).digest:
            assert np.array_equal(one.c, bits, equal_nan=bits.dtype.kind == "f"), "the same record has other bits"
            return "the original's"
        try:
            other = hwsim.run(gemm=data, functional=True, timing=False, **given)
        except UnsupportedError:
            return "computed"
        else:
            assert np.array_equal(one.c, other.c, equal_nan=one.c.dtype.kind == "f"), "its program has other bits"
            return "computed, by its program too"
    except HwsimError:
        return "refused"


if __name__ == "__main__":
    main("records", case, __doc__.partition("\n")[0])
