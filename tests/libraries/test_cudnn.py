"""Library cudnn: orders of summation by kernels' names against an H100's results, choices as data, refusals."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from modern import operand, picked

import hwsim
from hwsim.devices import load
from hwsim.errors import InputError, UnsupportedError
from hwsim.frameworks.numpy.windows import im2col
from hwsim.gemm.convolution import ConvShape, conv_shape
from hwsim.gemm.schedule import Schedule
from hwsim.gemm.summation import Chain, Reduction
from hwsim.libraries.convolution_call import ConvolutionCall
from hwsim.libraries.cudnn.choices import KernelChoice, KernelForest, forest_of
from hwsim.libraries.cudnn.convolution_rules import BoundConvolution
from hwsim.libraries.cudnn.orders import order_key, schedule_of
from hwsim.libraries.cudnn.provider import CUDNN, convolution_library
from hwsim.libraries.kernel_choice import LibraryChoice
from hwsim.libraries.model.convolution_model import KernelSumsModel
from hwsim.libraries.on_device import LibraryOnDevice
from hwsim.libraries.protocol import LibraryRequest

GOLDEN = Path(__file__).parents[1] / "golden" / "h100_convolutions"
CAPTURES = np.load(GOLDEN / "captures.npz")
KERNELS = json.loads((GOLDEN / "kernels.json").read_text())
MOST_ELEMENTS = 200_000  # of the images, so that a test stays short
SHAPE = conv_shape((2, 64, 56, 56), (64, 64, 3, 3), padding=1)


@dataclass(frozen=True)
class Capture:
    """A key of the captures: fprop FORMAT BxCxHxW FILTERS RxS STRIDE PADDING DILATION GROUPS LAYOUT."""

    format: str
    shape: ConvShape

    @staticmethod
    def of(key: str) -> Capture:
        words = key.split()
        (b, c, h, w), (r, s) = (tuple(map(int, words[i].split("x"))) for i in (2, 4))
        filters, stride, padding, dilation, groups = (int(words[i]) for i in (3, 5, 6, 7, 8))
        more = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        return Capture(words[1], conv_shape((b, c, h, w), (filters, c // groups, r, s), **more))

    def operands(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Kept windows (rows, r, s, channels) and filters (columns, r, s, channels of a group), and the columns."""
        shape, wide = self.shape, 64 if self.format in ("bf16", "fp16") else 16
        x = operand(91, shape.batch * shape.height * shape.width, shape.channels, self.format)
        channels = shape.channels // shape.groups
        w = operand(92, shape.filters * shape.r * shape.s, channels, self.format)
        (top, left), (dy, dx), (gy, gx) = shape.padding, shape.stride, shape.dilation
        image = x.reshape(shape.batch, shape.height, shape.width, shape.channels)
        full = np.pad(image, ((0, 0), (top, top), (left, left), (0, 0)))
        rows = picked(shape.gemm[0], 128, 6)[:24]
        windows = []
        for row in rows:
            n, place = divmod(row, shape.out_height * shape.out_width)
            y, z = divmod(place, shape.out_width)
            windows.append(full[n, y * dy :: gy, z * dx :: gx][: shape.r, : shape.s])
        columns = picked(shape.filters, wide, 8)[:16]
        return np.stack(windows), w.reshape(shape.filters, shape.r, shape.s, channels)[columns], columns


def of_kernel(capture: Capture, name: str, tile_k: int, slices: int) -> np.ndarray:
    """The kept results, as the kernel of that name adds."""
    rules = CUDNN.on(LibraryRequest(device="h100"))
    call = ConvolutionCall(shape=capture.shape, format=capture.format)

    class Named(BoundConvolution):
        def choose(self, call: Any) -> Any:
            return LibraryChoice(
                family=name, kernel=name, operand=capture.format, tile_k=tile_k, split_k=slices, evidence="silicon"
            )

    library = LibraryOnDevice(Named(rules, call))
    windows, filters, columns = capture.operands()
    shape, output = capture.shape, capture.format if capture.format in ("bf16", "fp16") else "fp32"
    channels, per_group = shape.channels // shape.groups, shape.filters // shape.groups
    parts = []
    for group in sorted(set((columns // per_group).tolist())):
        a = windows[..., group * channels : (group + 1) * channels]
        b = filters[columns // per_group == group]
        if rules.row_of(name).k_order == "crs":
            a, b = np.moveaxis(a, 3, 1), np.moveaxis(b, 3, 1)
        a, b = (np.ascontiguousarray(x).reshape(len(x), -1) for x in (a, b))
        parts.append(hwsim.matmul(a, b.T, device="h100", library=library, format=capture.format, output=output))
    return np.concatenate(parts, axis=1)


@pytest.mark.parametrize("format", ["bf16", "fp16", "tf32", "fp32"])
def test_a_kernel_adds_as_on_an_h100(format: str) -> None:
    keys = [key for key in CAPTURES.files if key.split()[1] == format]
    keys = [key for key in keys if prod(map(int, key.split()[2].split("x"))) <= MOST_ELEMENTS]
    assert len(keys) > 30
    for key in keys:
        want = CAPTURES[key]
        got = of_kernel(Capture.of(key), *KERNELS[key])
        assert np.array_equal(got.view(want.dtype), want), (key, KERNELS[key])


def row(rule: str, **more: Any) -> KernelSumsModel:
    return KernelSumsModel.model_validate({"names": ("*",), "rule": rule, **more})


def test_blocks_of_channels_run_over_the_window_one_after_another() -> None:
    schedule = schedule_of(row("blocks"), 96, 9, 16, 64, 1)
    assert schedule is not None and isinstance(schedule.sum, Chain)
    spans = [span for part in schedule.sum.ranges for span in part.spans()]
    assert spans[:2] == [(0, 64), (96, 160)] and spans[9:11] == [(64, 96), (160, 192)] and len(spans) == 18


def test_few_channels_begin_an_instruction_with_each_element_of_the_window() -> None:
    schedule = schedule_of(row("blocks"), 3, 4, 16, 32, 1)
    assert schedule is not None and isinstance(schedule.sum, Chain)
    assert [span for part in schedule.sum.ranges for span in part.spans()] == [(0, 3), (3, 6), (6, 9), (9, 12)]


def test_slices_are_dealt_blocks_or_neighbours() -> None:
    dealt, segments = (schedule_of(row(rule), 256, 1, 8, 64, 2) for rule in ("dealt", "segments"))
    assert dealt is not None and segments is not None
    blocks = []
    for schedule in (dealt, segments):
        assert isinstance(schedule.sum, Reduction)
        chains = [chain for chain in schedule.sum.parts if isinstance(chain, Chain)]
        blocks.append([[span for part in chain.ranges for span in part.spans()] for chain in chains])
    assert blocks[0] == [[(0, 64), (128, 192)], [(64, 128), (192, 256)]]
    assert blocks[1] == [[(0, 64), (64, 128)], [(128, 192), (192, 256)]]
    assert schedule_of(row("unknown"), 256, 1, 8, 64, 1) is None
    assert schedule_of(row("in_order"), 256, 1, 8, 0, 1) == Schedule()


def test_every_call_has_a_kernel_and_votes_say_how_sure_it_is() -> None:
    rules = CUDNN.on(LibraryRequest(device="h100"))
    for format in ("bf16", "fp16", "tf32", "fp32"):
        for direction in ("forward", "backward_input", "backward_weight"):
            call = ConvolutionCall(shape=SHAPE, format=format, direction=direction)
            forest = forest_of(call, rules.kernels.choices.file)
            assert forest is not None
            assert 0.9 < sum(forest.votes(call).values()) < 1.001
            assert all(rules.row_of(kernel.name) for own in forest.kernels for kernel in own.values())
            choice = rules.choose(call)
            assert (choice.family, choice.evidence) == (rules.elected(call, forest)[2].name, "fitted")
            assert 0 < choice.confidence < 1
            assert rules.order(call, choice).known == (rules.row_of(choice.family).rule not in ("unknown", "one_tap"))


def test_votes_for_no_kernel_of_the_format_are_refused() -> None:
    rules = CUDNN.on(LibraryRequest(device="h100"))
    call = ConvolutionCall(shape=SHAPE, format="bf16")
    forest = forest_of(call, rules.kernels.choices.file)
    assert forest is not None
    none = replace(forest, kernels=tuple({} for _ in forest.kernels))
    with pytest.raises(
        UnsupportedError, match=r"forward of 2 x 64 x 56 x 56 by filters of 3 x 3 in bf16: .*leave library out"
    ):
        rules.elected(call, none)


def test_kernels_that_add_alike_share_their_votes() -> None:
    """Of few channels a chain of 32 and one of 64 are the same blocks; of many they are two orders."""
    rules = CUDNN.on(LibraryRequest(device="h100"))
    name = "sm90_xmma_fprop_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_segment_k_off"
    votes = {"implicit_convolve_sgemm": (0, 0.4), f"{name}": (64, 0.35), f"cutlass_{name}": (32, 0.25)}

    class Votes(KernelForest):
        def votes(self, call: ConvolutionCall) -> dict[KernelChoice, float]:
            return {KernelChoice(kernel, 64, 64, k, 1): share for kernel, (k, share) in votes.items()}

    forest = Votes((), (), (0.5,))
    elected = {}
    for channels in (32, 96):
        shape = conv_shape((1, channels, 8, 8), (8, channels, 3, 3))
        _, share, kernel = rules.elected(ConvolutionCall(shape=shape, format="bf16"), forest)
        elected[channels] = round(share, 2), kernel.name
    assert elected == {32: (0.6, name), 96: (0.4, "implicit_convolve_sgemm")}


IN_ORDER = ("in_order", 64, 1)  # rule, K of a stage, slices of K
SAME_ORDER = [  # channels, elements of the filter, two kernels
    (32, 4, IN_ORDER, ("blocks", 32, 1)),
    (32, 4, IN_ORDER, ("segments", 32, 1)),
    (96, 1, IN_ORDER, ("blocks", 64, 1)),
    (96, 1, IN_ORDER, ("rest_first", 32, 1)),
    (24, 4, ("blocks", 32, 1), ("blocks", 64, 1)),
    (24, 4, ("blocks", 64, 1), ("segments", 32, 1)),
    (64, 1, ("dealt", 64, 2), ("blocks", 64, 1)),
]
OTHER_ORDER = [
    (24, 4, IN_ORDER, ("blocks", 32, 1)),  # each element of the filter fills up its last instruction
    (96, 4, ("blocks", 32, 1), ("blocks", 64, 1)),
    (96, 4, IN_ORDER, ("blocks", 32, 1)),
    (96, 1, IN_ORDER, ("rest_first", 64, 1)),
    (96, 1, IN_ORDER, ("lanes", 64, 1)),
    (96, 1, IN_ORDER, ("interleaved", 64, 1)),
    (96, 1, ("dealt", 32, 2), ("segments", 32, 2)),
    (96, 1, ("segments", 32, 2), ("segments", 32, 3)),
]


@pytest.mark.parametrize(
    ("case", "is_same"), [(case, True) for case in SAME_ORDER] + [(case, False) for case in OTHER_ORDER]
)
def test_kernels_of_one_key_have_one_order(case: Any, is_same: bool) -> None:
    channels, taps, *kernels = case
    keys = [order_key(row(rule), channels, taps, 16, tile_k, slices) for rule, tile_k, slices in kernels]
    assert None not in keys and (keys[0] == keys[1]) is is_same


def test_the_way_over_the_filter_is_part_of_the_key() -> None:
    ways = [row("in_order"), row("in_order", k_order="crs"), row("in_order", backwards=True)]
    assert len({order_key(way, 32, 4, 16, 64, 1) for way in ways}) == 3
    assert len({order_key(way, 32, 1, 16, 64, 1) for way in ways}) == 1
    assert order_key(row("unknown"), 32, 4, 16, 64, 1) is None


def test_other_hopper_chips_are_an_assumption_and_other_chips_unknown() -> None:
    call = ConvolutionCall(shape=SHAPE, format="bf16")
    assert CUDNN.on(LibraryRequest(device="h200")).choose(call).evidence == "fitted"  # it was asked too
    assert CUDNN.on(LibraryRequest(device="h100pcie")).choose(call).evidence == "assumption"
    with pytest.raises(UnsupportedError, match="choices on a100 are not known"):
        CUDNN.on(LibraryRequest(device="a100"))
    with pytest.raises(UnsupportedError, match=r"no version '8\.0'; there is '9\.19'"):
        CUDNN.on(LibraryRequest(device="h100", version="8.0"))
    with pytest.raises(UnsupportedError, match="convolutions of int8"):
        CUDNN.on(LibraryRequest(device="h100")).choose(ConvolutionCall(shape=SHAPE, format="int8"))


def test_what_is_no_convolution_and_who_has_none() -> None:
    with pytest.raises(UnsupportedError, match=r"cudnn 9\.19 has no operation 'gemm'"):
        hwsim.run(m=64, n=64, k=64, device="h100", library="cudnn", exact=False)
    x, w = np.ones((1, 8, 4, 4), np.float32), np.ones((8, 8, 3, 3), np.float32)
    with pytest.raises(UnsupportedError, match="'cublas' has no convolutions: PyTorch calls cuDNN"):
        hwsim.conv2d(x, w, device="h100", library="cublas")
    with pytest.raises(InputError, match="layout = 'chwn'"):
        hwsim.conv2d(x, w, device="h100", library="cudnn", layout="chwn")  # type: ignore[arg-type]


def test_a_product_of_pixels_is_cublas_s() -> None:
    rules = CUDNN.on(LibraryRequest(device="h100"))
    pixels = conv_shape((4, 256, 16, 16), (64, 256, 1, 1))
    for direction, sizes in (
        ("forward", {"m": 1024, "n": 64, "k": 256, "b_layout": "columns"}),
        ("backward_input", {"m": 1024, "n": 256, "k": 64}),
        ("backward_weight", {"m": 64, "n": 256, "k": 1024, "a_layout": "columns"}),
    ):
        call = ConvolutionCall(shape=pixels, format="tf32", direction=direction)  # type: ignore[arg-type]
        choice = rules.choose(call)
        want = hwsim.library("cublas", device="h100").choose(format="tf32", output="fp32", reductions="any", **sizes)
        assert (choice.kernel, choice.split_k) == (want.kernel, want.split_k)
        assert rules.order(call, choice).schedule == want.schedule
    for other in ({"padding": 1}, {"stride": 2}, {"groups": 4}):
        shape = conv_shape((4, 256, 16, 16), (64, 64 if "groups" in other else 256, 1, 1), **other)
        assert rules.choose(ConvolutionCall(shape=shape, format="tf32")).product is None
    assert rules.choose(ConvolutionCall(shape=pixels, format="fp32")).product is None
    assert rules.choose(ConvolutionCall(shape=pixels, format="bf16", is_nchw=True)).product is None


def test_slices_and_lanes_as_kernels_add_them() -> None:
    serial = schedule_of(row("dealt", slice_order="last_first"), 200, 1, 8, 64, 3)
    assert serial is not None and isinstance(serial.sum, Reduction) and serial.sum.order == "ascending"
    firsts = [part.ranges[0].start for part in serial.sum.parts if isinstance(part, Chain)]
    assert firsts == [128, 0, 64]  # the last slice, then the others
    stages = schedule_of(row("segments", slice_order="pairwise"), 96, 9, 8, 32, 4)  # 27 stages
    assert stages is not None and isinstance(stages.sum, Reduction)
    assert [len(part.ranges) for part in stages.sum.parts if isinstance(part, Chain)] == [6, 7, 7, 7]
    lanes = schedule_of(row("lanes"), 20, 1, 1, 0, 1)
    assert lanes is not None and isinstance(lanes.sum, Reduction) and lanes.sum.order == "halving"
    assert (
        len(lanes.sum.parts) == 32
        and sum(part.ranges != () for part in lanes.sum.parts if isinstance(part, Chain)) == 20
    )
    warps = schedule_of(row("dealt", warps=4), 128, 1, 8, 64, 1)
    assert warps is not None and isinstance(warps.sum, Reduction)
    assert [part.ranges[0].spans() for part in warps.sum.parts if isinstance(part, Chain)] == [
        [(at, at + 16), (64 + at, 80 + at)] for at in (0, 16, 32, 48)
    ]
    assert schedule_of(row("one_tap"), 64, 4, 8, 0, 1) is None and schedule_of(row("one_tap"), 64, 1, 8, 0, 1)


def test_a_convolution_of_arrays_follows_the_kernel() -> None:
    rng = np.random.default_rng(4)
    x, w = (rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((1, 96, 9, 9), (16, 96, 3, 3)))
    got = hwsim.conv2d(x, w, padding=1, device="h100", library="cudnn", format="bf16")
    shape = conv_shape(x.shape, w.shape, padding=1)
    library, k_order, is_known, *_ = convolution_library("cudnn", "h100", ConvolutionCall(shape=shape, format="bf16"))
    assert k_order == "rsc" and is_known
    windows = im2col(x, shape, k_order="rsc")
    filters = np.moveaxis(w, 1, -1).reshape(16, -1).T
    want = hwsim.matmul(windows, filters, device=load("h100"), library=library, format="bf16")
    assert np.array_equal(np.moveaxis(got, 1, -1).reshape(want.shape), want)
    plain = hwsim.conv2d(x, w, padding=1, device="h100", format="bf16")
    assert not np.array_equal(plain, got)


def test_times_alone_are_of_the_kernel_s_tile() -> None:
    sizes = {"channels": 64, "height": 56, "width": 56, "filters": 64, "r": 3, "s": 3, "batch": 2, "padding": 1}
    found = hwsim.run(conv=sizes, device="h100", library="cudnn", exact=False, format="bf16")
    kernel = next(decision for decision in found.gemm.decisions if decision.name == "kernel")
    assert found.cycles and kernel.value.startswith("cutlass_tensorop_bf16_s16816fprop")
    assert kernel.evidence == "fitted"
