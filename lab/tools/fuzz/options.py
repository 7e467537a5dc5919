"""Option sets of `hwsim.run` and of its command line: each is refused with one of hwsim's errors, or gives a result.

python lab/tools/fuzz/options.py [--count 2000] [--first 0] [--log FILE]

Values come from the declarations (allowed ones, ones just outside, of other types, very large ones). Where a result has
a program, its bits are compared with the evaluator's. The command line exits with 0 or 2.
"""

import contextlib
import io
import math
import random

import numpy as np
from campaign import main

import hwsim
from hwsim.cli import main as command_line
from hwsim.devices.registry import shipped
from hwsim.errors import HwsimError
from hwsim.formats import FORMATS
from hwsim.request.declarations import declared
from hwsim.schemes import schemes

LIMIT_S = 30.0  # of processor time: two runs may search their mappings, which takes about 4 s each
NAMES = shipped()
OPTIONS = [entry.option for entry in declared()]
SIZES = (1, 2, 3, 8, 16, 17, 32, 64, 67, 100)
BESIDE = ("m", "n", "k", "c", "bias", "conv", "error_target")  # given apart, or with an auto scheme of many runs
ODD = (
    *(0, 1, 2, 3, 4, 7, 16, 64, 1000, -1, 2**31 - 1, 2**31, 2**63, 10**30, 0.0, -0.0, 0.5, 1.5, 1e308, 5e-324),
    *(
        float("nan"),
        float("inf"),
        True,
        False,
        "",
        "x",
        "auto",
        "fp16",
        "\x1b",
        "9" * 400,
        (),
        (1,),
        (1, 2),
        (16, 16, 16),
    ),
    *((0, 0, 0), [1, 2, 3], {}, {"m": 1}, {"split_k": 3}, {"m": 16, "n": 16, "k": 16}, np.int8(3), np.float32(2), b"x"),
    *(slice(0, 3), slice(None, None, -1), [0, 0], [], [10**9], np.zeros(3, bool), object, None),
)
TEXTS = (
    "0",
    "1",
    "16",
    "-1",
    "1e9",
    "2147483648",
    "x",
    "",
    "16,16,16",
    "m=16,k=16,n=16",
    "0:4",
    "{}",
    '{"a":1}',
    "nan",
    "\x1b",
    "true",
)


def value_of(rng, option):
    """A value of an option: of its own kind mostly."""
    kind = rng.random()
    if option.choices and kind < 0.6:
        return rng.choice(option.choices)
    if option.axis and kind < 0.6:
        return rng.choice(option.axis)
    if option.words and kind < 0.3:
        return rng.choice(option.words)
    bounds = [x for x in (option.least, option.most) if x is not None]
    if bounds and kind < 0.7:
        found = rng.choice(bounds) + rng.choice((-1, 0, 1, 2, 10))
        return int(found) if option.type.name == "whole" or rng.random() < 0.5 else found
    if "format" in option.name or option.name == "output":
        return rng.choice([*FORMATS, "x"])
    return rng.choice(ODD)


def taken(rng, scheme):
    """A random set of options, of this scheme mostly."""
    own = list(schemes()[scheme].options)
    count = rng.choice((0, 1, 1, 1, 2, 3))
    pool = own * 3 + [x for x in OPTIONS if x.name not in BESIDE]
    return {option.name: value_of(rng, option) for option in (rng.choice(pool) for _ in range(count))}


def same(one, other):
    """Whether two products have the same bits."""
    return one.dtype == other.dtype and one.tobytes() == other.tobytes()


def called(rng, number):
    """One call of `hwsim.run`."""
    m, n, k = (rng.choice(SIZES) for _ in "mnk")
    data = np.random.default_rng(number)
    shapes = (m, k), (k, n)
    if rng.random() < 0.1:
        lead = rng.choice(((2,), (1, 2), (3,)))
        shapes = (*lead, m, k), rng.choice(((k, n), (*lead, k, n), (2, k, n)))
    a, b = (data.standard_normal(shape).astype(np.float32) for shape in shapes)
    if rng.random() < 0.1:
        a.ravel()[:: rng.randrange(1, 9)] = rng.choice((np.nan, np.inf, -0.0, 1e-42, 3e38, 0.0))
    scheme = rng.choice([*schemes(), "native", "native"])
    given = {"device": rng.choice(NAMES), "scheme": scheme, "threads": 1, **taken(rng, scheme)}
    if rng.random() < 0.1:
        given["c"] = data.standard_normal((m, n)).astype(np.float32)
    if rng.random() < 0.1:
        given["bias"] = data.standard_normal(n).astype(np.float32)
    kind = rng.random()
    if kind < 0.2:
        given.update(m=m, n=n, k=k)
        operands = ()
    elif kind < 0.25:
        operands = (a, rng.choice((b.T, None, b[:, 0], b.astype(np.float64), b.astype(np.int8), "b", [[1.0]])))
    else:
        operands = (a, b)
    if given.get("exact") is False and "m" not in given:
        operands, given = (), given | {"m": m, "n": n, "k": k}
    try:
        result = hwsim.run(*operands, **given)
    except HwsimError:
        return "refused"
    assert result.cycles is None or math.isfinite(result.seconds)
    result.to_dict()
    if result.c is None or given.get("functional") is not None:
        return "ran"
    try:
        program = hwsim.run(*operands, **(given | {"functional": True, "timing": True}))
    except HwsimError:
        return "ran"
    assert same(program.c, result.c), "bits differ between program and evaluator"
    return "both"


def typed(rng, _):
    """One command line."""
    words = ["run", "--m", "16", "--n", "17", "--k", "32"]
    words += ["--device", rng.choice([*NAMES, "x"]), "--scheme", rng.choice([*schemes(), "native", "x"])]
    for _ in range(rng.choice((0, 1, 2, 3))):
        option = rng.choice(OPTIONS)
        if option.name in ("error_target", "conv"):
            continue
        words += [option.flag, str(value_of(rng, option)) if rng.random() < 0.6 else rng.choice(TEXTS)]
    if rng.random() < 0.3:
        words.append("--json")
    said, complained = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complained):
        try:
            code = command_line(words)
        except SystemExit as stop:
            code = stop.code
    assert code in (0, None, 2), f"exit {code} of {words}: {complained.getvalue()[-2000:]}"
    return "typed" if code in (0, None) else "refused"


def case(number):
    """One option set."""
    rng = random.Random(number)
    return typed(rng, number) if rng.random() < 0.3 else called(rng, number)


if __name__ == "__main__":
    main("options", case, __doc__.partition("\n")[0], LIMIT_S)
