"""Times of convolutions: the GEMM's, but for the traffic of an image in place of its im2col matrix."""

from __future__ import annotations

from typing import Any

import pytest

import hwsim
from hwsim.errors import InputError, UnsupportedError
from hwsim.gemm.convolution import conv_of

DEVICES = ("a100", "v100", "h200", "mi210", "b200")
SIZES = {"batch": 8, "channels": 64, "height": 28, "width": 28, "filters": 64, "r": 3, "s": 3, "padding": 1}
LARGE = SIZES | {"batch": 64, "height": 56, "width": 56}
FP32 = {"format": "fp16", "input_format": "fp32"}  # rounded by a pass


def convolved(device: str, sizes: dict[str, Any], **options: Any) -> hwsim.Result:
    return hwsim.run(conv=sizes, device=device, exact=False, **options)


def plain(device: str, sizes: dict[str, Any], **options: Any) -> hwsim.Result:
    m, n, k = conv_of(sizes).gemm
    return hwsim.run(m=m, n=n, k=k, device=device, exact=False, **options)


@pytest.mark.parametrize("device", DEVICES)
def test_windows_of_one_pixel_are_the_gemm(device: str) -> None:
    sizes = SIZES | {"r": 1, "s": 1, "padding": 0}
    for options in ({"format": "fp16"}, FP32):
        found, gemm = convolved(device, sizes, **options), plain(device, sizes, **options)
        assert (found.cycles, found.traffic_bytes, found.phases) == (gemm.cycles, gemm.traffic_bytes, gemm.phases)


@pytest.mark.parametrize("device", DEVICES)
def test_the_image_is_read_and_not_its_windows(device: str) -> None:
    """From HBM with an empty L2 the image, the filters: each once, as L2 holds both."""
    options: dict[str, Any] = {"format": "fp16", "l2": "cold"}
    sizes = SIZES | {"batch": 16}
    found, gemm = convolved(device, sizes, **options), plain(device, sizes, **options)
    image, filters = 16 * 28 * 28 * 64 * 2, 576 * 64 * 2
    assert found.traffic_bytes["HBM read"] == image + filters
    assert gemm.traffic_bytes["HBM read"] >= 9 * image
    assert found.traffic_bytes["L2 read"] == gemm.traffic_bytes["L2 read"]
    assert found.macs == gemm.macs


def test_passes_go_over_the_image() -> None:
    found, gemm = convolved("a100", LARGE, scheme="ape-fp32-f"), plain("a100", LARGE, scheme="ape-fp32-f")
    one, other = ({x["name"]: x["cycles"] for x in result.phases} for result in (found, gemm))
    assert 6 * one["split_a"] < other["split_a"] and one["split_b"] <= other["split_b"] * 1.1
    assert found.cycles is not None and gemm.cycles is not None and found.cycles < gemm.cycles


def test_unread_pixels_stay_where_they_are() -> None:
    sizes = SIZES | {"r": 1, "s": 1, "padding": 0, "stride": 2, "batch": 16}
    assert conv_of(sizes).image is not None
    found = convolved("a100", sizes, format="fp16", l2="cold")
    assert found.traffic_bytes["HBM read"] == 16 * 14 * 14 * 64 * 2 + 64 * 64 * 2


def test_groups_are_a_stack() -> None:
    sizes = SIZES | {"groups": 4}
    found = convolved("a100", sizes, format="fp16", l2="cold")
    assert (found.m, found.n, found.k) == (8 * 28 * 28, 16, 144)
    image, filters = 8 * 28 * 28 * 64 * 2, 64 * 144 * 2
    assert found.traffic_bytes["HBM read"] == image + filters
    assert found.macs["useful"] == 64 * 144 * 8 * 28 * 28
    alone = convolved("a100", SIZES | {"channels": 16, "filters": 16}, format="fp16", l2="cold")
    assert alone.cycles is not None and found.cycles is not None and alone.cycles < found.cycles < 4 * alone.cycles


def test_the_record_runs_again() -> None:
    found = convolved("a100", SIZES, scheme="ape-fp32-f")
    again = hwsim.run(gemm=found.gemm.to_dict(), exact=False)
    assert again.cycles == found.cycles and again.gemm.digest == found.gemm.digest
    assert found.gemm.digest != plain("a100", SIZES, scheme="ape-fp32-f").gemm.digest
    with pytest.raises(InputError, match="of a convolution"):
        hwsim.run(gemm=found.gemm.to_dict())


@pytest.mark.parametrize(
    ("sizes", "options", "said"),
    [
        ({"r": 0}, {}, "r = 0"),
        ({"r": 40}, {}, "do not fit"),
        ({"groups": 5}, {}, "groups divide"),
        ({"channels": 6, "filters": 6, "groups": 4}, {}, "groups"),
        ({"width": None}, {}, "width = None"),
        ({"stride": 0}, {}, "stride = 0"),
        ({"pad": 1}, {}, "conv has no 'pad'"),
        ({}, {"m": 8}, "m: not beside conv"),
        ({}, {"exact": True}, "for cycles alone"),
        ({}, {"scheme": "auto", "error_target": 1e-6}, "name a scheme beside conv"),
    ],
)
def test_what_does_not_fit(sizes: dict[str, Any], options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        hwsim.run(**{"conv": SIZES | sizes, "device": "a100", "exact": False} | options)


def test_a_library_without_convolutions_refuses_them() -> None:
    with pytest.raises(UnsupportedError, match="library = 'cublas' has no convolutions: PyTorch calls cuDNN"):
        hwsim.run(conv=SIZES, device="h100", library="cublas", exact=False)


def test_what_is_missing() -> None:
    with pytest.raises(InputError, match="conv lacks height, width"):
        hwsim.run(conv={"channels": 3, "filters": 8, "r": 3, "s": 3}, device="a100", exact=False)
    with pytest.raises(InputError, match="allowed: a mapping"):
        hwsim.run(conv=(1, 2), device="a100", exact=False)
    with pytest.raises(UnsupportedError, match="no programs of convolutions"):
        convolved("ascend910a", SIZES, format="fp16")
    with pytest.raises(UnsupportedError, match="a_layout=rows"):
        convolved("a100", SIZES, format="fp16", a_layout="columns")
    with pytest.raises(InputError, match="conv: not for a convolution"):
        hwsim.conv2d([[[[1.0]]]], [[[[1.0]]]], device="a100", conv=SIZES)
