"""What a library was seen to do on a chip: taken where the device file says so, checked against the chip."""

import pytest

from hwsim import devices
from hwsim.errors import ConfigError, UnsupportedError
from hwsim.libraries import model as libraries

MMA = "mma.m16n8k8.f32.tf32.tf32.f32"


@pytest.fixture
def h200():
    return devices.expanded(devices.load("h200"))


def test_observations_are_those_of_the_chip():
    seen = libraries.observed(devices.load("h200"))
    assert seen is not None and seen.split_k_instructions == {"tf32": MMA} and set(seen.in_order) >= {"fp16", "e4m3"}
    like = libraries.observed(devices.load("h100"))
    assert like is not None and not like.in_order and like.tile_counter_us is None
    assert libraries.observed(devices.load("a100")) is None and libraries.observed(devices.load("ascend910a")) is None


def test_levels_are_the_weaker_of_library_and_device(h200):
    assert libraries.observed_level(devices.load("h200"), "in_order.fp16") == "silicon"
    assert libraries.observed_level(devices.load("h200"), "tile_counter_us") == "microbenchmark"
    assert libraries.observed_level(devices.load("h100"), "slice_multiple") == "assumption"
    assert libraries.observed_level(devices.load("v100"), "in_order.fp16") == "assumption"
    h200["library"]["observations"] = {"value": "h200", "source": "DS; a sibling", "evidence": "model"}
    assert libraries.observed_level(devices.load(h200), "in_order.fp16") == "model"
    assert libraries.observed_level(devices.load(h200), "tile_counter_us") == "model"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"engine": "FMA"}, "differs from native.tf32 in engine"),
        ({"unit": "f32_k4"}, "differs from native.tf32 in unit"),
        ({"k": 16}, "differs from native.tf32 in k"),
        ({"a": "bf16"}, "differs from native.tf32 in a"),
        (None, f"'{MMA}' is not one of instructions"),
    ],
)
def test_instructions_of_slices_have_the_bits_of_the_native_ones(h200, change, said):
    del h200["instructions"][MMA]["timing"]
    if change is None:
        del h200["instructions"][MMA]
    else:
        for key, value in change.items():
            h200["instructions"][MMA][key] = {"value": value, "source": "DS", "evidence": "assumption"}
    with pytest.raises(ConfigError, match=r"device h200: library.observations: h200 of cublas-13: ") as caught:
        libraries.observed(devices.load(h200))
    assert said in str(caught.value)


def test_observations_are_of_native_formats(h200):
    del h200["native"]["e4m3"]
    with pytest.raises(ConfigError, match=r"in_order.e4m3: 'e4m3' is not one of native; allowed: bf16, "):
        libraries.observed(devices.load(h200))


def test_names_that_are_not_there_are_refused(h200):
    h200["library"] = {"name": "cublas-13", "observations": "h20"}
    with pytest.raises(ConfigError, match=r"'h20' is not in cublas-13; allowed: h100, h200; did you mean 'h200'\?"):
        libraries.observed(devices.load(h200))
    h200["library"] = {"name": "cublas-12"}
    with pytest.raises(UnsupportedError, match="no library 'cublas-12'; known: "):
        libraries.library_of(devices.load(h200))
