"""Tensors and a network of the tests of hwsim.torch, and whether two tensors have the same bits."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs hwsim[torch]")

H200 = {"device": "h200", "format": "bf16"}
FP32 = {"device": "h200", "format": "fp32"}


def same(x, y):
    integer = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    return x.dtype == y.dtype and torch.equal(x.contiguous().view(integer), y.contiguous().view(integer))


def drawn(seed, *shape):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape)).float()


def network():
    torch.manual_seed(5)
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 8))


A, B, C = drawn(1, 9, 30), drawn(2, 30, 7), drawn(3, 7)
