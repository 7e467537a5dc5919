"""Programs whose sums join in other arithmetic than the matrix unit's: their bits are the evaluator's, on GPUs."""

from dataclasses import replace

import numpy as np
import pytest
from test_programs_of_calls import changed

import hwsim
from hwsim.api import program as make_program
from hwsim.backend.cpu import CPU
from hwsim.devices import instruction, load
from hwsim.errors import InputError
from hwsim.machines import functional, reference
from hwsim.program.check import check

SIZES = ((37, 29, 83), (5, 1, 3), (1, 9, 130), (16, 40, 66))
FULL = {"alpha": 0.75, "beta": -1.25}
WHOLE = {"alpha": -3.0, "beta": 2.0}
DEVICES = ("a100", "h200", "b200", "mi210", "mi300x", "tf64")
OPTIONS = [  # scheme, its options, the device that has them (None: each in turn)
    ("ape-int16", {"low_byte": "biased"}, None),
    ("ape-int16", {"low_byte": "signed", "accumulate": "int32"}, None),
    ("ape-int16", {"low_byte": "unsigned"}, "h200"),
    ("quantensor", {}, None),
    ("quantensor", {"pieces": 3, "residual": True, "all_products": False}, None),
    ("quantensor", {"format": "int4", "pieces": 5}, "a100"),
    ("ozaki-int8", {"slices": 3}, None),
    ("ozaki-fp16", {"truncate": False, "slices": 2}, None),
    ("ozaki-fp16", {"slices": 4}, "v100"),
    ("ozaki-int8", {"slices": 3, "sum": "exact"}, None),
    ("ozaki-fp16", {"slices": 2, "truncate": False, "sum": "exact"}, None),
]
CALLS = [  # options; C, bias are given; leading dimensions
    ({}, False, False, ()),
    ({}, True, True, ()),
    ({}, False, True, (2,)),
    ({"split_k": 2}, True, True, ()),
    ({"split_k": 2}, True, False, (3,)),
    ({"schedule": {"promotion_k": 32}}, False, False, ()),
    ({"schedule": {"promotion_k": 32}, "split_k": 2, "a_layout": "columns"}, True, True, (2,)),
    ({"b_layout": "columns"}, True, False, ()),
]
OUTPUTS = {
    "ape-int16": ("int64", "int32", "int16", "fp32", "fp64"),
    "native": ("int32", "int64", "int8", "fp32", "fp64"),
}
FLOAT_OUTPUTS = ("fp64", "fp32", "bf16", "int32")
EXACT_OUTPUTS = ("fp64", "fp32", "bf16")  # of sums that are rounded once


def operand(scheme, shape, rng):
    """Numbers of many magnitudes, zeros and whole lines of zeros among them; integers of all bits."""
    if scheme == "native":
        return rng.integers(-128, 128, shape).astype(np.int8)
    if scheme == "ape-int16":
        return rng.integers(-32768, 32768, shape).astype(np.int16)
    x = rng.standard_normal(shape) * 2.0 ** rng.integers(-30, 5, shape)
    x = np.where(rng.random(shape) < 0.1, 0.0, x) * 2.0 ** float(rng.choice([-130, 0, 60]))
    x[..., 0, :] = 0.0
    return x.astype(np.float64 if scheme.startswith("ozaki") else np.float32)


def call_of(scheme, options, call, sizes, output, seed):
    """Operands, C and options of hwsim.run."""
    more, with_c, with_bias, lead = call
    m, n, k = sizes
    rng = np.random.default_rng([seed, *map(ord, scheme)])
    a, b = operand(scheme, (*lead, m, k), rng), operand(scheme, (*lead, k, n), rng)
    is_whole = scheme in OUTPUTS and output.startswith("int")
    c = rng.integers(-90, 90, (*lead, m, n)) if with_c else None
    if with_c and not output.startswith("int"):
        c = c + rng.random(c.shape)
    bias = rng.integers(-(10**6), 10**6, n).astype(float) if with_bias else None
    if with_bias and not is_whole:
        bias = bias / 7
    factors = (WHOLE if is_whole else FULL) if with_c else {}
    return a, b, c, {"scheme": scheme, "bias": bias, "threads": 1, "output": output, **factors, **options, **more}


def sizes_for(more, turn):
    """The sizes of a turn; K for slices and runs where there are such."""
    fitting = [one for one in SIZES if one[2] > 64 or not {"split_k", "schedule"} & set(more)]
    return fitting[turn % len(fitting)]


@pytest.mark.covering("which", "call")
@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call[0]}{'C' * call[1]}{'b' * call[2]}{call[3] or ''}")
@pytest.mark.parametrize("which", range(len(OPTIONS)), ids=lambda i: f"{OPTIONS[i][0]}{OPTIONS[i][1]}")
def test_a_program_gives_the_evaluators_bits(which, call):
    scheme, options, only = OPTIONS[which]
    turn, of_floats = which + CALLS.index(call), EXACT_OUTPUTS if "sum" in options else FLOAT_OUTPUTS
    outputs = OUTPUTS.get(scheme, of_floats)
    output, device = outputs[turn % len(outputs)], only or DEVICES[turn % len(DEVICES)]
    a, b, c, more = call_of(scheme, options, call, sizes_for(call[0], turn), output, which)
    plain = hwsim.run(a, b, c, device=device, **more)
    program = hwsim.run(a, b, c, device=device, functional=True, **more)
    assert plain.c.tobytes() == program.c.tobytes()
    assert plain.cycles == program.cycles > 0


@pytest.mark.parametrize("device", DEVICES)
def test_a_device_has_every_scheme(device):
    for scheme, options in (
        ("ape-int16", {}),
        ("quantensor", {}),
        ("ozaki-int8", {"slices": 3}),
        ("ozaki-fp16", {"slices": 3}),
    ):
        output = "int64" if scheme == "ape-int16" else "fp64"
        a, b, _, more = call_of(scheme, options, CALLS[0], SIZES[3], output, 11)
        plain = hwsim.run(a, b, device=device, **more)
        assert plain.c.tobytes() == hwsim.run(a, b, device=device, functional=True, **more).c.tobytes()


@pytest.mark.parametrize("call", CALLS[1:], ids=lambda call: f"{call[0]}{'C' * call[1]}{'b' * call[2]}{call[3] or ''}")
@pytest.mark.parametrize("output", OUTPUTS["native"])
def test_an_epilogue_on_integer_sums(output, call):
    device = ("a100", "h200", "mi300x")[CALLS.index(call) % 3] if "layout" not in str(call[0]) else "a100"
    a, b, c, more = call_of("native", {"format": "int8"}, call, SIZES[0], output, 7)
    plain = hwsim.run(a, b, c, device=device, **more)
    assert plain.c.tobytes() == hwsim.run(a, b, c, device=device, functional=True, **more).c.tobytes()


def test_an_epilogue_on_fp16_sums():
    """A unit that accumulates in fp16: the lanes convert its results, and join them in fp32."""
    rng = np.random.default_rng(4)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((37, 83), (83, 29)))
    c, bias = rng.standard_normal((37, 29)), rng.standard_normal(29)
    unit = next(
        name
        for name in load("a100").instructions()
        if (instruction(load("a100"), name).a, instruction(load("a100"), name).d) == ("fp16", "fp16")
    )
    for more in ({}, {"split_k": 2}, {"output": "fp32"}):
        more = {"device": "a100", "format": "fp16", "schedule": {"instruction": unit}, **FULL, **more, "bias": bias}
        plain = hwsim.run(a, b, c, **more)
        assert plain.c.tobytes() == hwsim.run(a, b, c, functional=True, **more).c.tobytes()


@pytest.mark.parametrize("given", [{"alpha": 0.75}, {"beta": 0.5}, {"bias": [0.5, 1, 2]}, {"bias": [2.0**70, 1, 2]}])
def test_a_program_refuses_what_integer_sums_do_not_take(given):
    a, b, c = np.ones((4, 5), np.int8), np.ones((5, 3), np.int8), np.ones((4, 3), np.int32)
    for more in ({}, {"functional": True}):
        with pytest.raises(InputError, match="allowed for integer sums: whole numbers"):
            hwsim.run(a, b, c, device="h200", **given, **more)


ORDERS = [  # scheme, device, options
    ("ape-int16", "h200", {"low_byte": "biased"}),
    ("ape-int16", "a100", {"low_byte": "signed"}),
    ("quantensor", "mi300x", {}),
    ("ozaki-int8", "b200", {"slices": 3}),
    ("ozaki-fp16", "v100", {"slices": 3}),
    ("ozaki-fp16", "h200", {"slices": 3, "truncate": False, "sum": "exact"}),
]


def planned(scheme, device, options, split_k, seed=3):
    """A call with C and a bias: its evaluator's result, its program, the device and the program's inputs."""
    m, n, k = sizes = (19, 9, 67)
    output = "int64" if scheme == "ape-int16" else "fp64" if "sum" in options else "fp32"
    a, b, c, more = call_of(scheme, {**options, "split_k": split_k}, CALLS[1], sizes, output, seed)
    del more["threads"]
    direct = hwsim.run(a, b, c, device=device, **more)
    fmt = {np.int16: "int16", np.float64: "fp64", np.float32: "fp32"}[a.dtype.type]
    _, program = make_program(m=m, n=n, k=k, c=c, input_format=fmt, device=device, **more)
    formats = {array.name: array.format for array in program.arrays}
    dtypes = {"int64": np.int64, "int16": np.int16, "fp64": np.float64, "fp32": np.float32}
    given = {}
    for name, x in zip(program.inputs, (a, b, c, more["bias"].reshape(1, -1)), strict=True):
        x = np.ascontiguousarray(x.astype(dtypes[formats[name]]))
        given[name] = x.view(f"u{x.itemsize}")
    return direct, program, load(device), given


@pytest.mark.covering(("scheme", "device", "options"), "split_k")
@pytest.mark.parametrize(("scheme", "device", "options"), ORDERS)
@pytest.mark.parametrize("split_k", [1, 2])
def test_every_legal_order_gives_the_same_bits(scheme, device, options, split_k):
    direct, program, chip, inputs = planned(scheme, device, options, split_k)
    check(program, chip)
    assert functional.run(program, chip, inputs).tobytes() == direct.c.tobytes()
    for order in range(2):
        assert reference.run(program, chip, inputs, order=order, dots=CPU.gemm).tobytes() == direct.c.tobytes()


FAULTS = {  # scheme of ORDERS; opcode; another instruction in its place
    "a byte from another bit": (0, "extract", lambda x: replace(x, scale_exponent=x.scale_exponent and 7)),
    "a shift that is too long": (0, "scale", lambda x: replace(x, scalar=2 * x.scalar)),
    "no bias of the low bytes": (0, "fill", lambda x: replace(x, scalar=0.0)),
    "a sum of one column only": (
        0,
        "reduce_add",
        lambda x: replace(x, opcode="copy", reads=x.reads[1:]),
    ),
    "bytes that are not subtracted": (1, "sub", lambda x: replace(x, opcode="copy", reads=x.reads[:1])),
    "exponents of powers the other way": (2, "ldexp", lambda x: replace(x, scalar=-x.scalar)),
    "slices of one bit less": (3, "ldexp", lambda x: replace(x, scale_exponent=x.scale_exponent + 1)),
    "digits to nearest": (4, "cast", lambda x: replace(x, rounding="RNE") if x.rounding == "RZ" else x),
    "digits that go where there is no room": (
        5,
        "select",
        lambda x: replace(x, reads=(x.reads[0], x.reads[2], x.reads[1])),
    ),
    "digits of another place": (
        5,
        "extract",
        lambda x: replace(x, scale_exponent=x.scale_exponent and x.scale_exponent + 1),
    ),
    "a largest that forgets": (4, "reduce_max", lambda x: replace(x, opcode="copy", reads=x.reads[1:])),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_seen(fault):
    number, opcode, change = FAULTS[fault]
    direct, program, chip, inputs = planned(*ORDERS[number], 1)
    assert functional.run(program, chip, inputs).tobytes() == direct.c.tobytes()
    wrong = changed(program, opcode, change)
    assert wrong.kernels != program.kernels
    assert functional.run(wrong, chip, inputs).tobytes() != direct.c.tobytes()


@pytest.mark.parametrize(("scheme", "device", "options"), ORDERS)
def test_values_end_in_the_element(scheme, device, options):
    a, b, c, more = call_of(scheme, options, CALLS[1], (19, 9, 67), "fp32", 5)
    places = [(0, 0), (18, 8), (7, 3)]
    result = hwsim.run(a, b, c, device=device, functional=True, values=places, **more)
    for place in places:
        steps = result.values[place]
        assert float(steps[-1].after) == float(result.c[place])
        assert any(step.opcode == "mma" for step in steps)
    assert result.executed["extract" if scheme == "ape-int16" else "ldexp"] > 0


def test_a_program_calls_no_evaluator(monkeypatch):
    """Operands are split and sums joined by instructions alone."""

    def refused(*args, **kwargs):
        raise AssertionError("the evaluator was called")

    for scheme, device, options in ORDERS:
        _, program, chip, inputs = planned(scheme, device, options, 1)
        with monkeypatch.context() as patch:
            for name in ("evaluate", "evaluate_plan", "pieces_of", "plan_evaluation"):
                patch.setattr(f"hwsim.evaluate.product.{name}", refused)
            functional.run(program, chip, inputs)
