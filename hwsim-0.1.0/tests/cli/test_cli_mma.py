"""`hwsim mma`: arrays from files and single dot products give what the device gives."""

import ml_dtypes
import numpy as np
import pytest

import hwsim

WGMMA = "wgmma.m64n8k16.f32.f16.f16"
FP8 = "wgmma.m64n8k32.f32.e4m3.e4m3"
NVF4 = "tcgen05.mma.m128n8k64.mxf4nvf4.f32.e2m1.e2m1.ue4m3.block16"


@pytest.fixture
def files(tmp_path):
    """Two cases of the instruction as codes, saved; gives the arrays."""
    rng = np.random.default_rng(2)
    shapes = {"a": (2, 64, 16), "b": (16, 8), "c": (2, 64, 8)}
    arrays = {
        name: rng.integers(0, 1 << 16, shape).astype(np.uint16) & np.uint16(0xBFFF) for name, shape in shapes.items()
    }
    arrays["c"] = arrays["c"].astype(np.uint32) << np.uint32(16)
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    return arrays


def test_arrays_of_codes(cli, files, tmp_path):
    done = cli("mma", "h200", WGMMA, "--a", "a.npy", "--b", "b.npy", "--c", "c.npy", "--out", "d.npy")
    assert done.code == 0
    assert done.err == "hwsim: wrote d.npy: D, 2 x 64 x 8 uint32\n"
    d = np.load(tmp_path / "d.npy")
    assert d.dtype == np.uint32
    expected = hwsim.device("h200").mma(WGMMA, files["a"], files["b"], files["c"])
    np.testing.assert_array_equal(d, expected)
    assert f"d[0, 0, 1]  0x{expected[0, 0, 1]:08x}" in done.out


def test_json_has_every_code(cli, files):
    done = cli("mma", "h200", WGMMA, "--a", "a.npy", "--b", "b.npy", "--c", "c.npy", "--json")
    expected = hwsim.device("h200").mma(WGMMA, files["a"], files["b"], files["c"])
    assert (done.code, done.err) == (0, "")
    assert (done.json["shape"], done.json["dtype"]) == ([2, 64, 8], "uint32")
    assert [[[int(x, 16) for x in row] for row in case] for case in done.json["codes"]] == expected.tolist()


def test_typed_arrays_and_no_accumulator(cli, tmp_path):
    rng = np.random.default_rng(3)
    a = rng.standard_normal((64, 32)).astype(ml_dtypes.float8_e4m3fn)
    b = rng.standard_normal((32, 8)).astype(ml_dtypes.float8_e4m3fn)
    np.save(tmp_path / "a.npy", a)  # NumPy forgets the names of these types
    np.save(tmp_path / "b.npy", b)
    assert cli("mma", "h200", FP8, "--a", "a.npy", "--b", "b.npy", "--out", "d.npy").code == 0
    d = np.load(tmp_path / "d.npy")
    assert d.dtype == np.float32
    np.testing.assert_array_equal(d, hwsim.device("h200").mma(FP8, a, b, np.zeros((64, 8), np.float32)))


def test_one_dot_product(cli):
    done = cli("mma", "h200", WGMMA, "--a", "0x3c00,v:-2,0.5", "--b", "1,1,0x1p+1", "--c", "0x3f800000", "--json")
    assert done.code == 0
    assert done.json["result"] == {
        "code": "0x3f800000",
        "kind": "finite",
        "hex": "0x1p+0",
        "exact": "8388608 * 2^-23",
        "decimal": "1",
    }
    assert (done.json["notes"], done.json["k"]) == ([], 3)
    assert cli("mma", "h200", WGMMA, "--a", "1,-2,0.5", "--b", "1,1,2").out.startswith("0x00000000 = 0x0p+0 = 0\n")


def test_rounded_numbers_are_said(cli):
    done = cli("mma", "h200", WGMMA, "--a", "0.1", "--b", "1")
    assert "a[0] = 0.1 is not in fp16: rounded to nearest even to 0x2e66 = 0.0999755859375" in done.err
    assert done.out.startswith("0x3dccc000 = ")
    assert "infinity" in cli("mma", "h200", WGMMA, "--a", "1e9", "--b", "1").err
    assert cli("mma", "h200", WGMMA, "--a", "v:-inf", "--b", "1").out.startswith("0xff800000 = -infinity\n")


@pytest.mark.parametrize(
    ("word", "code"),
    [
        ("0x1.8p+1", 0x4200),
        ("-0x1p-24", 0x8001),
        ("-0", 0x8000),
        ("2049", 0x6800),  # a tie, to even
        ("2051", 0x6802),
        ("2049.0000000000000000000000001", 0x6801),
        ("0x1.0p-25", 0x0000),
        ("0x1.00001p-25", 0x0001),
        ("nan", 0x7E00),
        (".5e1", 0x4500),
    ],
)
def test_numbers_to_codes(word, code):
    from hwsim.cli.operands import read_list

    assert read_list("--a", word, "fp16").codes == [code]


def test_block_scales(cli):
    scales = ["--scale-a", "0x38,0x38,0x40,0x38", "--scale-b", "1,1,1,0.5"]
    done = cli("mma", "b200", NVF4, "--a", "0x2,0x7", "--b", "0x2,0x2", *scales)
    assert (done.code, done.out.splitlines()[0]) == (0, "0x40e00000 = 0x1.cp+2 = 7")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["h200", WGMMA], "--a and --b are needed"),
        (["h200", WGMMA, "--a", "x", "--b", "1"], "'x' is no operand of fp16"),
        (["h200", WGMMA, "--a", "0x10000", "--b", "1"], "0x10000 does not fit the 16 bits of fp16"),
        (["h200", WGMMA, "--a", "1,2", "--b", "1"], "one K'"),
        (["h200", WGMMA, "--a", ",".join("1" * 17), "--b", ",".join("1" * 17)], "at most 16"),
        (["h200", WGMMA, "--a", "1", "--b", "1", "--c", "1,2"], "one value is needed; got 2"),
        (["h200", WGMMA, "--a", "1", "--b", "1", "--out", "d.npy"], "--out is for arrays"),
        (["h200", WGMMA, "--a", "1", "--b", "1", "--scale-a", "1"], "takes no block scales"),
        (["h200", WGMMA, "--a", "1", "--b", "1", "--scale-d", "1"], "does not scale its accumulator"),
        (["h200", WGMMA, "--a", "1", "--b", "b.npy"], "do not mix"),
        (["h200", WGMMA, "--a", "none.npy", "--b", "none.npy"], "--a from none.npy: cannot read it"),
        (["h200", "wgmma.m64n9k16.f32.f16.f16", "--a", "1", "--b", "1"], "has no instruction"),
        (["h2000", WGMMA, "--a", "1", "--b", "1"], "no device 'h2000'"),
        (["b200", NVF4, "--a", "inf", "--b", "1"], "e2m1 has no infinity"),
        (["b200", NVF4, "--a", "1", "--b", "1"], "needs scale_a and scale_b"),
    ],
)
def test_bad_input(refused, words, said):
    assert said in refused("mma", *words)


def test_bad_files(refused, files, tmp_path):
    np.save(tmp_path / "flat.npy", files["a"][0, 0])
    np.save(tmp_path / "wide.npy", files["a"].astype(np.uint64))
    (tmp_path / "text.npy").write_text("no")
    np.savez(tmp_path / "archive", a=files["a"])
    (tmp_path / "archive.npz").rename(tmp_path / "archive.npy")
    assert "a (..., 64, 16) is needed" in refused("mma", "h200", WGMMA, "--a", "flat.npy", "--b", "b.npy")
    assert "uint64" in refused("mma", "h200", WGMMA, "--a", "wide.npy", "--b", "b.npy")
    assert "not a .npy file" in refused("mma", "h200", WGMMA, "--a", "text.npy", "--b", "b.npy")
    assert "an archive" in refused("mma", "h200", WGMMA, "--a", "archive.npy", "--b", "b.npy")
    np.save(tmp_path / "e5m2.npy", np.zeros((64, 16), ml_dtypes.float8_e5m2))  # a file that NumPy cannot read back
    assert "save codes" in refused("mma", "h200", WGMMA, "--a", "e5m2.npy", "--b", "b.npy")
    assert "no folder" in refused("mma", "h200", WGMMA, "--a", "a.npy", "--b", "b.npy", "--out", "no/d.npy")


@pytest.mark.parametrize("word", ["-1,2", "-.5,2", "-inf,1", "-0x1p3,1"])
def test_a_list_may_begin_with_a_minus(cli, word):
    words = ("mma", "h200", "wgmma.m64n8k16.f32.f16.f16", "--b", "1,2")
    apart, joined = cli(*words, "--a", word), cli(*words, f"--a={word}")
    assert (apart.code, apart.out) == (0, joined.out)
