"""Scales, elements, factors and layouts of quantised operands, beside tables and direct readings of the rules.

Second opinions: gfloat for all codes and for floor, torchao for floor, ceil, even, rceil, its own rules of MX, NVFP4
and FP8, and layouts. DeepGEMM's rule, Transformer Engine's of NVFP4 and fp32, and cuBLASLt's of fp32 have none that
runs without a GPU: these are read from source and documentation twice, here and in hwsim.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import hwsim
from hwsim.errors import InputError
from hwsim.formats import FORMATS, format_of
from hwsim.operands import hadamard, scale_layouts
from hwsim.operands.powers import largest_number
from hwsim.operands.quantization import SCHEMES
from hwsim.operands.scale_rules import POWER_RULES, power_of_two_scale
from hwsim.operands.stochastic import encode_stochastic

F32 = np.float32
ELEMENTS = ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")
#: amax: exponents of an e4m3 block's scale by floor, even, ceil, rceil.
GOLDEN = {
    448: (0, 0, 1, 0),
    449: (0, 0, 1, 1),
    464: (0, 0, 1, 1),
    480: (0, 0, 1, 1),
    511: (0, 1, 1, 1),
    512: (1, 1, 1, 1),
    256: (0, 0, 0, 0),
    255: (-1, 0, 0, 0),
    1.75: (-8, -8, -7, -8),
}


@pytest.mark.parametrize("amax", GOLDEN)
def test_the_table_of_exponents(amax: float) -> None:
    x = np.zeros((1, 32), F32)
    x[0, 7] = -amax
    for rule, exponent in zip(("floor", "even", "ceil", "rceil"), GOLDEN[amax], strict=True):
        quantized = hwsim.quantize(x, "mxfp8", rule=rule)
        assert int(quantized.scales[0, 0]) - 127 == exponent, rule
        assert quantized.scales.dtype == np.uint8
        value = min(amax * 2.0**-exponent, 448)
        assert -float(quantized.elements[0, 7]) == float(ml_dtypes.float8_e4m3fn(value))


@pytest.mark.parametrize("element", ELEMENTS)
def test_round_up_is_the_same_by_division_and_by_the_inverse(element: str) -> None:
    """Every significand of one binade."""
    amax = (np.uint32(0x3F800000) + np.arange(1 << 23, dtype=np.uint32)).view(F32)
    top = largest_number(format_of(element))
    by_division = np.ceil(np.log2(amax.astype(np.float64) / top)) + 127
    quotient = amax / F32(top)  # rounded first, as the libraries do
    fraction, exponent = np.frexp(quotient)
    straight = exponent - (fraction == 0.5) + 127
    got = power_of_two_scale(amax, format_of(element), "rceil")
    assert (got == straight).all()
    assert (got == by_division).mean() > 0.999999


def test_edges_of_round_up() -> None:
    fmt = format_of("e5m2")
    values = np.array([0, np.nan, np.inf, np.finfo(F32).max], F32)
    assert power_of_two_scale(values, fmt, "rceil").tolist() == [0, 0xFF, 0xFE, 240]
    for rule in ("floor", "ceil", "even"):
        assert power_of_two_scale(values[:3], fmt, rule).tolist() == [0, 0xFF, 0xFF]


@pytest.mark.parametrize("scheme", ["mxfp8", "mxfp6", "mxfp4"])
@pytest.mark.parametrize("rule", POWER_RULES)
def test_elements_are_rounded_once(scheme: str, rule: str) -> None:
    """Against numbers in fp64, with partial blocks."""
    rng = np.random.default_rng(3)
    x = (rng.standard_normal((5, 70)) * np.exp2(rng.integers(-20, 20, (5, 70)))).astype(F32)
    for element in SCHEMES[scheme].elements:
        quantized = hwsim.quantize(x, scheme, rule=rule, element=element)
        assert quantized.scales.shape == (5, 3)
        scale = np.exp2(quantized.scales.astype(np.float64) - 127).repeat(32, 1)[:, :70]
        values = quantized.elements.astype(np.float64)
        fmt = format_of(element)
        grid = np.exp2(np.maximum(np.floor(np.log2(np.abs(x) / scale)), fmt.min_exponent) - fmt.fraction_bits)
        clipped = np.clip(x / scale, -largest_number(fmt), largest_number(fmt))
        assert (np.abs(values - clipped) <= grid / 2).all()
        assert np.array_equal(hwsim.dequantize(quantized), (values * scale).astype(F32))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_columns_are_rows_of_the_transpose(scheme: str) -> None:
    x = np.random.default_rng(5).standard_normal((200, 150)).astype(F32)
    rows, columns = hwsim.quantize(x, scheme), hwsim.quantize(x.T, scheme, axis=-2)
    assert np.array_equal(rows.codes, columns.codes.T)
    assert np.array_equal(rows.scales, columns.scales)
    assert np.array_equal(hwsim.dequantize(rows), hwsim.dequantize(columns).T)
    error = np.abs(hwsim.dequantize(rows) - x).max() / np.abs(x).max()
    assert 0 < error < (0.3 if "4" in scheme else 0.08)


def test_transformer_engine_s_nvfp4() -> None:
    """The steps of its kernel, one by one in fp32."""
    x = np.random.default_rng(7).standard_normal((3, 32)).astype(F32)
    quantized = hwsim.quantize(x, "nvfp4", rule="te")
    largest = np.abs(x).max()
    encode = F32(448 * 6) / largest
    for row in range(3):
        for block in range(2):
            part = x[row, block * 16 : block * 16 + 16]
            wanted = np.abs(part).max() * F32(encode * F32(F32(1) / F32(6)))
            scale = F32(np.asarray(wanted, ml_dtypes.float8_e4m3fn))
            inverse = F32(1) / F32(scale * F32(F32(1) / encode))
            assert quantized.scales[row, block] == np.asarray(scale, ml_dtypes.float8_e4m3fn).view(np.uint8)
            want = np.clip(part * inverse, -6, 6).astype(ml_dtypes.float4_e2m1fn)
            assert np.array_equal(quantized.elements[row, block * 16 : block * 16 + 16], want)
    assert quantized.factor == F32(largest / F32(2688))


def test_fp32_scales_by_the_libraries() -> None:
    x = np.array([[3.0, -0.7, 1e-6, 448.0]], F32) / F32(3)
    amax = np.abs(x).max()
    of = {rule: hwsim.quantize(x, "fp8-row", rule=rule).scales[0, 0] for rule in ("deepgemm", "te", "torchao")}
    assert of["deepgemm"] == amax / F32(448)
    assert of["te"] == F32(1) / (F32(448) / amax)
    assert of["torchao"] == F32(1) / F32(448 / np.float64(amax))
    assert hwsim.quantize(x, "fp8-1x128", rule="te").scales[0, 0] == 0.5  # 448 / amax is 3, which becomes 2
    assert hwsim.quantize(x, "fp8-1x128", rule="deepgemm", power_of_two=True).scales[0, 0] == 0.5
    tiny = np.full((1, 4), 1e-9, F32)
    assert hwsim.quantize(tiny, "fp8-row", rule="deepgemm").scales[0, 0] == F32(1e-4) / F32(448)
    assert hwsim.quantize(0 * tiny, "fp8-tensor").scales[0, 0] == 1


def test_deepgemm_s_fp4_takes_the_lower_code_of_a_tie() -> None:
    x = np.zeros((1, 32), F32)
    x[0, :9] = [0.25, 0.75, 1.25, 2.5, -5, -0.0, -0.2, 6, -6]
    codes = hwsim.quantize(x, "mxfp4", rule="deepgemm").codes[0, :9].tolist()
    assert codes == [0, 1, 2, 4, 14, 0, 0, 7, 15]
    nearest = hwsim.quantize(x, "mxfp4").codes[0, :9].tolist()
    assert nearest == [0, 2, 2, 4, 14, 8, 8, 7, 15]


@pytest.mark.parametrize("element", ELEMENTS)
def test_stochastic_rounding_with_every_byte(element: str) -> None:
    """Of 256 bytes, as many go up as the distance from the lower neighbour has 256ths."""
    fmt = format_of(element)
    codes = np.arange(1 << (fmt.bits - 1), dtype=np.uint8)
    low = hwsim.format_arrays.decode(codes, element)
    low = low[np.isfinite(low)]
    between = low[:-1, None] + np.diff(low)[:, None] * np.array([0, 3, 128, 255], F32) / 256
    bytes_ = np.broadcast_to(np.arange(256, dtype=np.uint8), (*between.shape, 256))
    got = encode_stochastic(np.broadcast_to(between[..., None], bytes_.shape).astype(F32), fmt, bytes_)
    ups = (got != np.arange(len(low) - 1)[:, None, None]).sum(-1)
    assert (ups == [0, 3, 128, 255]).all()


def test_stochastic_rounding_saturates_and_needs_bits() -> None:
    x = np.full((2, 32), 7.3, F32)
    quantized = hwsim.quantize(x, "mxfp4", rule="floor", rounding="stochastic", seed=1)
    assert set(quantized.elements.astype(F32).ravel()) == {6.0}
    assert encode_stochastic(np.array([np.nan], F32), format_of("e2m1"), np.zeros(1, np.uint8)) == 7
    again = hwsim.quantize(x / 3, "mxfp4", rounding="stochastic", random_bytes=np.zeros(x.shape, np.uint8))
    assert (again.elements.astype(F32) * np.exp2(again.scales - 127.0).repeat(32, 1) <= x / 3).all()
    for options in ({"rounding": "stochastic"}, {"seed": 1}):
        with pytest.raises(InputError, match="random_bytes"):
            hwsim.quantize(x, "mxfp4", **options)


def test_the_hadamard_transform_is_orthogonal_and_transformer_engine_s() -> None:
    of_signs = hadamard.matrix().astype(np.float64)
    assert np.array_equal(of_signs @ of_signs.T, np.eye(16))
    assert "".join("+" if sign > 0 else "-" for sign in of_signs[:, 0]) == "+++-+------+-+--"
    popcounts = [[bin(i & j).count("1") for j in range(16)] for i in range(16)]
    assert np.array_equal(hadamard.matrix([1] * 16), np.where(np.array(popcounts) % 2, -0.25, 0.25))
    x = np.random.default_rng(1).integers(-8, 8, (3, 48)).astype(F32)
    transformed = hadamard.random_hadamard(x)
    assert np.array_equal(hadamard.random_hadamard(transformed, inverse=True), x)
    assert np.array_equal(hadamard.random_hadamard(x.T, axis=0), transformed.T)
    with pytest.raises(InputError, match="multiple of 16"):
        hadamard.random_hadamard(x[:, :20])


@pytest.mark.parametrize(("rows", "blocks"), [(1, 1), (128, 4), (130, 5), (300, 9)])
def test_layouts_and_their_inverses(rows: int, blocks: int) -> None:
    scales = np.random.default_rng(2).integers(1, 255, (rows, blocks), np.uint8)
    flat = scale_layouts.swizzled(scales)
    along = -(-blocks // 4)
    for row in range(rows):
        for block in range(blocks):
            tile = block // 4 + row // 128 * along
            at = tile * 512 + row % 32 * 16 + row % 128 // 32 * 4 + block % 4
            assert flat[at] == scales[row, block]
    assert np.array_equal(scale_layouts.unswizzled(flat, rows, blocks), scales)
    assert np.array_equal(scale_layouts.from_vec128(scale_layouts.vec128(scales), rows, blocks), scales)
    assert np.array_equal(scale_layouts.from_blk128(scale_layouts.blk128(scales), rows, blocks), scales)
    assert scale_layouts.vec128(scales)[:rows].tolist() == scales[:, 0].tolist()
    assert len(scale_layouts.blk128(scales)) == rows * along * 4
    for inverse in (scale_layouts.unswizzled, scale_layouts.from_vec128, scale_layouts.from_blk128):
        with pytest.raises(InputError, match="allowed"):
            inverse(flat[:-1], rows, blocks)


@pytest.mark.parametrize(
    "options",
    [
        {"scheme": "mxfp5"},
        {"scheme": "nvfp4", "rule": "floor"},
        {"scheme": "mxfp4", "element": "e4m3"},
        {"scheme": "mxfp8", "axis": 0},
        {"scheme": "mxfp8", "two_level": True},
        {"scheme": "mxfp8", "power_of_two": True},
        {"scheme": "nvfp4", "rule": "te", "two_level": False},
        {"scheme": "mxfp8", "rounding": "up"},
    ],
)
def test_what_does_not_fit_is_said(options: dict[str, object]) -> None:
    with pytest.raises(InputError, match=r"allowed|leave it out"):
        hwsim.quantize(np.ones((2, 32), F32), **options)  # type: ignore[arg-type]


def test_gfloat_rounds_all_elements_alike() -> None:
    gfloat = pytest.importorskip("gfloat")
    formats = pytest.importorskip("gfloat.formats")
    rng = np.random.default_rng(9)
    values = (rng.standard_normal(4000) * np.exp2(rng.integers(-8, 8, 4000))).astype(F32)
    for element, info in (
        ("e4m3", formats.format_info_ocp_e4m3),
        ("e5m2", formats.format_info_ocp_e5m2),
        ("e2m3", formats.format_info_ocp_e2m3),
        ("e3m2", formats.format_info_ocp_e3m2),
        ("e2m1", formats.format_info_ocp_e2m1),
    ):
        codes = np.arange(1 << FORMATS[element].bits, dtype=np.uint8)
        ours = hwsim.format_arrays.decode(codes, element)
        theirs = np.array([gfloat.decode_float(info, int(code)).fval for code in codes])
        assert np.array_equal(ours.astype(np.float64), theirs, equal_nan=True)
        rounded = hwsim.format_arrays.round(values, element, overflow="saturate")
        assert np.array_equal(rounded, [gfloat.round_float(info, float(x), sat=True) for x in values])
    ours = hwsim.format_arrays.decode(np.arange(256, dtype=np.uint8), "ue8m0").astype(np.float64)
    theirs = [gfloat.decode_float(formats.format_info_ocp_e8m0, code).fval for code in range(256)]
    assert np.array_equal(ours, theirs, equal_nan=True)


@pytest.mark.parametrize("element", ELEMENTS)
def test_gfloat_quantizes_blocks_by_floor_alike(element: str) -> None:
    """Elements times scales of MXFP8, MXFP6 and MXFP4, of amax of every exponent from 2^-100 on."""
    gfloat = pytest.importorskip("gfloat")
    info = getattr(pytest.importorskip("gfloat.formats"), f"format_info_ocp_{element}")
    scheme = {8: "mxfp8", 6: "mxfp6", 4: "mxfp4"}[FORMATS[element].bits]
    exponents = np.arange(-100, 126)[:, None]
    x = np.ldexp(np.random.default_rng(7).uniform(-2, 2, (len(exponents), 32)), exponents).astype(F32)
    x[::50, 3] = 0
    ours = hwsim.dequantize(hwsim.quantize(x, scheme, rule="floor", element=element)).astype(np.float64)
    for mine, block in zip(ours, x.astype(np.float64), strict=True):
        scale = gfloat.compute_scale_amax(info.emax, block)
        assert np.array_equal(
            mine, [gfloat.round_float(info, float(value), sat=True) * scale for value in block / scale]
        )


@pytest.mark.parametrize("rule", ["floor", "ceil", "even", "rceil"])
def test_torchao_quantizes_mx_alike(rule: str) -> None:
    """All scales and elements, of finite amax of every exponent; but for torchao's divisor, at least 2^-126."""
    torch = pytest.importorskip("torch")
    mx_tensor = pytest.importorskip("torchao.prototype.mx_formats.mx_tensor")
    mode = mx_tensor.ScaleCalculationMode[rule.upper()]
    rng = np.random.default_rng(4)
    exponents = np.repeat(np.arange(-100, 126), 8)
    x = np.ldexp(rng.uniform(-2, 2, (len(exponents), 32)), exponents[:, None]).astype(F32)
    x[::50, 3] = 0
    for element, dtype in (("e4m3", torch.float8_e4m3fn), ("e5m2", torch.float8_e5m2)):
        scales, elements = mx_tensor.to_mx(torch.from_numpy(x), dtype, 32, mode)
        ours = hwsim.quantize(x, "mxfp8", rule=rule, element=element)
        differ = ours.scales != scales.view(torch.uint8).numpy()
        if rule == "rceil":  # its ceil(log2(x)) is of a logarithm in fp32, which rounds beside powers of two
            assert differ.mean() < 0.02
        else:
            assert not differ.any()
        same = ~differ[:, 0] & (ours.scales[:, 0] > 1)
        assert np.array_equal(ours.codes[same], elements.view(torch.uint8).numpy()[same])


@pytest.mark.parametrize("two_level", [False, True])
def test_torchao_quantizes_nvfp4_alike(two_level: bool) -> None:
    torch = pytest.importorskip("torch")
    nvfp4 = pytest.importorskip("torchao.prototype.mx_formats.nvfp4_tensor")
    rng = np.random.default_rng(6)
    x = (rng.standard_normal((64, 256)) * np.exp2(rng.integers(-6, 6, (64, 1)))).astype(F32)
    tensor = torch.from_numpy(x)
    factor = nvfp4.per_tensor_amax_to_scale(tensor.abs().max()) if two_level else None
    scales, packed = nvfp4.nvfp4_quantize(tensor, 16, factor)
    ours = hwsim.quantize(x, "nvfp4", rule="torchao", two_level=two_level)
    assert np.array_equal(ours.scales, scales.view(torch.uint8).numpy().reshape(ours.scales.shape))
    codes = packed.view(torch.uint8).numpy().reshape(64, 128)
    assert np.array_equal(ours.codes, np.stack([codes & 15, codes >> 4], -1).reshape(64, 256))
    assert (ours.factor is None) == (not two_level)
    assert ours.factor is None or ours.factor == factor.numpy()


def test_torchao_s_own_rule() -> None:
    """Its floor, with scales of infinities and zeros; elements of blocks that are NaN say nothing."""
    torch = pytest.importorskip("torch")
    mx_tensor = pytest.importorskip("torchao.prototype.mx_formats.mx_tensor")
    draw = np.random.default_rng(4)
    x = np.ldexp(draw.uniform(-2, 2, (500, 32)), draw.integers(-140, 127, 500)[:, None]).astype(F32)
    x[3, 3], x[4, 4], x[5] = np.inf, np.nan, 0
    mode = mx_tensor.ScaleCalculationMode.FLOOR
    scales, elements = mx_tensor.to_mx(torch.from_numpy(x), torch.float8_e4m3fn, 32, mode)
    ours = hwsim.quantize(x, "mxfp8", rule="torchao")
    assert np.array_equal(ours.scales, scales.view(torch.uint8).numpy())
    is_number = ours.scales[:, 0] != 255
    assert is_number.sum() == len(x) - 1
    assert np.array_equal(ours.codes[is_number], elements.view(torch.uint8).numpy()[is_number])


@pytest.mark.parametrize("rule", ["floor", "ceil", "even", "torchao"])
def test_torchao_quantizes_mxfp4_alike(rule: str) -> None:
    torch = pytest.importorskip("torch")
    mx_tensor = pytest.importorskip("torchao.prototype.mx_formats.mx_tensor")
    draw = np.random.default_rng(5)
    x = np.ldexp(draw.uniform(-2, 2, (500, 32)), draw.integers(-100, 126, 500)[:, None]).astype(F32)
    mode = mx_tensor.ScaleCalculationMode["FLOOR" if rule == "torchao" else rule.upper()]
    scales, packed = mx_tensor.to_mx(torch.from_numpy(x), torch.float4_e2m1fn_x2, 32, mode)
    ours = hwsim.quantize(x, "mxfp4", rule=rule)
    assert np.array_equal(ours.scales, scales.view(torch.uint8).numpy())
    codes = packed.view(torch.uint8).numpy()
    assert np.array_equal(ours.codes, np.stack([codes & 15, codes >> 4], -1).reshape(x.shape))


def test_torchao_lays_scales_out_alike() -> None:
    torch = pytest.importorskip("torch")
    utils = pytest.importorskip("torchao.prototype.mx_formats.utils")
    scales = np.random.default_rng(3).integers(0, 256, (300, 9), dtype=np.uint8)
    theirs = utils.to_blocked(torch.from_numpy(scales)).numpy()
    assert np.array_equal(scale_layouts.swizzled(scales).reshape(-1), theirs.reshape(-1))


def test_torchao_s_float8_scales() -> None:
    torch = pytest.importorskip("torch")
    utils = pytest.importorskip("torchao.float8.float8_utils")
    x = np.random.default_rng(8).standard_normal((40, 64)).astype(F32)
    amax = torch.from_numpy(x).abs().amax(1, keepdim=True)
    for power_of_two in (False, True):
        scale = utils.amax_to_scale(amax, torch.float8_e4m3fn, power_of_two)
        ours = hwsim.quantize(x, "fp8-row", rule="torchao", power_of_two=power_of_two)
        assert np.array_equal(ours.scales, scale.reciprocal().numpy())
        elements = utils.to_fp8_saturated(torch.from_numpy(x) * scale, torch.float8_e4m3fn)
        assert np.array_equal(ours.codes, elements.view(torch.uint8).numpy())
