"""`hwsim explain`: every model's stages, their consistency, and what it says of captured elements."""

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import hwsim
from hwsim.devices import dot_spec, example, instruction, names
from hwsim.formats import decode, format_of
from hwsim.numerics.dot_operands import DotOperands
from hwsim.operands.code_draws import draw
from hwsim.operands.matrix_product import MatrixProduct
from hwsim.report.explain import explain
from hwsim.report.text.explain_text import binary, explain_text
from hwsim.report.text.number_text import decimal, hex_float

GOLDEN = Path(__file__).parents[1] / "golden"
WGMMA = "wgmma.m64n8k16.f32.f16.f16"
#: One instruction of every model, and of fused ones with peculiarities.
EXAMPLES = [
    ("h200", WGMMA),
    ("h200", "wgmma.m64n8k16.f16.f16.f16"),
    ("h200", "wgmma.m64n8k32.f32.e4m3.e4m3"),
    ("h200", "mma.m16n8k32.f32.e4m3.e5m2.f32"),
    ("h200", "mma.m8n8k4.f64.f64.f64.f64"),
    ("a100", "mma.m16n8k8.f32.tf32.tf32.f32"),
    ("a100", "mma.m16n8k32.s32.s8.u8.s32"),
    ("a100", "mma.m16n8k32.satfinite.s32.s8.u8.s32"),
    ("mi100", "v_mfma_f32_32x32x8f16"),
    ("mi210", "v_mfma_f32_32x32x8f16"),
    ("mi300x", "v_mfma_f32_16x16x32_fp8_bf8"),
    ("mi300x", "v_mfma_f32_16x16x16_f16"),
    ("ascend910a", "mmad.m16n16k16.f32.f16.f16"),
    ("ascend910b3", "mmad.m16n16k8.f32.hf32.hf32"),
    ("b200", "tcgen05.mma.m128n8k32.mxf8f6f4.f32.e4m3.e2m1"),
    ("b200", "tcgen05.mma.m128n8k64.mxf4nvf4.f32.e2m1.e2m1.ue4m3.block16"),
]


def operands(device, name, distribution, seed=1):
    """Codes of one dot product, with scales where they are needed."""
    model = instruction(device, name)
    one = MatrixProduct(name, 1, 1, model.k, model.a, model.b, model.c, model.d)
    a, b, c = draw(distribution, np.random.default_rng(seed), one, 1)
    scales = {}
    if model.scale_format:
        near = 0x38 if model.scale_format == "ue4m3" else 126
        blocks = model.k // model.scale_block
        scales = {"scale_a": [near + i for i in range(blocks)], "scale_b": [near] * blocks}
    return a[0, 0].tolist(), b[0, 0].tolist(), int(c[0, 0, 0]), scales


@pytest.mark.parametrize(("name", "instruction_name"), EXAMPLES)
@pytest.mark.parametrize("distribution", ["narrow", "cancel", "anybits", "subnormal"])
def test_the_stages_of_every_model(name, instruction_name, distribution):
    device = hwsim.device(name)
    a, b, c, scales = operands(device, instruction_name, distribution)
    record = explain(device, instruction_name, DotOperands(a, b, c, **scales))
    text = explain_text(record)
    assert json.loads(json.dumps(record)) == record
    assert f"{record['result']['code']} = " in text or f"{record['result']['code']}  " in text
    spec = dot_spec(device, instruction_name)
    check_exact(record, a, b, spec)
    assert record["steps"][-1]["result"]["code"] == record["result"]["code"]
    for step in record["steps"]:
        for operand in step["operands"]:
            assert decode(format_of(spec.a), int(operand["a"]["code"], 16)).kind == operand["a"]["kind"]
        check_arithmetic(step)


def exact(number):
    """The value of a record's `exact`."""
    significand, _, exponent = number["exact"].partition(" * 2^")
    return Fraction(int(significand)) * Fraction(2) ** int(exponent)


def check_exact(record, a, b, spec):
    """The exact value is the sum of the products of all steps, and the difference is from it to the result."""
    start = record["steps"][0]["accumulator"]
    words = any("words rounded" in note for note in record["notes"])  # the exact sum is of the words as they are given
    left, right = (
        [decode(format_of("fp32" if words else fmt), int(code)) for code in codes]
        for codes, fmt in ((a, spec.a), (b, spec.b))
    )
    if start["kind"] != "finite" or any(value.kind != "finite" for value in (*left, *right)):
        assert record["exact"] is None
        return
    scales = [block for step in record["steps"] for block in step["scales"] or ()]
    size = len(left) // len(scales) if scales else 0
    total = exact(start) / (1 << record["scale_d"])
    for k, (x, y) in enumerate(zip(left, right, strict=True)):
        factor = exact(scales[k // size]["a"]) * exact(scales[k // size]["b"]) if scales else 1
        total += x.fraction * y.fraction * factor
    said, result = record["exact"], record["result"]
    read = int if record["formats"]["d"] == "int32" else from_hex
    assert read(said["hex"]) == total
    if result["kind"] != "finite":
        assert said["difference"] is None
        return
    difference = exact(result) - total
    assert (Fraction(0) if said["difference"] == "0" else read(said["difference"])) == difference
    assert explain_text(record).splitlines()[-1].strip().startswith("exact ")


def check_arithmetic(step):
    """The numbers of one step fit together: the products, what was kept and dropped, the sum, the rounding."""
    for part in step.get("parts", []):
        check_arithmetic(part)
    for operand, product in zip(step["operands"], step.get("products", []), strict=step["model"] != "composite"):
        if product["kind"] == "finite" and step["scales"] is None:
            factors = [from_hex(operand[x]["read_as"]) if operand[x]["read_as"] else exact(operand[x]) for x in "ab"]
            assert exact(product) == factors[0] * factors[1]
    total = step["sum"]
    if total is None:
        assert step["special"] and step["result"]["kind"] != "finite"
        return
    if "alignment" in step:
        alignment = step["alignment"]
        kept = sum(int(term["kept"] or 0) for term in alignment["terms"])
        assert str(kept) == total["units"] and alignment["last_place"] == total["last_place"]
        for term in alignment["terms"]:
            if term["kept"] is not None:
                assert term["shift"] == alignment["top_exponent"] - term["exponent"] >= 0
    if "rounding" in step and step["result"]["kind"] == "finite":
        lost = step["rounding"]["dropped"]
        assert (exact(total) == exact(step["result"])) == (lost is None)
        if lost is not None:
            assert Fraction(0) + exact(total) - exact(step["result"]) == from_hex(lost)


def from_hex(text):
    sign, text = (-1, text[1:]) if text[0] == "-" else (1, text)
    digits, _, exponent = text[2:].partition("p")
    whole, _, part = digits.partition(".")
    return sign * Fraction(int(whole + part, 16), 16 ** len(part)) * Fraction(2) ** int(exponent)


def test_text_of_one_fused_step(cli):
    done = cli("explain", "h200", WGMMA, "--a", "0x3c00,0.1", "--b", "v:-1,2", "--c", "0x1p-30")
    assert (done.code, done.err) == (0, "")
    for line in (
        "note         a[1] = 0.1 is not in fp16: rounded to nearest even to 0x2e66 = 0.0999755859375",
        "    1  0x2e66  0x1.998p-4  0.0999755859375  0x4000  0x1p+1   2   0x1.998p-3  1677312 * 2^-23         -3",
        "    k = 2 to 15: not given, +0",
        "  accumulator  0x30800000 = 0x1p-30 ~ 9.31322574615e-10",
        "  alignment    largest exponent 0 (of k = 0); kept down to 2^-25",
        "       1        -3      3  +00.0011001100110000000000000",
        "       c       -30     30  +00.0000000000000000000000000  0x1p-30 (lowest 28 places)",
        "  sum, exact   -0x1.99ap-1 = -0.800048828125",
        "  normalised   leading place 2^-1, fp32 ends at 2^-24",
        "  rounded      toward zero: nothing is dropped",
        "  result       0xbf4cd000 = -0x1.99ap-1 = -0.800048828125",
    ):
        assert line in done.out.splitlines()


def test_text_says_what_rounding_drops(cli):
    # 1 + 3 * 2^-12 in fp16: above half a last place, so up
    given = ["--a", "1,0x1.8p-11", "--b", "1,1"]
    text = cli("explain", "h200", "wgmma.m64n8k16.f16.f16.f16", *given).out
    assert "to nearest, ties to even: magnitude up; sum - result = -0x1p-12, 1/4 of the last place of fp16" in text
    text = cli("explain", "h200", "wgmma.m64n8k16.f16.f16.f16", "--a", "60000,60000", "--b", "60000,1").out
    assert "beyond the largest finite number" in text
    text = cli("explain", "h200", WGMMA, "--a", "inf,0", "--b", "0,1").out
    assert "special      nan: product k = 0 is nan" in text


def test_text_of_a_chain_of_integers(cli):
    given = ["--a", "127,1", "--b", "127,1", "--c", "0x7fffffff"]
    done = cli("explain", "a100", "mma.m16n8k32.s32.s8.s8.s32", *given)
    assert "wraps" in done.out and "k = 2 to 31: not given, +0" in done.out
    lines = done.out.splitlines()
    assert lines[-2] == f"result  0x80003f01 = {-(2**31) + 127 * 127}"
    assert lines[-1] == f"exact   {2**31 - 1 + 127 * 127 + 1}; result - exact = {-(2**32)}"
    assert "saturated" in cli("explain", "a100", "mma.m16n8k32.satfinite.s32.s8.s8.s32", *given).out


def test_scale_input_d(cli):
    given = ["--a", "1", "--b", "1", "--c", "1", "--scale-d", "3"]
    done = cli("explain", "b200", "tcgen05.mma.m64n8k16.f16.f32.f16.f16", *given)
    assert "accumulator  0x3f800000 = 0x1p+0 = 1, times 2^-3" in done.out
    assert done.out.rstrip().endswith("= 1.125; the result is exact")


def test_the_last_line_says_how_far_the_result_is_from_the_exact_product(cli):
    given = ["--a", "1,0x1p-12,0x1.8p-12,0x1.8p-13", "--b", "1,1,0x1p-12,0x1p-13"]
    last = cli("explain", "h200", WGMMA, *given).out.splitlines()[-1]
    assert last.endswith("result - exact = -0x1.ep-24, 15/16 of the last place of fp32")
    last = cli("explain", "h200", "wgmma.m64n8k16.f16.f16.f16", "--a", "60000,60000", "--b", "60000,1").out
    assert last.splitlines()[-1].endswith("; the result is infinity")


def test_json_is_the_record(cli):
    done = cli("explain", "h200", WGMMA, "--a", "0x3c00", "--b", "0x3c00", "--json")
    assert (done.code, done.err) == (0, "")
    assert done.json == explain(hwsim.device("h200"), WGMMA, DotOperands([0x3C00], [0x3C00], 0))
    assert done.json["schema"] == "hwsim.explain/1"


def test_captured_elements(cli, tmp_path):
    path = GOLDEN / "h200" / "instructions.npz"
    key = f"{WGMMA}/cancel"
    done = cli("explain", "--from", path, key, 1, 2, 3)
    assert (done.code, done.out.splitlines()[-1]) == (0, "captured     0xbc3fac00: the same")
    done = cli("explain", "a100", "--from", path, "mma.m16n8k16.f32.f16.f16.f32/cancel", 1, 2, 3, "--json")
    assert done.json["device"] == "a100" and "captured" in done.json


def test_a_captured_element_that_differs(cli, tmp_path):
    from hwsim.golden.format import Meta, read_sets, write_sets

    sets = list(read_sets(GOLDEN / "h200" / "instructions.npz", f"{WGMMA}/cancel"))
    sets[0].d[1, 2, 3] ^= 1
    write_sets(tmp_path / "planted.npz", sets, Meta("silicon", "h200"))
    done = cli("explain", "--from", "planted.npz", f"{WGMMA}/cancel", 1, 2, 3)
    assert (done.code, done.out.splitlines()[-1]) == (1, "captured     0xbc3fac01: DIFFERS")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "DEVICE and INSTRUCTION are needed"),
        (["h200", WGMMA], "--a and --b are needed"),
        (["h200", WGMMA, "--a", "1", "--b", "1,2"], "one K'"),
        (["h200", "wgmma.m64nNk16.f32.f16.f16", "--a", "1", "--b", "q"], "no operand"),
        (["--from", "none.npz", "x", 0, 0, 0], "no such file"),
        (["--from", GOLDEN / "h200" / "instructions.npz", "x/y", 0, 0, 0], "has no set 'x/y'"),
        (["--from", GOLDEN / "h200" / "instructions.npz", f"{WGMMA}/cancel", 99, 0, 0], "12 x 64 x 8"),
        (["--from", GOLDEN / "h200" / "instructions.npz", f"{WGMMA}/cancel", "a", 0, 0], "are integers"),
        (["--from", "none.npz", "x", 0, 0, 0, "--a", "1"], "--from brings the instruction"),
    ],
)
def test_bad_input(refused, words, said):
    assert said in refused("explain", *words)


def test_every_instruction_can_be_explained():
    seen = 0
    for name in ("b200", "mi300x", "ascend910b3", "v100"):
        device = hwsim.device(name)
        for key in device.instructions():
            one = example(device, key)
            a, b, c, scales = operands(device, one, "spread")
            if instruction(device, one).sparsity is not None:  # two of four elements, of 32-bit words one of two
                a = [code if k % 4 in (0, 2) else 0 for k, code in enumerate(a)]
            assert explain_text(explain(device, one, DotOperands(a, b, c, **scales)))
            seen += 1
    assert seen > 80 and {"b200", "v100"} <= {name for name, _ in names()}


def test_numbers_as_text():
    assert hex_float(0, 3, 0) == "0x1.8p+1"
    assert hex_float(1, 0x1999, -16) == "-0x1.999p-4"
    assert hex_float(1, 0, 5) == "-0x0p+0"
    assert float.fromhex(hex_float(0, 0x12345678912345, -40)) == 0x12345678912345 * 2.0**-40
    assert decimal(0, 1, -1) == "0.5" and decimal(1, 1, -24) == "~-5.96046447754e-8"
    assert decimal(0, 1, 20000) == "~2^20000" and decimal(0, 1, 100).startswith("~1.26765060023e30")
    assert binary(-5, 2, 2) == "-01.01"


def test_a_last_place_is_of_a_named_format(cli):
    words = ("explain", "h100", "wgmma.m64n8k32.f32.e4m3.e4m3", "--a", "1,0.4375", "--b", "1.125,0.01", "--c", "1e-9")
    text = cli(*words).out
    places = [line.rpartition(" of the last place")[2] for line in text.splitlines() if " of the last place" in line]
    assert "rounded to nearest" not in places and places and set(places) <= {" of e8m13", " of fp32"}
