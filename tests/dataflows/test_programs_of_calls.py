"""Programs of calls with C, a bias, alpha, beta, an output format, a stack: their bits are the evaluator's."""

from dataclasses import replace

import numpy as np
import pytest

import hwsim
from hwsim.api import program as make_program
from hwsim.arithmetic.vector import VectorUnit
from hwsim.backend.cpu import CPU
from hwsim.devices import load
from hwsim.errors import ProgramError, UnsupportedError
from hwsim.machines import functional, reference
from hwsim.program.check import check
from hwsim.program.ir import GlobalTile, Instr, Loop

FULL = {"alpha": 0.75, "beta": -1.25}
CALLS = [  # options; C, bias are given; leading dimensions
    (FULL, True, False, ()),
    ({"beta": 0.3}, True, True, ()),
    ({"alpha": -3.0, "beta": 1.0}, True, False, (2,)),
    ({"alpha": 0.3, "output": "bf16"}, False, True, ()),
    ({**FULL, "output": "fp16"}, True, True, (2,)),
    ({**FULL, "split_k": 2}, True, True, ()),
    ({"output": "fp16", "split_k": 2}, False, False, (3,)),
    ({**FULL, "schedule": {"promotion_k": 32}}, True, False, ()),
    ({"a_layout": "columns", "b_layout": "columns", "beta": 0.5}, True, False, ()),
]
SCHEMES = {
    "a100": ("native", "bf16x9", "tf32x3", "sgemm-cube"),
    "h200": ("native", "bf16x3", "tf32x3", "ootomo-tf32"),
    "b200": ("native", "bf16x9", "bf16x6", "tf32x4"),
    "mi300x": ("native", "bf16x9", "tf32x3", "markidis"),
    "v100": ("native", "sgemm-cube", "le-gemm", "ape-fp32-f"),
}


def fields(shape, rng, *, is_finite=False):
    """fp32 bit fields: exponents around 1, ties, subnormals, both zeros, and infinities and NaNs."""
    codes = rng.integers(0, 1 << 32, shape, np.uint64).astype(np.uint32) & np.uint32(0x807FFFFF)
    codes |= rng.integers(110, 145, shape).astype(np.uint32) << 23
    codes = np.where(rng.random(shape) < 0.2, codes & np.uint32(0xFFFFF000) | np.uint32(0x1000), codes)
    values = codes.astype(np.uint32).view(np.float32)
    special = (0.0, -0.0, 1e-45, -3e-39, 65520.0, 2.0**-25)
    special += () if is_finite else (np.inf, -np.inf, np.nan)
    return np.where(rng.random(shape) < 0.03, rng.choice(np.array(special, np.float32), shape), values)


def operands(device, scheme, sizes, with_c, with_bias, lead):
    m, n, k = sizes
    rng = np.random.default_rng([*map(ord, device + scheme), *sizes])
    is_finite = scheme.startswith("bf16x")
    a, b = fields((*lead, m, k), rng, is_finite=is_finite), fields((*lead, k, n), rng, is_finite=is_finite)
    return a, b, fields((*lead, m, n), rng) if with_c else None, fields((n,), rng) if with_bias else None


@pytest.mark.covering("device", "call")
@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call[0]}{'C' * call[1]}{'b' * call[2]}{call[3] or ''}")
@pytest.mark.parametrize("device", SCHEMES)
def test_a_program_gives_the_evaluators_bits(device, call):
    options, *given = call
    for scheme in SCHEMES[device]:
        for sizes in ((37, 29, 67), (5, 3, 3), (2, 33, 1)):
            if ("split_k" in options and sizes[2] < 64) or ("schedule" in options and scheme != "native"):
                continue
            a, b, c, bias = operands(device, scheme, sizes, *given)
            more = {"device": device, "scheme": scheme, "bias": bias, "threads": 1, **options}
            plain, program = hwsim.run(a, b, c, **more), hwsim.run(a, b, c, functional=True, **more)
            assert plain.c.tobytes() == program.c.tobytes(), (scheme, sizes)
            assert plain.cycles == program.cycles > 0


IN_FP64 = {
    "tf64": ("native", "tf64x1", "tf64x3", "tf64x4"),
    "h200": ("native",),
    "mi300x": ("native",),
}


def wide_fields(shape, rng):
    """fp64 bit fields, as `fields`."""
    low = rng.integers(0, 1 << 29, shape).astype(np.uint64)
    x = fields(shape, rng).astype(np.float64)
    finite = np.isfinite(x) & (x != 0)
    return np.where(finite, (x.view(np.uint64) | low).view(np.float64), x)


@pytest.mark.covering("call", "device")
@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call[0]}{'C' * call[1]}{'b' * call[2]}{call[3] or ''}")
@pytest.mark.parametrize("device", IN_FP64)
def test_a_program_in_fp64_gives_the_evaluators_bits(device, call):
    options, with_c, with_bias, lead = call
    for scheme in IN_FP64[device]:
        for m, n, k in ((21, 13, 67), (5, 3, 3), (2, 9, 1)):
            if ("split_k" in options and k < 64) or ("schedule" in options and scheme != "native"):
                continue
            rng = np.random.default_rng([*map(ord, device + scheme), m, n, k])
            a, b = wide_fields((*lead, m, k), rng), wide_fields((*lead, k, n), rng)
            c = wide_fields((*lead, m, n), rng) if with_c else None
            bias = wide_fields((n,), rng) if with_bias else None
            more = {"device": device, "scheme": scheme, "bias": bias, "threads": 1, **options}
            more |= {"format": "fp64"} if scheme == "native" else {}
            plain, program = hwsim.run(a, b, c, **more), hwsim.run(a, b, c, functional=True, **more)
            assert plain.c.tobytes() == program.c.tobytes(), (scheme, (m, n, k))
            assert plain.cycles == program.cycles > 0


def inputs_of(program, a, b, c, bias):
    codes = [x.view(np.uint32) for x in (a, b, c, bias.reshape(1, -1))]
    return dict(zip(program.inputs, codes, strict=True))


@pytest.mark.parametrize(("device", "scheme"), [("a100", "bf16x3"), ("h200", "sgemm-cube"), ("b200", "bf16x9")])
@pytest.mark.parametrize("split_k", [1, 2])
def test_every_legal_order_gives_the_same_bits(device, scheme, split_k):
    m, n, k = sizes = (19, 9, 67)
    a, b, c, bias = operands(device, scheme, sizes, True, True, ())
    more = {"device": device, "scheme": scheme, **FULL, "split_k": split_k}
    direct = hwsim.run(a, b, c, bias=bias, **more)
    _, program = make_program(m=m, n=n, k=k, c=c, bias=bias, **more)
    chip, inputs = load(device), inputs_of(program, a, b, c, bias)
    check(program, chip)
    assert any(instr.opcode == "fma" for kernel in program.kernels for instr in kernel.instrs())
    assert functional.run(program, chip, inputs).tobytes() == direct.c.tobytes()
    for order in range(4):
        assert reference.run(program, chip, inputs, order=order, dots=CPU.gemm).tobytes() == direct.c.tobytes()


def changed(program, opcode, change):
    """The program with each instruction of an opcode changed."""

    def body(nodes):
        return tuple(
            replace(x, body=body(x.body)) if isinstance(x, Loop) else change(x) if is_it(x) else x for x in nodes
        )

    def is_it(node):
        return isinstance(node, Instr) and node.opcode == opcode

    kernels = tuple(
        replace(
            kernel,
            groups=tuple(
                replace(g, streams=tuple(replace(s, body=body(s.body)) for s in g.streams)) for g in kernel.groups
            ),
        )
        for kernel in program.kernels
    )
    return replace(program, kernels=kernels)


FAULTS = {
    "another factor": ("fma", lambda x: replace(x, scalar=x.scalar + 2.0**-20)),
    "operands in the other order": ("fma", lambda x: replace(x, reads=x.reads[::-1])),
    "no bias": ("add_row", lambda x: replace(x, opcode="copy", reads=x.reads[:1])),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_seen(fault):
    m, n, k = sizes = (19, 9, 67)
    a, b, c, bias = operands("a100", "native", sizes, True, True, ())
    _, program = make_program(m=m, n=n, k=k, c=c, bias=bias, device="a100", scheme="native", format="fp32", **FULL)
    chip, inputs = load("a100"), inputs_of(program, a, b, c, bias)
    right, other = functional.run(program, chip, inputs), functional.run(changed(program, *FAULTS[fault]), chip, inputs)
    assert right.tobytes() != other.tobytes()


def test_an_fma_rounds_once(monkeypatch):
    """A multiplication that is rounded before the addition gives other bits."""
    a, b, c, _ = operands("a100", "native", (37, 29, 67), True, False, ())
    more = {"device": "a100", "scheme": "native", "alpha": 0.3, "beta": -1.25}
    plain, execute = hwsim.run(a, b, c, **more), VectorUnit.execute

    def twice(self, instr, target, sources, *reduced):
        if instr.opcode != "fma":
            return execute(self, instr, target, sources, *reduced)
        scaled = np.empty_like(sources[0][0])
        execute(self, replace(instr, opcode="scale"), (scaled, sources[0][1]), sources[:1])
        return execute(self, replace(instr, opcode="add"), target, [(scaled, sources[0][1]), sources[1]])

    monkeypatch.setattr(VectorUnit, "execute", twice)
    assert hwsim.run(a, b, c, functional=True, **more).c.tobytes() != plain.c.tobytes()


def test_the_checker_knows_a_row():
    m, n, k = (19, 9, 67)
    bias = np.zeros(n, np.float32)
    chip, (_, program) = load("a100"), make_program(m=m, n=n, k=k, bias=bias, device="a100", scheme="native")
    check(program, chip)

    def two_rows(instr):
        row = instr.reads[1]
        return replace(instr, reads=(instr.reads[0], replace(row, rows=2)))

    def elsewhere(instr):
        row = instr.reads[1]
        assert isinstance(row, GlobalTile)
        return replace(instr, opcode="fma", reads=instr.reads[::-1])  # a row to be multiplied

    with pytest.raises(ProgramError, match="rows 0 to 1 of array 'bias', which has 1"):
        check(changed(program, "add_row", two_rows), chip)
    with pytest.raises(ProgramError, match="tiles of 1 x 9 and "):
        check(changed(program, "add_row", elsewhere), chip)


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_specials_of_a_scheme_with_a_rule_of_its_own_are_refused(value):
    """The evaluator applies the rule; no instruction of the program does."""
    a, b = np.ones((4, 5), np.float32), np.ones((5, 3), np.float32)
    a[1, 2] = value
    hwsim.run(a, b, device="h200", scheme="bf16x9")
    with pytest.raises(UnsupportedError, match=r"functional=True: A holds an infinity or a NaN.*bf16x9"):
        hwsim.run(a, b, device="h200", scheme="bf16x9", functional=True)
    with pytest.raises(UnsupportedError, match=r"functional=True: B holds an infinity or a NaN"):
        hwsim.run(b.T.copy(), a.T.copy(), device="h200", scheme="bf16x9", functional=True)


@pytest.mark.parametrize(
    ("options", "split_k"),
    [
        *[({"contraction": name}, count) for name in ("none", "alpha", "beta") for count in (1, 2)],
        *[({"output_format": "fp16", "output_rounding": "RZ"}, count) for count in (1, 2)],
        *[({"product_format": "fp16"}, count) for count in (1, 2)],
        ({"product_format": "bf16", "output_format": "bf16"}, 1),
    ],
)
@pytest.mark.parametrize("device", ["a100", "b200", "mi300x"])
def test_roundings_and_contractions_of_an_epilogue(device, options, split_k):
    rng = np.random.default_rng(6)
    a, b = rng.standard_normal((40, 130)).astype(np.float16), rng.standard_normal((130, 30)).astype(np.float16)
    c, bias = rng.standard_normal((40, 30)).astype(np.float32), rng.standard_normal(30).astype(np.float32)
    epilogue = {"alpha": 0.3, "beta": -1.7, **options}
    call = {"device": device, "format": "fp16", "schedule": {"split_k": split_k, "epilogue": epilogue}}
    for more in ({"bias": bias}, {}):
        plain, program = hwsim.run(a, b, c, **call, **more), hwsim.run(a, b, c, functional=True, **call, **more)
        assert plain.result_sha256 == program.result_sha256 and plain.cycles == program.cycles


@pytest.mark.parametrize("contraction", ["none", "alpha", "beta"])
@pytest.mark.parametrize(("device", "split_k"), [("ascend910a", 1), ("ascend910a", 2), ("ascend910b3", 1)])
def test_contractions_of_an_ascend(device, split_k, contraction):
    rng = np.random.default_rng(6)
    a, b = rng.standard_normal((40, 130)).astype(np.float16), rng.standard_normal((130, 30)).astype(np.float16)
    c = rng.standard_normal((40, 30)).astype(np.float32)
    epilogue = {"alpha": 0.3, "beta": -1.7, "contraction": contraction}
    call = {"device": device, "format": "fp16", "schedule": {"split_k": split_k, "epilogue": epilogue}}
    plain, program = hwsim.run(a, b, c, **call), hwsim.run(a, b, c, functional=True, **call)
    assert plain.result_sha256 == program.result_sha256 and plain.cycles == program.cycles > 0


def test_a_product_that_is_rounded_and_nothing_else():
    rng = np.random.default_rng(6)
    a, b = rng.standard_normal((40, 130)).astype(np.float16), rng.standard_normal((130, 30)).astype(np.float16)
    call = {"device": "h200", "format": "fp16", "schedule": {"epilogue": {"product_format": "bf16"}}}
    plain, program = hwsim.run(a, b, **call), hwsim.run(a, b, functional=True, **call)
    assert plain.result_sha256 == program.result_sha256 != hwsim.run(a, b, **call | {"schedule": None}).result_sha256


@pytest.mark.parametrize("split_k", [1, 2])
@pytest.mark.parametrize("scheme", ["native", "tf32x3"])
def test_a_c_times_zero_is_not_read(scheme, split_k):
    a, b = np.ones((40, 130), np.float32), np.ones((130, 30), np.float32)
    c = np.full((40, 30), np.nan, np.float32)
    call = {"device": "h200", "scheme": scheme, "alpha": 0.75, "split_k": split_k}
    plain, program = hwsim.run(a, b, c, beta=0.0, **call), hwsim.run(a, b, c, beta=0.0, functional=True, **call)
    without = hwsim.run(a, b, **call)
    assert plain.result_sha256 == program.result_sha256 == without.result_sha256
    assert plain.cycles == program.cycles == without.cycles


@pytest.mark.parametrize("scheme", ["native", "ape", "bf16x9"])
def test_the_result_shows_a_part_of_what_a_program_computes(scheme):
    """Cycles are of the whole product."""
    rng = np.random.default_rng(8)
    a, b = rng.standard_normal((3, 40, 60)).astype(np.float32), rng.standard_normal((60, 30)).astype(np.float32)
    c, bias = rng.standard_normal((3, 40, 30)).astype(np.float32), rng.standard_normal(30).astype(np.float32)
    call = {"device": "h200", "scheme": scheme, "beta": 0.5, "bias": bias}
    whole = hwsim.run(a, b, c, functional=True, **call)
    for part in ({"rows": [3, 39]}, {"cols": slice(2, 9)}, {"rows": range(5), "cols": [0]}):
        plain, program = hwsim.run(a, b, c, **call, **part), hwsim.run(a, b, c, functional=True, **call, **part)
        assert plain.result_sha256 == program.result_sha256 and plain.c.shape == program.c.shape
        assert plain.cycles == program.cycles == whole.cycles
        assert plain.error["relative_frobenius"] == program.error["relative_frobenius"]


def test_a_kernel_without_a_program_is_refused_by_name():
    """Kernels that add in an order written out: of CUDA cores, and of matrix-vector products."""
    rng = np.random.default_rng(7)
    a, b = rng.standard_normal((209, 1430)).astype(np.float32), rng.standard_normal((1430, 491)).astype(np.float32)
    with pytest.raises(UnsupportedError, match=r"no program: the library's kernel \S.*carries no written-out sum"):
        hwsim.run(a, b, device="h200", functional=True, library="cublas", format="fp32")


@pytest.mark.parametrize("device", ["h200", "a2", "mi300x"])
@pytest.mark.parametrize("output", ["fp64", "fp32", "fp16", "bf16"])
def test_nans_of_fp64_lanes_have_the_evaluators_code(device, output):
    a, b = np.random.default_rng(0).standard_normal((2, 5, 5), np.float32)
    given = {"device": device, "scheme": "ozaki-fp16", "output": output, "alpha": float("nan")}
    program = hwsim.run(a, b, functional=True, **given)
    assert program.result_sha256 == hwsim.run(a, b, **given).result_sha256
