"""Attention inside `hwsim.torch.emulate`: the math form to the bit, and the backend that PyTorch takes on a chip."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs hwsim[torch]")

from torch.nn import functional as F  # noqa: E402, N812  PyTorch is optional; its usual name
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch_cases import drawn, same  # noqa: E402

import hwsim  # noqa: E402
import hwsim.torch  # noqa: E402

MASK = torch.from_numpy(np.random.default_rng(9).random((6, 6)) > 0.4)
MASK[2] = False  # a row that the mask hides entirely
CALLS = {
    "plain": {},
    "causal": {"is_causal": True},
    "scale": {"scale": -0.3},
    "mask": {"attn_mask": MASK},
    "added": {"attn_mask": drawn(8, 6, 6)},
    "groups": {"enable_gqa": True},
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_the_math_form_rounds_as_pytorch_s_own(name, dtype):
    heads = 2 if name == "groups" else 4
    query, key, value = (drawn(i, 2, n, 6, 8).to(dtype) for i, n in enumerate((4, heads, heads)))
    own = torch.ops.aten._scaled_dot_product_attention_math  # a composite: its products are caught below autograd
    more = dict(CALLS[name])
    arguments = [more.pop("attn_mask", None), 0.0, more.pop("is_causal", False)]
    if arguments[0] is not None and arguments[0].dtype == torch.bool:
        hides = torch.zeros(6, 6, dtype=dtype).masked_fill(~arguments[0], -torch.inf)
        arguments[0] = hides
    elif arguments[0] is not None:
        arguments[0] = arguments[0].to(dtype)
    with hwsim.torch.emulate(device="h200", measure_every=0) as run:
        got = F.scaled_dot_product_attention(
            query, key, value, **CALLS[name] | ({} if name != "added" else {"attn_mask": arguments[0]})
        )
        expected = own(query, key, value, *arguments, None, **more)[0]
    assert same(got, expected) and run.record.total().calls == 4 and not run.not_caught


def test_sums_of_16_bits_where_the_switch_or_the_device_says_so():
    query = drawn(1, 1, 2, 6, 8).half()
    with hwsim.torch.emulate(device="h200", measure_every=0):
        wide = F.scaled_dot_product_attention(query, query, query)
        torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
        try:
            narrow = F.scaled_dot_product_attention(query, query, query)
        finally:
            torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(False)
    seen = []
    with hwsim.torch.emulate(device="ascend910a", measure_every=0) as run:  # its cube multiplies no fp32
        run.record.observer = lambda place, a, b, out, gemm: seen.append(a.dtype)
        F.scaled_dot_product_attention(query, query, query)
    assert not same(wide, narrow) and seen == [torch.float16] * 2


ROUTES = [
    ("h100", torch.bfloat16, {}, "CUDNN_ATTENTION"),
    ("h100", torch.bfloat16, {"width": 256}, "FLASH_ATTENTION"),
    ("h100", torch.bfloat16, {"width": 512}, "EFFICIENT_ATTENTION"),
    ("h100", torch.bfloat16, {"width": 257}, ""),
    ("h100", torch.float32, {}, "EFFICIENT_ATTENTION"),
    ("a100", torch.float16, {}, "FLASH_ATTENTION"),
    ("a100", torch.float16, {"mask": True}, "EFFICIENT_ATTENTION"),
    ("a100", torch.float16, {"queries": 5, "is_causal": True}, "EFFICIENT_ATTENTION"),
    ("v100", torch.float16, {}, "EFFICIENT_ATTENTION"),
    ("mi300x", torch.bfloat16, {}, "FLASH_ATTENTION"),
    ("mi100", torch.bfloat16, {}, ""),
    ("b200", torch.bfloat16, {"three": True}, ""),
]


@pytest.mark.parametrize(("device", "dtype", "call", "backend"), ROUTES)
def test_the_backend_that_pytorch_takes_is_named(device, dtype, call, backend):
    width, queries = call.get("width", 64), call.get("queries", 4)
    lead = (2,) if "three" in call else (1, 2)
    query, key = drawn(1, *lead, queries, width).to(dtype), drawn(2, *lead, 4, width).to(dtype)
    more = {"attn_mask": torch.ones(queries, 4, dtype=torch.bool)} if "mask" in call else {}
    with hwsim.torch.emulate(device=device, library="pytorch", measure_every=0) as run:
        F.scaled_dot_product_attention(query, key, key, is_causal="is_causal" in call, **more)
    names = [name.partition(" of ")[0] for name in run.not_caught if "ATTENTION" in name]
    assert names == ([backend] if backend else [])


def test_switches_choose_among_the_backends():
    query = drawn(1, 1, 2, 4, 64).bfloat16()
    for backends, name in (
        ([SDPBackend.MATH], ""),
        ([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH], "FLASH_ATTENTION"),
        ([SDPBackend.EFFICIENT_ATTENTION], "EFFICIENT_ATTENTION"),
    ):
        with hwsim.torch.emulate(device="h100", library="pytorch", measure_every=0) as run, sdpa_kernel(backends):
            F.scaled_dot_product_attention(query, query, query)
        assert [key.partition(" of ")[0] for key in run.not_caught] == ([name] if name else [])
    with (
        hwsim.torch.emulate(device="h100", library="pytorch"),
        sdpa_kernel([SDPBackend.FLASH_ATTENTION]),
        pytest.raises(hwsim.UnsupportedError, match="no backend that PyTorch's switches allow takes heads of 512"),
    ):
        F.scaled_dot_product_attention(*[drawn(1, 1, 2, 4, 512).bfloat16()] * 3)


@pytest.mark.parametrize("device", ["h100", "mi300x"])
def test_what_stands_for_a_fused_kernel_is_near_the_exact_values(device):
    query, key, value = (drawn(i, 2, 4, 33, 64).bfloat16().requires_grad_() for i in range(3))
    with hwsim.torch.emulate(device=device, library="pytorch", measure_every=0):
        got = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        (gradient,) = torch.autograd.grad(got.float().sum(), query)
    exact = F.scaled_dot_product_attention(*(x.double() for x in (query, key, value)), is_causal=True)
    (of_query,) = torch.autograd.grad(exact.sum(), query)
    torch.testing.assert_close(got.double(), exact, rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(gradient.double(), of_query.double(), rtol=5e-2, atol=5e-2)


def _of_capture(seed, count, width):
    """Operands of the captures: sums of the four bytes of a mixed 32-bit counter, in bf16."""

    def mixed(seed):
        h = (np.arange(count * width, dtype=np.uint64) + np.uint64(seed * 0x9E3779B1)) & np.uint64(0xFFFFFFFF)
        for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
            h = ((h ^ (h >> np.uint64(shift))) * np.uint64(factor)) & np.uint64(0xFFFFFFFF)
        return h ^ (h >> np.uint64(16))

    total = sum(((mixed(seed) >> np.uint64(8 * byte)) & np.uint64(255)).astype(np.int64) for byte in range(4)) - 510
    values = total / 128 + (mixed(seed + 7).astype(np.float64) - 2.0**31) / 2.0**40
    return torch.from_numpy(values.astype(np.float32).reshape(count, width)).bfloat16()


#: {(rows, causal): SHA-256 of rows of the last of two heads of 64}, by PyTorch 2.11 on an H100 with sdpa_kernel(MATH).
CAPTURED = {
    (128, False): "ce46562389c33dcdd12ce05d7e344896e85fd32822600e4a333dd006cb786fdd",
    (333, True): "133e9af92cff8af5baca8528cb44a17a1b30ac2c2bdacdc1e816f543bbbde982",
}


@pytest.mark.parametrize(("rows", "is_causal"), CAPTURED)
def test_the_math_form_has_an_h100_s_bits(rows, is_causal):
    query, key, value = (_of_capture(70 + i, 2 * rows, 64).view(1, 2, rows, 64) / 2 for i in range(3))
    with sdpa_kernel([SDPBackend.MATH]), hwsim.torch.emulate(device="h100", library="pytorch", measure_every=0) as run:
        got = F.scaled_dot_product_attention(query, key, value, is_causal=is_causal)
    kept = np.sort(np.random.default_rng(3).choice(rows, min(rows, 256), replace=False))
    codes = got[0, 1][torch.from_numpy(kept)].contiguous().view(torch.int16).numpy()
    assert not run.not_caught and hashlib.sha256(codes.tobytes()).hexdigest() == CAPTURED[rows, is_causal]
