"""What a call with scales says of formats: elements as codes need one, and scales as codes get one from their shape."""

import numpy as np
import pytest
from command_line import cli  # noqa: F401

import hwsim
from hwsim.errors import InputError
from hwsim.formats import array_dtype, code_dtype, format_of

A, B = np.full((4, 64), 3, np.uint8), np.full((64, 3), 3, np.uint8)


def scales(blocks: int, code: int) -> dict[str, np.ndarray]:
    return {"scale_a": np.full((4, blocks), code, np.uint8), "scale_b": np.full((3, blocks), code, np.uint8)}


def test_elements_as_codes_need_their_format():
    call = {"device": "b200", **scales(2, 127)}
    with pytest.raises(InputError, match=r"^A has dtype uint8 and scales, but no format; give input_format="):
        hwsim.matmul(A, B, **call)
    typed = A.view(hwsim.quantize(np.zeros((1, 32), np.float32), "mxfp8").elements.dtype)
    with pytest.raises(InputError, match=r"^B has dtype uint8 and scales, but no format"):
        hwsim.matmul(typed, B, **call)
    for given in ({"input_format": "e4m3"}, {"format": "e4m3"}):
        assert hwsim.matmul(A, B, **call, **given).shape == (4, 3)


@pytest.mark.parametrize("name", ["fp32", "fp16", "e4m3"])
@pytest.mark.parametrize(
    "scaled",
    [
        {"tensor_scales": (2.0, 0.5)},
        {"scale_a": np.full((4, 1), 2, np.float32), "scale_b": np.ones((3, 1), np.float32)},
    ],
)
def test_codes_of_a_format_that_is_stated_are_taken_as_wide_as_it_is(name, scaled):
    rng, dtype = np.random.default_rng(1), array_dtype(format_of(name))
    a, b = (rng.standard_normal(shape).astype(dtype) for shape in ((4, 67), (67, 3)))
    call, codes = {"device": "h100", **scaled}, [x.view(code_dtype(format_of(name))) for x in (a, b)]
    stated, typed = hwsim.matmul(*codes, **call, input_format=name), hwsim.matmul(a, b, **call)
    assert (stated.view(np.uint32) == typed.view(np.uint32)).all()
    with pytest.raises(InputError, match=r"^A has dtype uint\d+ and scales, but no format"):
        hwsim.matmul(*codes, **call)


@pytest.mark.parametrize(("blocks", "code", "said"), [(4, 0x38, "1 x 16 of ue4m3"), (2, 127, "1 x 32 of ue8m0")])
def test_the_report_says_the_format_of_scales(cli, tmp_path, blocks, code, said):  # noqa: F811
    files = []
    for name, array in {"a": A, "b": B, **scales(blocks, code)}.items():
        np.save(tmp_path / f"{name}.npy", array)
        files += [f"--{name.replace('_', '-')}", tmp_path / f"{name}.npy"]
    report = " ".join(cli("run", "--device", "b200", "--input-format", "e2m1", "--no-timing", "-q", *files).out.split())
    assert f"A and B in e2m1, A's scales {said}, B's scales {said}, C in fp32" in report
