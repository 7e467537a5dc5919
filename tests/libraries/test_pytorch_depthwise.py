"""Which depthwise convolutions PyTorch's own kernel computes: ConvParams::use_cudnn_depthwise of ATen, case by case."""

import pytest

from hwsim.gemm.convolution import conv_shape
from hwsim.libraries.pytorch.depthwise import own_depthwise

H100 = ("h100", "sm90", 132)
#: (batch, channels, height, width), filter, strides, whether cuDNN takes it; fp16, channel by channel.
CASES = [
    ((2, 32, 14, 14), (3, 3), (1, 1), True),
    ((2, 31, 14, 14), (3, 3), (1, 1), False),
    ((2, 32, 14, 14), (5, 5), (1, 1), True),
    ((2, 32, 14, 14), (7, 7), (1, 1), False),
    ((2, 32, 14, 14), (2, 2), (1, 1), False),
    ((2, 32, 14, 14), (3, 1), (1, 1), False),
    ((2, 32, 7, 7), (3, 3), (1, 1), True),
    ((2, 32, 7, 6), (3, 3), (1, 1), False),
    ((2, 32, 6, 7), (3, 3), (1, 1), True),
    ((2, 32, 14, 14), (3, 3), (1, 2), False),
    ((1, 32, 14, 14), (3, 3), (3, 3), False),
    ((1, 32, 1, 5), (1, 7), (1, 1), True),  # lines of any filter
    ((1, 32, 1, 50), (1, 7), (1, 2), False),
    ((1, 32, 1, 50), (1, 1), (1, 2), False),
    ((1, 32, 1, 28), (1, 1), (1, 2), True),
    ((1, 32, 29, 29), (1, 1), (2, 2), False),
    ((1, 32, 28, 28), (1, 1), (2, 2), True),
    ((1, 32, 200, 200), (3, 3), (2, 2), True),
    ((2, 511, 14, 14), (3, 3), (2, 2), False),
    ((2, 512, 14, 14), (3, 3), (2, 2), True),
    ((2, 256, 28, 27), (5, 5), (2, 2), False),
    ((2, 256, 28, 28), (5, 5), (2, 2), True),
    ((2, 255, 28, 28), (5, 5), (2, 2), False),
    ((16, 128, 7, 7), (1, 1), (2, 2), True),
    ((17, 128, 7, 7), (1, 1), (2, 2), False),
    ((16, 127, 7, 7), (1, 1), (2, 2), False),
    ((16, 128, 7, 8), (1, 1), (2, 2), False),
]


def rules(image, window, stride, operand="fp16", dilation=1, is_nchw=True, chip=H100, direction="forward"):
    channels = image[1]
    shape = conv_shape(image, (channels, 1, *window), stride=stride, padding=3, dilation=dilation, groups=channels)
    return own_depthwise(chip, image, channels, shape, operand, direction, is_nchw=is_nchw)


@pytest.mark.parametrize(("image", "window", "stride", "is_cudnns"), CASES)
def test_the_table_of_workloads(image, window, stride, is_cudnns):
    assert (rules(image, window, stride) is None) == is_cudnns
    assert rules(image, window, stride, "bf16") is not None and rules(image, window, stride, "fp32") is not None
    assert rules(image, window, stride, "bf16", is_nchw=False) is None  # cuDNN's
    assert rules(image, window, stride, "fp64", is_nchw=False) is not None  # whose storage order does not count


def test_other_conditions():
    image = (2, 32, 14, 14)
    assert rules(image, (3, 3), (1, 1), dilation=2) is not None
    assert rules(image, (3, 3), (1, 1), "fp32", chip=("mi300x", "cdna", 304)) is None
    shape = conv_shape(image, (32, 2, 3, 3), stride=1, padding=1, dilation=1, groups=16)
    assert own_depthwise(H100, image, 16, shape, "fp32", "forward", is_nchw=True) is None  # not depthwise
    volume = own_depthwise(H100, (2, 32, 9, 9, 9), 32, None, "fp16", "forward", is_nchw=True)
    assert volume is not None and not volume.begins_with_bias and "3d" in volume.kernel
    assert volume.skips_padding and rules((2, 8, 9, 9), (3, 3), (1, 1), direction="backward_input").skips_padding
    back = own_depthwise(H100, (2, 32, 9, 9, 9), 32, None, "fp16", "backward_input", is_nchw=True)
    assert back is not None and not back.skips_padding  # it multiplies zeros


@pytest.mark.parametrize(("direction", "is_known"), [("forward", 1), ("backward_input", 1), ("backward_weight", 0)])
def test_what_is_known_is_an_assumption(direction, is_known):
    found = rules((2, 8, 9, 9), (3, 3), (1, 1), "fp32", direction=direction)
    choice = found.choose(None)
    assert choice.known == bool(is_known) and choice.order_evidence == "assumption"
    assert rules((2, 8, 9, 9), (3, 3), (1, 1), "fp64").is_known is False
