"""hybrid=True: the faster of a scheme and native fp32, and the bits of the one taken."""

from __future__ import annotations

import numpy as np
import pytest

import hwsim
from hwsim.errors import UnsupportedError


@pytest.mark.parametrize(("size", "taken"), [(128, "native"), (1024, "bf16x9")])
def test_the_faster_one_is_taken_and_told(size, taken):
    given = {"m": size, "n": size, "k": size, "device": "b200", "exact": False}
    both = {
        "bf16x9": hwsim.run(**given, scheme="bf16x9"),
        "native": hwsim.run(**given, scheme="native", format="fp32"),
    }
    result = hwsim.run(**given, scheme="bf16x9", hybrid=True)
    assert result.options["taken"] == taken == min(both, key=lambda name: both[name].seconds)
    assert result.seconds == both[taken].seconds
    for name, one in both.items():
        assert result.options["predicted_us"][name] == pytest.approx(one.seconds * 1e6, abs=1e-3)


@pytest.mark.parametrize(("device", "taken"), [("a100", "native"), ("b200", "bf16x9")])
def test_the_bits_are_those_of_the_one_taken(device, taken):
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((600, 400), np.float32), rng.standard_normal((400, 520), np.float32)
    result = hwsim.run(a, b, device=device, scheme="bf16x9", hybrid=True)
    assert result.options["taken"] == taken
    alone = {"scheme": "bf16x9"} if taken == "bf16x9" else {"scheme": "native", "format": "fp32"}
    want = hwsim.run(a, b, device=device, **alone)
    assert (result.codes == want.codes).all() and result.scheme == "bf16x9"


def test_off_by_default_and_refused_without_native_fp32(monkeypatch):
    result = hwsim.run(m=64, n=64, k=64, device="b200", scheme="bf16x9", exact=False)
    assert "taken" not in result.options
    chip = hwsim.device("b200")
    without = chip.model_copy(update={"native": {x: y for x, y in chip.native.items() if x != "fp32"}})
    with pytest.raises(UnsupportedError, match="hybrid needs native fp32"):
        hwsim.run(m=64, n=64, k=64, device=without, scheme="bf16x9", hybrid=True, exact=False)
