"""Array conversions against hwsim.formats, value by value, and against NumPy and ml_dtypes in bulk.

Values are built from bit fields: every code of a format or a choice of them, the ties between neighbours
and the words next to both, the ends of the exponent range, zeros, infinities and NaNs with payloads.
"""

from __future__ import annotations

import ctypes
import itertools

import numpy as np
import pytest

from hwsim import formats
from hwsim._kernels import convert
from hwsim.errors import InputError
from hwsim.formats import FORMATS, ROUNDINGS, Exact, Format

SOURCES = {32: (np.float32, np.uint32, FORMATS["fp32"]), 64: (np.float64, np.uint64, FORMATS["fp64"])}
OVERFLOWS = ("ieee", "infinity", "saturate")
VARIANTS = convert.variants()
ALL = [pytest.param(fmt, id=name) for name, fmt in FORMATS.items() if name != "int64"]  # it has no conversions
SHORT = [pytest.param(fmt, id=name) for name, fmt in FORMATS.items() if fmt.bits <= 16]
WITHOUT_NAN = ("e3m2", "e2m3", "e2m1")


def some_codes(fmt: Format) -> list[int]:
    """All codes up to 8 bits; else signs x exponents (ends, middle) x fractions (ends, one-hot, runs)."""
    if fmt.bits <= 8:
        return list(range(1 << fmt.magnitude_bits + fmt.signed))
    if fmt.is_integer:
        near = [0, 1, 2, 3, (1 << fmt.bits - 1) - 1, 1 << fmt.bits - 1, (1 << fmt.bits) - 1, (1 << fmt.bits) - 2]
        return near + [1 << i for i in range(fmt.bits)]
    top = (1 << fmt.exponent_bits) - 1
    bits = fmt.fraction_bits
    exponents = {0, 1, 2, fmt.bias - 1, fmt.bias, fmt.bias + bits, top - 2, top - 1, top}
    ones = (1 << bits) - 1
    fractions = {0, 1, 2, ones, ones - 1, 1 << bits - 1, (1 << bits - 1) - 1, ones ^ 0x55 & ones, 3 << bits - 2}
    return [
        fmt.word(sign, exponent << bits | fraction)
        for sign, exponent, fraction in itertools.product((0, 1), sorted(exponents & set(range(top + 1))), fractions)
    ]


def words_near(fmt: Format, bits: int) -> np.ndarray:
    """Source words at and next to the format's numbers and the ties between them, and the source's own edges."""
    source = SOURCES[bits][2]
    words = set(some_codes(source))
    lengths: list[Exact] = []
    for code in some_codes(fmt):
        value = formats.decode(fmt, code)
        if value.kind == "finite":
            lengths += [
                Exact("finite", value.sign, 4 * value.significand + quarter, value.exponent - 2) for quarter in range(4)
            ]
    # Beyond the largest finite number: one place on, the tie, and far away.
    for sign in (0, 1):
        largest = formats.decode(fmt, fmt.largest_code(sign))
        lengths += [
            Exact("finite", sign, 4 * largest.significand + quarter, largest.exponent - 2) for quarter in range(12)
        ]
        lengths += [Exact("finite", sign, 1, largest.exponent + shift) for shift in (11, 33, 60)]
    top = (1 << bits) - 1
    for value in lengths:
        word = formats.round_to(source, value, "RZ", overflow="saturate")
        words |= {word, word - 1 & top, word + 1 & top}
    chosen = np.array(sorted(words), SOURCES[bits][1])
    if chosen.size > 1500:
        chosen = np.random.default_rng(7).permutation(chosen)[:1500]
    edges = [
        source.word(sign, magnitude)
        for sign in (0, 1)
        for magnitude in (0, 1, source.largest_magnitude, source.largest_magnitude + 1, source.largest_magnitude + 2)
    ]
    return np.concatenate([chosen, np.array(edges, chosen.dtype)])


def expected(fmt: Format, values: list[Exact], rounding, overflow) -> list[int]:
    nan = 0 if fmt.nan == "none" else fmt.nan_code
    return [nan if v.kind == "nan" else formats.round_to(fmt, v, rounding, overflow=overflow) for v in values]


@pytest.mark.parametrize("bits", SOURCES)
@pytest.mark.parametrize("fmt", ALL)
def test_encode_is_round_to(fmt, bits):
    dtype, _, source = SOURCES[bits]
    words = words_near(fmt, bits)
    if fmt.name in WITHOUT_NAN:
        words = words[~np.isnan(words.view(dtype))]
    values = [formats.decode(source, int(word)) for word in words]
    for rounding in ROUNDINGS:
        for overflow in OVERFLOWS:
            want = expected(fmt, values, rounding, overflow)
            for variant in VARIANTS:
                got = convert.encode(words.view(dtype), fmt, rounding, overflow, variant=variant)
                wrong = [(hex(w), hex(int(g)), hex(e)) for w, g, e in zip(words, got, want, strict=True) if g != e]
                assert not wrong, (rounding, overflow, variant, wrong[:5])


@pytest.mark.parametrize("value_dtype", [np.float32, np.float64])
@pytest.mark.parametrize("fmt", SHORT)
def test_decode_every_code(fmt, value_dtype):
    target = SOURCES[np.dtype(value_dtype).itemsize * 8][2]
    codes = np.arange(1 << fmt.bits).astype(formats.code_dtype(fmt))
    exact = [formats.decode(fmt, int(code)) for code in codes]
    want = [formats.encode(target, e) | (e.sign << target.bits - 1) for e in exact]
    for variant in VARIANTS:
        got = convert.decode(codes, fmt, value_dtype, variant=variant)
        assert got.view(f"u{target.bits // 8}").tolist() == want


@pytest.mark.parametrize("name", ["tf32", "hf32", "e8m13", "fp32", "fp64", "int32"])
def test_decode_long_codes(name):
    fmt = FORMATS[name]
    codes = np.array(some_codes(fmt), formats.code_dtype(fmt))
    codes = np.concatenate([codes, codes | codes.dtype.type((1 << fmt.ignored_bits) - 1)])
    for dtype, target in ((np.float32, FORMATS["fp32"]), (np.float64, FORMATS["fp64"])):
        if dtype is np.float32 and name in ("fp64", "int32"):
            continue
        exact = [formats.decode(fmt, int(code)) for code in codes]
        want = [formats.encode(target, e) | (e.sign << target.bits - 1) for e in exact]
        for variant in VARIANTS:
            assert convert.decode(codes, fmt, dtype, variant=variant).view(f"u{target.bits // 8}").tolist() == want


def test_bytes_with_unused_bits_decode_alike():
    for name in ("int4", "e2m1", "e3m2", "e2m3", "ue4m3"):
        fmt = FORMATS[name]
        width = fmt.bits if fmt.bits < 8 else 7
        codes = np.arange(256, dtype=np.uint8)
        low = convert.decode(codes & np.uint8((1 << width) - 1), fmt)
        assert np.array_equal(convert.decode(codes, fmt), low, equal_nan=True)


LOW_HALVES = (0, 1, 0x0800, 0x0FFF, 0x1000, 0x1001, 0x3000, 0x7FFF, 0x8000, 0x8001, 0xFFFF)


@pytest.mark.parametrize("name", ["fp16", "bf16", "e4m3", "e5m2", "e4m3fnuz", "e5m2fnuz", "e3m2", "e2m3", "e2m1"])
def test_every_upper_half_against_numpy(name):
    fmt = FORMATS[name]
    for low in LOW_HALVES:
        x = (np.arange(1 << 16, dtype=np.uint32) << 16 | np.uint32(low)).view(np.float32)
        x = x[~np.isnan(x)]
        with np.errstate(over="ignore"):
            theirs = formats.codes_of(x.astype(formats.array_dtype(fmt)), fmt)
        is_nan = np.isnan(convert.decode(theirs, fmt))
        for variant in VARIANTS:
            ours = convert.encode(x, fmt, variant=variant)
            assert np.array_equal(ours[~is_nan], theirs[~is_nan])
            assert is_nan.sum() == 0 or (ours[is_nan] == fmt.nan_code).all()


@pytest.mark.skipif(len(VARIANTS) < 2, reason="this processor runs one variant only")
@pytest.mark.parametrize("fmt", ALL)
def test_variants_agree_on_random_words(fmt):
    rng = np.random.default_rng(11)
    for dtype, unsigned, _ in SOURCES.values():
        x = rng.integers(0, np.iinfo(unsigned).max, 20011, unsigned, endpoint=True).view(dtype)
        for rounding, overflow in itertools.product(ROUNDINGS, OVERFLOWS):
            codes = [convert.encode(x, fmt, rounding, overflow, nan=nan_of(fmt), variant=v) for v in VARIANTS]
            assert all(np.array_equal(codes[0], other) for other in codes[1:])


def nan_of(fmt: Format) -> str:
    return "zero" if fmt.name in WITHOUT_NAN else "quiet"


@pytest.mark.parametrize("fmt", ALL)
def test_what_was_decoded_encodes_back(fmt):
    codes = np.array(some_codes(fmt), formats.code_dtype(fmt))
    values = convert.decode(codes, fmt, np.float64)
    finite = ~np.isnan(values)
    for rounding in ROUNDINGS:
        back = convert.encode(values, fmt, rounding, nan=nan_of(fmt))
        assert np.array_equal(back[finite], codes[finite])


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", ["fp16", "bf16", "e4m3", "tf32", "ue8m0", "int8"])
def test_every_length_and_offset(name, variant):
    fmt = FORMATS[name]
    words = words_near(fmt, 32)[-200:]
    x = words.view(np.float32)
    whole = convert.encode(x, fmt, variant=variant)
    values = convert.decode(whole, fmt, variant=variant).view(np.uint32)
    for length in (*range(1, 70), 127, 129):
        first = length % 7
        part = convert.encode(x[first : first + length], fmt, variant=variant)
        assert np.array_equal(part, whole[first : first + length])
        assert np.array_equal(
            convert.decode(part, fmt, variant=variant).view(np.uint32), values[first : first + length]
        )


def field_matrix(rows: int, cols: int, seed: int = 3) -> np.ndarray:
    """fp32 with exponents -30..17, a run of zeros or ones at the end of some fractions, both signs."""
    rng = np.random.default_rng(seed)
    shape = (rows, cols)
    fraction = rng.integers(0, 1 << 23, shape, np.uint32)
    keep = rng.integers(0, 23, shape, np.uint32)
    mask = (np.uint32(1) << keep) - np.uint32(1)
    fraction = np.where(rng.integers(0, 2, shape) == 0, fraction & ~mask, fraction | mask)
    words = rng.integers(0, 2, shape, np.uint32) << 31 | rng.integers(97, 145, shape, np.uint32) << 23 | fraction
    words[0, : min(cols, 5)] = [0x80000000, 0x7F800000, 0xFF800000, 0x7FC00001, 1][: min(cols, 5)]
    return words.view(np.float32)


def views(x: np.ndarray) -> dict[str, np.ndarray]:
    unaligned = np.empty(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
    unaligned[...] = x
    frozen = x.copy()
    frozen.flags.writeable = False
    return {
        "transposed": x.T,
        "reversed": x[::-1, ::-1],
        "columns": x[:, ::3],
        "rows": x[::2],
        "part": x[1:, 2:],
        "one column": x[:, 1],
        "read-only": frozen,
        "unaligned": unaligned,
        "broadcast": np.broadcast_to(x[0], (3, x.shape[1])),
        "fortran": np.asfortranarray(x),
        "3-D": x.reshape(-1, 2, x.shape[1]).transpose(2, 0, 1),
        "0-d": x[1, 1],
        "empty": x[:0],
    }


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_any_layout(dtype, threads):
    x = field_matrix(38, 301).astype(dtype)
    for name, view in views(x).items():
        view = np.asarray(view)
        plain = np.array(view, order="C", copy=True)
        for fmt in (FORMATS["fp16"], FORMATS["e4m3"], FORMATS["hf32"]):
            want = convert.encode(plain, fmt)
            got = convert.encode(view, fmt, threads=threads)
            assert got.shape == view.shape and got.flags.c_contiguous and np.array_equal(got, want), name
    codes = convert.encode(x, FORMATS["bf16"])
    for name, view in views(codes).items():
        plain = np.array(view, order="C", copy=True)
        got = convert.decode(np.asarray(view), FORMATS["bf16"], threads=threads)
        want = convert.decode(plain, FORMATS["bf16"])
        assert got.shape == plain.shape and np.array_equal(got, want, equal_nan=True), name


@pytest.mark.parametrize("threads", [2, 5, 300])
def test_threads_change_nothing(threads):
    x = field_matrix(331, 257)
    for source in (x, x.T, x[:, 1:]):
        assert np.array_equal(
            convert.encode(source, FORMATS["e5m2"], threads=threads), convert.encode(source, FORMATS["e5m2"])
        )
        pieces = [(FORMATS["bf16"], "RNE", 0)] * 3
        alone = convert.split(source, pieces)
        assert all(map(np.array_equal, convert.split(source, pieces, threads=threads), alone))


def test_out_is_filled_and_checked():
    x = field_matrix(4, 9)
    out = np.full((4, 9), 0xFFFF, np.uint16)
    assert convert.encode(x, FORMATS["fp16"], out=out) is out
    assert np.array_equal(out, convert.encode(x, FORMATS["fp16"]))
    back = np.empty((4, 9))
    assert convert.decode(out, FORMATS["fp16"], np.float64, out=back) is back
    frozen = out.copy()
    frozen.flags.writeable = False
    for wrong in (
        np.empty((4, 9), np.uint8),
        np.empty((9, 4), np.uint16),
        np.empty((9, 4), np.uint16).T,
        frozen,
        x.view(np.uint16)[:, :9],
        [1],
    ):
        with pytest.raises(InputError, match="out"):
            convert.encode(x, FORMATS["fp16"], out=wrong)
    with pytest.raises(InputError, match="shares memory"):
        convert.encode(x, FORMATS["fp32"], out=x.view(np.uint32))


def test_nan_options():
    x = np.array([np.nan, -np.nan, np.inf, -np.inf, -0.0], np.float32)
    for name, fmt in FORMATS.items():
        if name == "int64":
            continue
        zero = formats.round_to(fmt, Exact("finite", 0), "RNE")
        assert convert.encode(x, fmt, nan="zero")[:2].tolist() == [zero, zero]
        if name in WITHOUT_NAN:
            with pytest.raises(InputError, match="NaN"):
                convert.encode(x, fmt)
            convert.encode(x[2:], fmt)
    # Ascend's saturation mode: infinities to the largest finite value, NaN to +0.
    assert convert.encode(x, FORMATS["fp16"], "RNE", "saturate", nan="zero").tolist() == [0, 0, 0x7BFF, 0xFBFF, 0x8000]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: convert.encode(x.astype(np.float16), FORMATS["bf16"]), "float32 or float64; got float16"),
        (lambda x: convert.encode(x.astype(">f4"), FORMATS["bf16"]), "got >f4"),
        (lambda x: convert.encode([1.0], FORMATS["bf16"]), "got list"),
        (lambda x: convert.encode(x, FORMATS["bf16"], "rne"), "rounding='rne'.*RNE"),
        (lambda x: convert.encode(x, FORMATS["bf16"], "RZ", "wrap"), "overflow='wrap'"),
        (lambda x: convert.encode(x, FORMATS["bf16"], nan="none"), "nan='none'"),
        (lambda x: convert.encode(x, FORMATS["bf16"], threads=0), "threads=0"),
        (lambda x: convert.encode(x, FORMATS["bf16"], variant="sse9"), "variant 'sse9'.*baseline"),
        (lambda x: convert.decode(x, FORMATS["fp32"]), "uint32; got float32"),
        (lambda x: convert.decode(x.view(np.uint32), FORMATS["fp32"], np.float16), "float32 or float64"),
        (lambda x: convert.decode(x.view(np.uint32), FORMATS["int32"]), "does not hold every value of int32"),
        (lambda x: convert.encode(x, FORMATS["int64"]), "int64: there are no conversions"),
        (lambda x: convert.decode(np.ones(3, np.uint64), FORMATS["int64"], np.float64), "int64: there are no"),
        (lambda x: convert.split(x, []), "empty"),
        (lambda x: convert.split(x.astype(np.float16), [(FORMATS["bf16"], "RNE", 0)]), "or float64; got float16"),
        (lambda x: convert.split(x.astype(float), [(FORMATS["bf16"], "RNE", 1024)]), "piece 0.*-1074..1023"),
        (lambda x: convert.split(x, [(FORMATS["bf16"], "RNE", 0, "wrap")]), "overflow='wrap'"),
        (lambda x: convert.split(x, [(FORMATS["bf16"], "RNE", 0, "ieee", 1)]), "piece 0 has 5 members"),
        (lambda x: convert.split(x, [(FORMATS["bf16"], "RNE", 0)], out=[]), "out has 0 arrays for 1"),
        (lambda x: convert.split(x, [(FORMATS["bf16"], "RNE", 0)], overflow="wrap"), "overflow='wrap'"),
        (lambda x: convert.split(x, [(FORMATS["bf16"], "RNE", 128)]), "piece 0.*-149..127"),
        (lambda x: convert.split(x, [(FORMATS["fp64"], "RNE", 0)]), "fp64"),
        (lambda x: convert.split(x, [(FORMATS["bf16"], "RNE", 0), (FORMATS["e2m1"], "RNE", 0)]), "piece 1: e2m1"),
    ],
)
def test_errors_say_what_is_wrong(call, message):
    with pytest.raises(InputError, match=message):
        call(np.ones(3, np.float32))


def test_result_does_not_depend_on_the_callers_rounding_mode():
    libm = ctypes.CDLL(None)
    upward = 0x800 if hasattr(libm, "fesetround") else None
    x = np.concatenate([words_near(FORMATS["e4m3"], 32), words_near(FORMATS["fp16"], 32)]).view(np.float32)
    want = {name: convert.encode(x, FORMATS[name], variant="baseline") for name in ("e4m3", "fp16", "bf16", "int8")}
    pieces = [(FORMATS["fp16"], "RNE", 0), (FORMATS["fp16"], "RNE", 12)]
    parts = convert.split(x, pieces)
    if upward is None or libm.fesetround(upward):
        pytest.skip("this system has no fesetround with x86's numbers")
    try:
        got = {name: convert.encode(x, FORMATS[name], variant="baseline") for name in want}
        again = convert.split(x, pieces)
        kept = libm.fegetround()
    finally:
        libm.fesetround(0)
    assert kept == upward
    assert all(np.array_equal(got[name], want[name]) for name in want)
    assert all(map(np.array_equal, again, parts))
