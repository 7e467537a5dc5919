"""What a result says of its evidence: no better than what its bits rest on."""

import numpy as np
import pytest

import hwsim
from hwsim import devices
from hwsim.devices import load

TCGEN05 = "tcgen05.mma.m{}n256k16.f16.f32.bf16.bf16"


def evidence(device, *, m=256, n=256, k=64, **given):
    return hwsim.run(m=m, n=n, k=k, device=device, exact=False, **given).evidence


@pytest.mark.parametrize("device", ["b200", "gb200"])
def test_scale_input_d_counts_where_a_plan_uses_it(device):
    assert evidence(device, scheme="bf16x9")["numerics"] == "assumption"
    assert evidence(device, scheme="bf16x9", accumulation="termwise")["numerics"] == "silicon"
    assert evidence(device, format="bf16")["numerics"] == "silicon"
    alone = TCGEN05.format(128)
    assert devices.numerics_evidence(load(device), alone) == "silicon"
    assert devices.numerics_evidence(load(device), alone, scaled=True) == "assumption"


@pytest.mark.parametrize("device", ["b200", "gb200"])
def test_pairs_of_sms_were_compared_with_no_chip(device):
    assert devices.numerics_evidence(load(device), TCGEN05.format(256)) == "assumption"
    assert evidence(device, format="bf16", m=512, cta_group=2)["numerics"] == "assumption"
    assert evidence(device, format="bf16", m=512, cta_group=1)["numerics"] == "silicon"
    integers = load(device).native["int8"]
    assert ".m256n" in integers and devices.numerics_evidence(load(device), integers) == "datasheet"


def test_the_level_is_of_the_file_and_not_of_its_values():
    """Two files with the same numbers, and so the same hash, may say different things of them."""
    plain = load("a100")
    said = {"source": "DS; a try", "evidence": "paper"}
    other = load({"schema_version": 1, "name": "a100", "title": plain.title, "extends": "a100", "inherited": said})
    a, b = np.ones((16, 16), np.float16), np.ones((16, 16), np.float16)
    levels = [hwsim.run(a, b, device=x, format="fp16", timing=False).evidence["numerics"] for x in (plain, other)]
    assert plain.sha256 == other.sha256 and levels == ["silicon", "paper"]
