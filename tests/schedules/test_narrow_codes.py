"""Codes of 4 and 6 bits with more bits, wherever operands enter: refused by name."""

import ml_dtypes
import numpy as np
import pytest
from command_line import cli, refused  # noqa: F401

import hwsim
from hwsim.devices import instruction
from hwsim.errors import InputError
from hwsim.format_arrays import decode

FP4 = "tcgen05.mma.m64n8k32.f8f6f4.f32.e2m1.e2m1"
WIDE = "0x1[0-9a-f] at .*is no code of e2m1, which has 4 bits"


@pytest.fixture
def operands():
    """Codes of e2m1: A, B, and A with a fifth bit in one element."""
    rng = np.random.default_rng(2)
    a, b = rng.integers(0, 16, (5, 64), np.uint8), rng.integers(0, 16, (64, 3), np.uint8)
    wide = a.copy()
    wide[4, 63] |= 16
    return a, b, wide


@pytest.mark.parametrize(
    "call",
    [
        lambda a, b: hwsim.matmul(a, b, device="b200", input_format="e2m1"),
        lambda a, b: hwsim.matmul(b.T, a.T, device="b200", format="e2m1"),
        lambda a, b: hwsim.run(a, b, device="b200", input_format="e2m1,e4m3"),
        lambda a, b: hwsim.run(np.stack([a, a]), b, device="b200", input_format="e2m1"),
        lambda a, b: hwsim.run(*(x.view(ml_dtypes.float4_e2m1fn) for x in (a, b)), device="b200"),
        lambda a, b: hwsim.diff(a, b, hwsim.Variant(device="b200"), hwsim.Variant(device="gb200"), input_format="e2m1"),
        lambda a, b: decode(a, "e2m1"),
        lambda a, b: hwsim.matmul(
            a, b, device="b200", input_format="e2m1", **dict(zip(("scale_a", "scale_b"), scales(a, b), strict=True))
        ),
    ],
)
def test_a_wide_code_is_refused_where_the_narrow_one_is_taken(operands, call):
    a, b, wide = operands
    call(a, b)
    with pytest.raises(InputError, match=WIDE):
        call(wide, b)


def scales(a, b):
    """Codes of ue4m3, all one, for each 16 elements of K."""
    return np.full((len(a), 4), 0x38, np.uint8), np.full((b.shape[1], 4), 0x38, np.uint8)


def test_packed_bytes_are_refused_and_the_message_unpacks_them(operands):
    a, b, _ = operands
    packed_a, packed_b = a[:, ::2] | a[:, 1::2] << 4, b[::2] | b[1::2] << 4
    with pytest.raises(InputError, match=r"A: 0x.* allowed: a byte for each element, .* unpacks two in a byte"):
        hwsim.matmul(packed_a, packed_b, device="b200", input_format="e2m1")
    unpacked = [np.stack([x & 15, x >> 4], -1).reshape(*x.shape[:-1], -1) for x in (packed_a, packed_b.T)]
    assert np.array_equal(unpacked[0], a) and np.array_equal(unpacked[1].T, b)


def test_an_instruction_names_the_operand():
    model, chip = instruction(hwsim.device("b200"), FP4), hwsim.device("b200")
    a, b = np.full((model.m, model.k), 2, np.uint8), np.full((model.k, model.n), 2, np.uint8)
    c, wide = np.zeros((model.m, model.n), np.uint32), b.copy()
    wide[3, 1] = 0x12
    chip.mma(FP4, a, b, c)
    with pytest.raises(InputError, match=rf"{FP4}: b: 0x12 at \[3, 1\] is no code of e2m1"):
        chip.mma(FP4, a, wide, c)
    with pytest.raises(InputError, match=r"b: 0x12 at \[3\] is no code of e2m1"):
        hwsim.explain(chip, FP4, a[0], wide[:, 1], np.zeros(1, np.uint32))


def test_files_and_numbers_of_a_command(cli, refused, operands, tmp_path):  # noqa: F811
    a, b, wide = operands
    for name, array in (("a", a), ("b", b), ("wide", wide)):
        np.save(tmp_path / f"{name}.npy", array)
    call = ("run", "--device", "b200", "--input-format", "e2m1", "-q", "--no-timing", "--b", tmp_path / "b.npy", "--a")
    assert cli(*call, tmp_path / "a.npy").code == 0
    assert "error: A: 0x1" in refused(*call, tmp_path / "wide.npy")
    assert "0x12 does not fit the 4 bits of e2m1" in refused("mma", "b200", FP4, "--a", "0x12", "--b", "0x2")


def test_a_dtype_that_numpy_lacks_is_refused_by_name():
    torch = pytest.importorskip("torch")
    packed = torch.zeros(4, 16, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    for x in (packed, torch.zeros(4, 4, dtype=torch.bfloat16), torch.zeros(4, 4, requires_grad=True)):
        with pytest.raises(InputError, match=f"A of {x.dtype}: NumPy makes no array of it .*input_format="):
            hwsim.matmul(x, x, device="b200")
    x = torch.arange(16, dtype=torch.float32).reshape(4, 4).to(torch.bfloat16)
    codes = x.detach().view(torch.uint16)
    found = hwsim.matmul(codes, codes, device="b200", input_format="bf16", format="bf16")
    assert found.tolist() == (x.float() @ x.float()).tolist()
