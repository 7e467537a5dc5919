"""PyTorch's fp64 products with cuBLAS's emulation switches in the environment."""

from __future__ import annotations

import pytest

import hwsim
from hwsim.errors import InputError

torch = pytest.importorskip("torch")
SWITCHES = {"CUBLAS_EMULATE_DOUBLE_PRECISION": "1", "CUBLAS_EMULATION_STRATEGY": "eager"}
BITS = "CUBLAS_FIXEDPOINT_EMULATION_MANTISSA_BIT_COUNT"


def product(monkeypatch: pytest.MonkeyPatch, **environment: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    import hwsim.torch

    for name in (*SWITCHES, BITS):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((40, 70), (70, 24)))
    with hwsim.torch.emulate(device="h100", library="pytorch") as run:
        c = torch.mm(a, b)
    assert not run.not_caught
    return a, b, c


@pytest.mark.parametrize(("bits", "asked"), [({}, "dynamic"), ({BITS: "39"}, 39)])
def test_the_switches_are_followed(monkeypatch: pytest.MonkeyPatch, bits: dict[str, str], asked: int | str) -> None:
    a, b, c = product(monkeypatch, **SWITCHES, **bits)
    expected = hwsim.matmul(a.numpy(), b.numpy(), device="h100", scheme="fixedpoint-fp64", bits=asked)
    assert torch.equal(c, torch.from_numpy(expected))


@pytest.mark.parametrize("strategy", [{}, {"CUBLAS_EMULATION_STRATEGY": "performant"}], ids=["none", "performant"])
def test_without_the_eager_strategy_products_are_native(
    monkeypatch: pytest.MonkeyPatch, strategy: dict[str, str]
) -> None:
    """As all of an H100's captured products with these switches are."""
    from hwsim.frameworks.torch.switches import current

    for name in SWITCHES:
        monkeypatch.delenv(name, raising=False)
    for name, value in {"CUBLAS_EMULATE_DOUBLE_PRECISION": "1", **strategy}.items():
        monkeypatch.setenv(name, value)
    assert not current().fp64


def test_bits_that_are_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="MANTISSA_BIT_COUNT = 'many'; allowed: a number of bits"):
        product(monkeypatch, **SWITCHES, **{BITS: "many"})
