"""Every instruction of every device: its name, its unit against the tables, the kernels against the reference."""

import functools
import re
import zlib

import numpy as np
import pytest

from hwsim import devices
from hwsim.devices.patterns import SPELLINGS
from hwsim.formats import array_dtype, array_of, code_dtype, format_of
from hwsim.numerics import reference
from hwsim.numerics.dot_operands import DotOperands
from hwsim.numerics.sparsity import group_of

NAMES = [name for name, where in devices.names() if "configs" in where]
load = functools.cache(devices.load)
EVERY = [(name, key) for name in NAMES for key in load(name).instructions()]
FORMAT_OF = {short: name for name, short in SPELLINGS.items()} | {
    "f8": "e4m3fnuz",
    "fp8": "e4m3fnuz",
    "bf8": "e5m2fnuz",
    "xf32": "tf32",
    "i8": "int8",
    "i32": "int32",
    "bf16_1k": "bf16",
}


def structured(fmt_name, shape, rng):
    """Codes of a format: any bits; near one exponent; subnormal; zeros of both signs; the largest; infinities, NaNs."""
    fmt = format_of(fmt_name)
    high = 1 << fmt.bits
    codes = rng.integers(0, high, shape, dtype=np.uint64)
    if fmt.is_integer:
        edges = np.array([0, 1, high - 1, high // 2, high // 2 - 1], np.uint64)
        return np.where(rng.random(shape) < 0.3, rng.choice(edges, shape), codes).astype(code_dtype(fmt))
    low = fmt.fraction_bits + fmt.ignored_bits
    fraction = codes & np.uint64((1 << low) - 1)
    middle = max(fmt.bias, 1)
    near = rng.integers(max(middle - 3, 0), middle + 2, shape, dtype=np.uint64) << np.uint64(low) | fraction
    sign = rng.integers(0, 2, shape, dtype=np.uint64) << np.uint64(fmt.bits - 1) if fmt.signed else np.uint64(0)
    edges = [0, fmt.largest_code(), 1 << fmt.ignored_bits, (1 << low) - 1, 1 << low]
    edges += [fmt.infinity_code()] if fmt.has_infinity else []
    edges += [fmt.nan_code] if fmt.nan != "none" else []
    case = rng.random(shape)
    chosen = np.select(
        [case < 0.5, case < 0.6, case < 0.65],
        [near | sign, fraction | sign, rng.choice(np.array(edges, np.uint64), shape) | sign],
        codes,
    )
    # Most cases keep to ordinary numbers, or every sum would be a NaN.
    ordinary = (rng.random((shape[0], *[1] * (len(shape) - 1))) < 0.75) & np.ones(shape, bool)
    return np.where(ordinary, near | sign, chosen).astype(code_dtype(fmt))


def storable(model, codes):
    """Codes (..., k) of A, where the instruction's A is 2:4 sparse: a group's last elements are +0."""
    if model.sparsity is None:
        return codes
    stored, elements = group_of(model.a)
    return np.where(np.arange(codes.shape[-1]) % elements < stored, codes, codes.dtype.type(0))


@pytest.mark.parametrize(("device", "key"), EVERY)
def test_the_name_says_shape_and_formats(device, key):
    model = load(device).matrix_instructions[key]
    found = re.search(r"m(\d+)n(N|\d+)k(\d+)", key)
    if found:
        m, n, k = found.groups()
        assert (int(m), int(k)) == (model.m, model.k)
        assert n == ("N" if model.n_last else str(model.n))
        words = key[found.end() :].strip(".").split(".")
        formats = [model.d, *(["A", "B"] if model.formats else [model.a, model.b])]
        spelt = [SPELLINGS.get(fmt, fmt) for fmt in formats]
        assert any(words[i : i + 3] == spelt for i in range(3))
    elif key.startswith("fma."):  # a lane's multiply-add: one product
        assert (model.m, model.n, model.k) == (1, 1, 1)
        assert {SPELLINGS[fmt] for fmt in (model.a, model.b, model.c, model.d)} == {key.split(".")[-1]}
    else:
        pre, shape, tail = re.fullmatch(r"v_(?:mfma|smfmac)_(f32|f64|i32)_(\d+x\d+x\d+)_?(?:\d+b_)?(.*)", key).groups()
        assert tuple(map(int, shape.split("x"))) == (model.m, model.n, model.k)
        assert FORMAT_OF.get(pre, pre) == model.c == model.d
        parts = [tail] if tail == "bf16_1k" else tail.split("_")
        assert (FORMAT_OF.get(parts[0], parts[0]), FORMAT_OF.get(parts[-1], parts[-1])) == (model.a, model.b)
    if model.scale_block:
        assert model.k % model.scale_block == 0


@pytest.mark.parametrize("device", NAMES)
def test_native_formats_name_instructions_of_that_format(device):
    chip = load(device)
    assert chip.default_format in chip.native
    for fmt, name in chip.native.items():
        model = devices.instruction(chip, name)
        assert (model.a, model.b) == (fmt, fmt)
        assert model.d in ("fp32", "fp64", "int32")


def specs(device, key):
    """Of an instruction's first formats, and where it takes several of two others: a full name and what it computes."""
    chip = load(device)
    model = chip.matrix_instructions[key]
    pairs = [(model.a, model.b), *([(model.formats[-1], model.formats[0])] if model.formats else [])]
    found = [devices.example(chip, key, a=a, b=b) for a, b in pairs]
    return [(a, b, name, devices.dot_spec(chip, name)) for (a, b), name in zip(pairs, found, strict=True)]


def computes(device, key):
    """What an instruction computes: instructions of one name that are equal in it have one number."""
    model = load(device).matrix_instructions[key]
    of = key, *specs(device, key), str(model.operand_rounding), str(model.sparsity)
    return NUMBERS.setdefault(of, len(NUMBERS))


NUMBERS = {}


@pytest.mark.covering("number")
@pytest.mark.parametrize(("device", "key", "number"), [(*one, computes(*one)) for one in EVERY])
def test_one_output_equals_the_reference(device, key, number):
    """Structured codes through dot. Of chips whose instruction computes the same, every run takes one."""
    chip = load(device)
    model = chip.matrix_instructions[key]
    rng = np.random.default_rng(zlib.crc32(key.encode()))
    for a_format, b_format, name, spec in specs(device, key):
        assert (spec.a, spec.b) == (a_format, b_format)
        blocks = model.k // model.scale_block if model.scale_block else 0
        cases = 40 if blocks else 12
        a, b = (structured(fmt, (cases, model.k), rng) for fmt in (a_format, b_format))
        a[rng.random(a.shape) < rng.choice([0, 0.5, 0.95], (cases, 1))] = 0
        a, c = storable(model, a), structured(model.c, (cases,), rng)
        scales = {}
        if blocks:
            scales = {which: structured(model.scale_format, (cases, blocks), rng) for which in ("scale_a", "scale_b")}
        d = chip.dot(name, a, b, c, **scales)
        assert (d.dtype, d.shape) == (code_dtype(format_of(model.d)), c.shape)
        if model.operand_rounding:
            continue  # the unit's own operands are not a and b here: see test_numerics_cases
        for i in range(cases):
            given = {which: codes[i].tolist() for which, codes in scales.items()}
            assert d[i] == reference.dot(spec, DotOperands(a[i].tolist(), b[i].tolist(), int(c[i]), **given)), (name, i)


ONE_TILE = {
    devices.dot_spec(load(name), devices.example(load(name), key)): (name, key)
    for name, key in EVERY
    if load(name).matrix_instructions[key].scale_format is None
}


@pytest.mark.parametrize(("device", "key"), ONE_TILE.values())
def test_a_tile_is_its_dot_products(device, key):
    chip = load(device)
    name = devices.example(chip, key)
    model = devices.instruction(chip, name)
    rng = np.random.default_rng(zlib.crc32(key.encode()))
    a, b = (
        storable(model, structured(model.a, (3, model.m, model.k), rng)),
        structured(model.b, (3, model.k, model.n), rng),
    )
    c = structured(model.c, (3, model.m, model.n), rng)
    d = chip.mma(name, a, b, c)
    rows, columns = (rng.integers(0, size, 40) for size in (model.m, model.n))
    cases = rng.integers(0, 3, 40)
    one = chip.dot(name, a[cases, rows], b[cases, :, columns], c[cases, rows, columns])
    np.testing.assert_array_equal(d[cases, rows, columns], one)
    typed = chip.mma(name, array_of(a, format_of(model.a)), b, array_of(c, format_of(model.c)))
    assert typed.dtype == array_dtype(format_of(model.d))
    np.testing.assert_array_equal(typed.view(d.dtype), d)


# Products per step, fraction bits, lowest exponent: the tables of the numerics reference, written down once more.
V, T, H = (23, -131, -19), (24, -132, -20), (25, -133, -21)
AMPERE, ADA = ("a100", "a100pcie", "a800", "a2", "a40", "a10", "rtx3090"), ("ada", "l40s", "l40", "l4", "rtx4090")
HOPPER = ("h100", "h200", "h20", "h800", "h100pcie", "h100nvl")
TCGEN05, SM120 = ("b200", "gb200", "b300"), ("rtxpro6000", "rtx5090", "gb10")
FUSED = {
    "v100 mma.m8n8k4": (4, V),
    "v100 wmma.m16n16k16": (4, V),
    "t4 mma.m16n8k8": (8, T),
    "t4 mma.m8n8k4": (4, V),
    "t4 wmma.m16n16k16": (8, T),
    **{f"{chip} mma.m16n8k{k}": (8, T) for chip in (*AMPERE, *ADA, "tf64") for k in (8, 16)},
    **{f"{chip} mma.m16n8k{k}": (k, H) for chip in (*HOPPER, *TCGEN05, *SM120) for k in (8, 16)},
    **{f"{chip} wgmma.m64nNk16": (16, H) for chip in HOPPER},
    **{f"{chip} tcgen05.mma.m{m}nNk16.f16": (16, H) for chip in TCGEN05 for m in (64, 128, 256)},
}
TF32 = {
    **{f"{chip} mma.m16n8k{k}": (4, T) for chip in (*AMPERE, *ADA) for k in (4, 8)},
    **{f"{chip} mma.m16n8k{k}": (k, H) for chip in (*HOPPER, *TCGEN05, *SM120) for k in (4, 8)},
    **{f"{chip} wgmma.m64nNk8": (8, H) for chip in HOPPER},
    **{f"{chip} tcgen05.mma.m{m}nNk8.tf32": (8, H) for chip in TCGEN05 for m in (64, 128, 256)},
}


def entries(start, *tails):
    chip, stem = start.split(" ")
    found = [key for key in load(chip).instructions() if any(key.startswith(f"{stem}.{tail}") for tail in tails)]
    assert found, start
    return chip, found


@pytest.mark.parametrize("start", FUSED)
def test_16_bit_operands_have_the_tables_numbers(start):
    terms, (bits, floor32, floor16) = FUSED[start]
    chip, found = entries(start, "f32.f16.f16", "f32.bf16.bf16", "f16.f16.f16")
    for key in found:
        spec = devices.dot_spec(load(chip), key)
        wide = spec.d == "fp32"
        unit = spec.unit
        assert (unit.model, unit.terms, unit.fraction_bits) == ("fused", terms, bits)
        assert unit.floor_exponent == (floor32 if wide else floor16)
        assert (unit.rounding, unit.result_format) == ("RZ" if wide else "RNE", None)
        assert unit.specials.nan_code == (0x7FFFFFFF if wide else 0x7FFF)
        assert unit.specials.zero == "positive"


@pytest.mark.parametrize("start", TF32)
def test_tf32_has_the_tables_numbers(start):
    terms, (bits, floor, _) = TF32[start]
    chip, (key,) = entries(start, "f32.tf32.tf32")
    unit = devices.dot_spec(load(chip), key).unit
    assert (unit.terms, unit.fraction_bits, unit.floor_exponent, unit.rounding) == (terms, bits, floor, "RZ")


@pytest.mark.parametrize(
    ("chip", "key", "terms", "bits", "result"),
    [
        *((chip, f"mma.m16n8k{k}.f32.A.B.f32", 16, 13, "e8m13") for chip in ADA for k in (32, 16)),
        *((chip, "mma.m16n8k32.f16.A.B.f16", 16, 13, None) for chip in ADA),
        *((chip, "wgmma.m64nNk32.f32.A.B", 32, 13, "e8m13") for chip in HOPPER),
        *((chip, "wgmma.m64nNk32.f16.A.B", 32, 13, None) for chip in HOPPER),
        *(
            ("b200", f"tcgen05.mma.m{m}nNk32.f8f6f4.{d}.A.B", 32, 25, None)
            for m in (64, 128, 256)
            for d in ("f32", "f16")
        ),
        *(("rtxpro6000", f"mma.m16n8k{k}.{d}.A.B.{d}", k, 25, None) for k in (32, 16) for d in ("f32", "f16")),
        *(("rtxpro6000", f"mma.m16n8k32.f8f6f4.{d}.A.B.{d}", 32, 25, None) for d in ("f32", "f16")),
        ("rtxpro6000", "mma.m16n8k32.mxf8f6f4.f32.A.B.f32", 32, 25, None),
    ],
)
def test_narrow_operands_have_the_tables_numbers(chip, key, terms, bits, result):
    spec = devices.dot_spec(load(chip), key)
    assert (spec.unit.model, spec.unit.terms, spec.unit.fraction_bits) == ("fused", terms, bits)
    assert (spec.unit.result_format, spec.unit.rounding) == (result, "RZ" if spec.d == "fp32" else "RNE")


@pytest.mark.parametrize("chip", ["h100", "h200", "b200", "gb200"])
def test_fp8_by_mma_sync_is_two_fp16_steps_and_an_addition(chip):
    for d in ("f32", "f16"):
        unit = devices.dot_spec(load(chip), f"mma.m16n8k32.{d}.e4m3.e5m2.{d}").unit
        assert (unit.model, unit.modulus, unit.selections) == ("composite", 4, ((0, 1), (2, 3)))
        assert unit.inner == devices.dot_spec(load(chip), f"mma.m16n8k16.{d}.f16.f16.{d}").unit
    assert load(chip).dot_units["fp8_f32"].operand_format == "fp16"


@pytest.mark.parametrize(
    ("chip", "key", "model", "terms"),
    [
        ("mi100", "v_mfma_f32_32x32x8f16", "exact", 4),
        ("mi100", "v_mfma_f32_32x32x4bf16", "exact", 2),
        ("mi210", "v_mfma_f32_32x32x8f16", "pairwise", 4),
        ("mi250", "v_mfma_f32_16x16x16bf16_1k", "pairwise", 4),
        ("mi210", "v_mfma_f32_32x32x4bf16", "pairwise", 2),
        ("mi300x", "v_mfma_f32_16x16x16_f16", "two_level", 8),
        ("mi300x", "v_mfma_f32_4x4x4_16b_bf16", "two_level", 4),
        ("mi300x", "v_mfma_f32_16x16x8_xf32", "two_level", 4),
        ("mi300x", "v_mfma_f32_16x16x32_fp8_bf8", "two_level", 16),
        ("mi300x", "v_mfma_f64_16x16x4_f64", "fma_chain", 1),
        ("mi100", "v_mfma_f32_32x32x2f32", "fma_chain", 1),
        ("a100", "mma.m8n8k4.f64.f64.f64.f64", "fma_chain", 1),
        ("tf64", "mma.m8n8k4.f64.f32.f32.f64", "fma_chain", 1),
        ("b200", "tcgen05.mma.m128nNk64.mxf4.f32.e2m1.e2m1", "block_scaled", 64),
        ("ascend910b3", "mmad.m16n16k8.f32.f32.f32", "exact", 4),
        ("ascend910b3", "mmad.m16n16k8.f32.hf32.hf32", "exact", 8),
    ],
)
def test_the_models_of_the_others(chip, key, model, terms):
    unit = devices.dot_spec(load(chip), key).unit
    assert (unit.model, unit.terms) == (model, terms)


def test_evidence_is_inherited_no_better_than_the_variant_says():
    mma = "mma.m16n8k16.f32.f16.f16.f32"
    assert devices.numerics_evidence(load("a100"), mma) == "silicon-by-others"
    assert devices.numerics_evidence(load("a2"), mma) == "silicon-by-others"
    assert devices.numerics_evidence(load("a800"), mma) == "assumption"
    assert devices.numerics_evidence(load("ascend910b3"), "mmad.m16n16k16.f32.f16.f16") == "assumption"
    assert "same die" in load("a800").evidence["dot_units.f32.terms"].source
    assert load("a800").evidence["cores"].evidence == "datasheet"
    assert "A2" in load("a2").evidence["dot_units.f32.terms"].note


def test_every_checked_unit_says_so():
    for chip in ("v100", "a100", "a2", "ada", "l40s", "h100", "h200", "b200"):
        notes = [about.note for path, about in load(chip).evidence.items() if path.startswith("dot_units.")]
        assert any("checked" in note for note in notes), chip
