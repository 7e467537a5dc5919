"""Attention inside `hwsim.torch.emulate`: the math form to the bit, and the backend that PyTorch takes on a chip."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs hwsim[torch]")

from modern import kernels, operand, picked  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812  PyTorch is optional; its usual name
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch_cases import drawn, same  # noqa: E402

import hwsim  # noqa: E402
import hwsim.torch  # noqa: E402
from hwsim.evaluate.attending import Attending  # noqa: E402
from hwsim.frameworks.torch.softmax import SoftmaxKernels, softmax  # noqa: E402

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


@pytest.mark.parametrize("more", [{"is_causal": True}, {"attn_mask": torch.ones(6, 6, dtype=torch.bool).tril()}])
def test_a_mask_is_added_so_that_a_nan_behind_it_stays(more):
    query, key, value = (drawn(i, 1, 2, 6, 8) for i in range(3))
    key[0, 0, 4, 1] = torch.nan
    own = torch.ops.aten._scaled_dot_product_attention_math(query, key, value, None, 0.0, True)[0]
    with hwsim.torch.emulate(device="h200", measure_every=0):
        got = F.scaled_dot_product_attention(query, key, value, **more)
    assert torch.equal(got.isnan(), own.isnan()) and 0 < own.isnan().sum() < own.numel()


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


def backends_of(run):
    """The fused kernels that a context's products stand for, or are parts of."""
    operations = [operation for _, operation, _ in run.record.layers]
    words = [
        operation.partition(" of ") if " of " in operation else operation.partition(" in ") for operation in operations
    ]
    return sorted({kernel for _, _, kernel in words if kernel})


ROUTES = [
    ("h100", torch.bfloat16, {}, "CUDNN_ATTENTION"),
    ("h100", torch.bfloat16, {"width": 256}, "CUDNN_ATTENTION"),
    ("a100", torch.bfloat16, {"width": 256}, "FLASH_ATTENTION"),
    ("h100", torch.bfloat16, {"width": 512}, "EFFICIENT_ATTENTION"),
    ("h100", torch.bfloat16, {"width": 257}, ""),
    ("h100", torch.float32, {}, "EFFICIENT_ATTENTION"),
    ("a100", torch.float16, {}, "FLASH_ATTENTION"),
    ("a100", torch.float16, {"mask": True}, "EFFICIENT_ATTENTION"),
    ("a100", torch.float16, {"queries": 5, "is_causal": True}, "EFFICIENT_ATTENTION"),
    ("h100", torch.float16, {"heads": 4}, "CUDNN_ATTENTION"),
    ("a100", torch.float16, {"heads": 4}, "FLASH_ATTENTION"),
    ("a100", torch.float16, {"heads": 4, "mask": True}, ""),  # EFFICIENT_ATTENTION takes no groups of heads
    ("v100", torch.float16, {}, "EFFICIENT_ATTENTION"),
    ("mi300x", torch.bfloat16, {}, "FLASH_ATTENTION"),
    ("mi100", torch.bfloat16, {}, ""),
    ("b200", torch.bfloat16, {"three": True}, ""),
]


@pytest.mark.parametrize(("device", "dtype", "call", "backend"), ROUTES)
def test_the_backend_that_pytorch_takes_is_named(device, dtype, call, backend):
    width, queries = call.get("width", 64), call.get("queries", 4)
    lead = (2,) if "three" in call else (1, 2)
    heads = (*lead[:-1], call.get("heads", 2))
    query, key = drawn(1, *heads, queries, width).to(dtype), drawn(2, *lead, 4, width).to(dtype)
    more = {"attn_mask": torch.ones(queries, 4, dtype=torch.bool)} if "mask" in call else {}
    more |= {"enable_gqa": True} if "heads" in call else {}
    with hwsim.torch.emulate(device=device, library="pytorch", measure_every=0) as run:
        F.scaled_dot_product_attention(query, key, key, is_causal="is_causal" in call, **more)
    assert backends_of(run) == ([backend] if backend else [])
    is_known = device in ("h100", "a100") and dtype != torch.float32
    assert bool(run.verdict.substituted) == bool(backend and not is_known) and not run.not_caught


def added_by_a_block(powers, row):
    """A row of cunn_SoftMaxForward(Reg, Smem) of PyTorch, thread by thread: 1,024 of them, four elements at once."""
    count, sums = len(powers), [np.float32(0)] * 1024
    if count <= 9 * 1024:
        for element, power in enumerate(powers):
            sums[element % 1024] += power
    elif count % 4 == 0 and count < (49152 - 32 * 4) // 4:
        for element, power in enumerate(powers):
            sums[element // 4 % 1024] += power
    else:
        shift = row * count % 4
        start = 1024 - shift if shift else 0
        for element in range(start):
            sums[element + shift] += powers[element]
        tail = count - (count - start) % 4096
        for element in range(start, tail):
            sums[(element - start) // 4 % 1024] += powers[element]
        for element in range(tail, count):
            sums[(element - tail) % 1024] += powers[element]
    warps = [sums[first : first + 32] for first in range(0, 1024, 32)]
    for many in (*warps, heads := [None] * 32):
        if many is heads:
            many[:] = [warp[0] for warp in warps]
        for distance in (16, 8, 4, 2, 1):
            for lane in range(distance):
                many[lane] = many[lane] + many[lane + distance]
    return heads[0]


@pytest.mark.parametrize("count", [2049, 9216, 9220, 9222, 12257, 14000])
def test_a_long_row_of_the_math_form_adds_as_a_block_does(count):
    kernels = SoftmaxKernels(32, 2048, 1024, 9, 4, 49152)
    x = drawn(3, 5, count)
    got = softmax(x, kernels).numpy()
    powers = hwsim.mufu("expf", (x - x.amax(-1, keepdim=True)).numpy())
    want = np.array([row / added_by_a_block(row, number) for number, row in enumerate(powers)])
    assert np.array_equal(got, want)
    assert np.array_equal(torch.vmap(lambda y: softmax(y, kernels))(x[None]).numpy(), want[None])


def test_a_fused_kernel_s_time_is_its_program_s():
    query, key = (drawn(i, 1, heads, 128, 64).half() for i, heads in ((1, 4), (2, 2)))
    query.requires_grad_()
    with hwsim.torch.emulate(device="h200", library="pytorch", timing=True) as run:
        for _ in range(2):
            out = F.scaled_dot_product_attention(query, key, key, enable_gqa=True)
        out.sum().backward()
    arrays = [x.detach().numpy() for x in (query, key, key)]
    alone = hwsim.attention(*arrays, device="h200", exact=False)
    rows = {(operation, stage): entry for (_, operation, stage), entry in run.record.layers.items()}
    values = rows["attention values in CUDNN_ATTENTION", "forward"]
    assert (values.cycles, values.seconds) == (2 * alone.cycles, 2 * alone.seconds)
    assert rows["attention scores in CUDNN_ATTENTION", "forward"].cycles == 0
    assert all(entry.cycles for (_, stage), entry in rows.items() if stage != "forward")


@pytest.mark.parametrize("option", [{"clock_mhz": 600.0}, {"l2": "cold"}, {"launch_overhead": True}])
def test_options_that_count_for_times_count_for_a_fused_kernel_s(option):
    query = drawn(1, 1, 2, 128, 64).half()
    seconds = []
    for given in ({}, option):
        with hwsim.torch.emulate(device="h200", library="pytorch", timing=True, measure_every=0, **given) as run:
            F.scaled_dot_product_attention(query, query, query)
        seconds.append(run.record.layers["", "attention values in CUDNN_ATTENTION", "forward"].seconds)
    arrays = [query.numpy()] * 3
    assert seconds == [hwsim.attention(*arrays, device="h200", exact=False, **x).seconds for x in ({}, option)]
    assert seconds[0] < seconds[1]


@pytest.mark.parametrize("mask", ["own", "shared", "hides"])
def test_masks_of_one_s_own_have_the_kernel_s_bits(mask):
    query, key, value = (drawn(i, 2, 3, 40, 72).bfloat16() for i in range(3))
    added = drawn(7, 1 if mask == "shared" else 3, 40, 40).bfloat16().requires_grad_(mask == "own")
    added = added > -0.5 if mask == "hides" else added
    with hwsim.torch.emulate(device="a100", library="pytorch", measure_every=0) as run:
        query.requires_grad_()
        got = F.scaled_dot_product_attention(query, key, value, attn_mask=added)
        got.sum().backward()
        alone = (x.detach().unsqueeze(1) for x in (query, key, value))
        mapped = torch.vmap(F.scaled_dot_product_attention, (0, 0, 0, None))(*alone, added.detach()).squeeze(1)
    operands = [x.detach().view(torch.int16).numpy().view(ml_dtypes.bfloat16) for x in (query, key, value)]
    own = added.numpy() if mask == "hides" else added.detach().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    want = hwsim.attention(*operands, device="a100", mask=own).out.view(np.int16)
    assert backends_of(run) == ["EFFICIENT_ATTENTION"]
    assert not [name for name in run.not_caught if "backward pass" not in name]
    assert np.array_equal(got.detach().view(torch.int16).numpy(), want) and same(mapped, got.detach())
    assert query.grad.isfinite().all() and (mask != "own" or added.grad.abs().sum() > 0)


@pytest.mark.parametrize(
    "leads", [((1, 4), (1, 1), (1, 1)), ((2, 2), (1, 2), (1, 2)), ((1, 2), (1, 2), (1, 1))], ids=str
)
def test_fused_kernels_take_no_operands_that_are_broadcast(leads):
    operands = [drawn(i, *lead, 4, 64).half() for i, lead in enumerate(leads)]
    with hwsim.torch.emulate(device="h100", library="pytorch", measure_every=0) as run:
        got = F.scaled_dot_product_attention(*operands)
    assert backends_of(run) == [] and got.shape == (*leads[0], 4, 64)


def test_shared_heads_are_known_in_a_graph_of_symbolic_sizes():
    def attend(query, key):
        return F.scaled_dot_product_attention(query, key, key, enable_gqa=True)

    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager", dynamic=True)
    with hwsim.torch.emulate(device="h100", library="pytorch", measure_every=0) as run:
        for rows in (5, 9):
            operands = drawn(1, 1, 4, rows, 64).half(), drawn(2, 1, 2, rows, 64).half()
            assert same(compiled(*operands), attend(*operands))
    assert backends_of(run) == ["CUDNN_ATTENTION"]


def test_gradients_of_a_fused_kernel_are_in_the_units_own_order_and_so_named():
    query, key = (drawn(seed, 1, 1, 16, 64).bfloat16() for seed in (1, 2))
    query.requires_grad_()
    with hwsim.torch.emulate(device="h100", library="pytorch") as run:
        F.scaled_dot_product_attention(query, key, key).sum().backward()
    rows = {(operation, stage) for _, operation, stage in run.record.layers}
    assert {
        ("attention scores in CUDNN_ATTENTION", "forward"),
        ("attention values in CUDNN_ATTENTION", "forward"),
    } < rows
    behind = {row for row in rows if row[1] != "forward"}
    assert behind and all(operation.endswith(" of CUDNN_ATTENTION") for operation, _ in behind)
    name = "the backward pass of CUDNN_ATTENTION, in the unit's own order"
    assert run.verdict.substituted == {name: 2} and not run.not_caught
    assert run.record.library_share == 0.5  # of query alone: two of four products
    assert f"kernel not known: {name}, 2 products, 50.0 % of the MACs" in run.report()
    said = "not simulated: the gradients of these functions, which are PyTorch's for CPUs"
    assert said in run.report()
    with hwsim.torch.emulate(device="h100", library="pytorch") as forward:
        F.scaled_dot_product_attention(query, key, key).sum()
    assert "as PyTorch's kernel computes it" in forward.report() and said not in forward.report()


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16])
def test_a_mask_that_no_allowed_backend_takes_is_refused_as_by_pytorch(dtype):
    query, mask = drawn(1, 1, 1, 8, 64).bfloat16(), torch.ones(8, 8).to(dtype)
    with (
        hwsim.torch.emulate(device="h100", library="pytorch"),
        sdpa_kernel([SDPBackend.FLASH_ATTENTION]),
        pytest.raises(hwsim.UnsupportedError, match=r"8 keys with a mask on this device .*No available kernel.*MATH"),
    ):
        F.scaled_dot_product_attention(query, query, query, mask)


def test_switches_choose_among_the_backends():
    query = drawn(1, 1, 2, 4, 64).bfloat16()
    for backends, name in (
        ([SDPBackend.MATH], ""),
        ([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH], "FLASH_ATTENTION"),
        ([SDPBackend.EFFICIENT_ATTENTION], "EFFICIENT_ATTENTION"),
    ):
        with hwsim.torch.emulate(device="h100", library="pytorch", measure_every=0) as run, sdpa_kernel(backends):
            F.scaled_dot_product_attention(query, query, query)
        assert backends_of(run) == ([name] if name else [])
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


CAPTURES = kernels("sdpa")


def _drawn(seed, format, heads, rows, width):
    """An operand of the captures."""
    x = torch.from_numpy(operand(seed, heads * rows, width, format).view(np.int16))
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}[format]
    return x.view(dtype).view(1, heads, rows, width) / 2


@pytest.mark.parametrize("name", CAPTURES)
def test_attention_has_an_h100_s_bits(name):
    """Each kernel that PyTorch 2.11 ran: math, FlashAttention-2 split or not, cuDNN, memory-efficient."""
    _, backend, format, sizes, causal = name.split()
    heads, rows, width = map(int, sizes.split("x"))
    query, key, value = (_drawn(70 + i, format, heads, rows, width) for i in range(3))
    with sdpa_kernel(SDPBackend.__members__[backend]), hwsim.torch.emulate(device="h100", library="pytorch") as run:
        result = F.scaled_dot_product_attention(query, key, value, is_causal=causal == "True")
    part = result[0, heads - 1][torch.from_numpy(picked(rows, 256, 3))].contiguous()
    assert not run.not_caught
    assert np.array_equal(part.view(torch.int16).numpy(), CAPTURES[name])


@pytest.mark.parametrize(
    ("device", "keys"),
    [("a100", 64), ("a2", 32), ("ada", 32), ("rtx3090", 32), ("l40s", 32), ("rtx5090", 64), ("gb10", 64), ("h20", 64)],
)
def test_flash_attention_has_small_blocks_of_keys_on_chips_of_8_6_and_8_9(device, keys, monkeypatch):
    orders = _orders(monkeypatch)
    query = drawn(1, 1, 2, 4, 128).half()
    with (
        hwsim.torch.emulate(device=device, library="pytorch", measure_every=0),
        sdpa_kernel([SDPBackend.FLASH_ATTENTION]),
    ):
        F.scaled_dot_product_attention(query, query, query)
    assert [order.keys for order in orders] == [keys]


@pytest.mark.parametrize(("width", "value_width", "keys"), [(64, 64, 64), (64, 128, 128), (128, 64, 128)])
def test_the_wider_of_key_and_value_says_how_many_keys_a_block_of_efficient_attention_has(
    width, value_width, keys, monkeypatch
):
    orders = _orders(monkeypatch)
    query, value = drawn(1, 1, 2, 4, width).half(), drawn(2, 1, 2, 4, value_width).half()
    with (
        hwsim.torch.emulate(device="h100", library="pytorch", measure_every=0),
        sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION]),
    ):
        F.scaled_dot_product_attention(query, query, value)
    assert [order.keys for order in orders] == [keys]


def _orders(monkeypatch):
    """The orders of the kernels that are computed from here on."""
    orders, call = [], Attending.__call__

    def noted(attending, *operands, **more):
        orders.append(attending.order)
        return call(attending, *operands, **more)

    monkeypatch.setattr(Attending, "__call__", noted)
    return orders


def test_a_known_kernel_has_the_gradient_of_the_products_beside_it_and_the_bits_of_each_transform():
    query, key, value = (drawn(i, 1, 3, 40, 64).to(torch.float16) for i in range(3))

    def attend(query):
        return F.scaled_dot_product_attention(query, key, value, is_causal=True)

    with sdpa_kernel([SDPBackend.FLASH_ATTENTION]), hwsim.torch.emulate(device="h100", library="pytorch"):
        plain = attend(query)
        leaf = query.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(attend(leaf).float().sum(), leaf)
        mapped = torch.func.vmap(attend)(torch.stack([query, query]))
        compiled = torch.compile(attend, backend="aot_eager")(query)
        _, tangent = torch.func.jvp(attend, (query,), (torch.ones_like(query),))
    exact = query.double().requires_grad_()
    wide = F.scaled_dot_product_attention(exact, key.double(), value.double(), is_causal=True)
    (of_query,) = torch.autograd.grad(wide.sum(), exact)
    assert same(mapped[1], plain) and same(compiled, plain) and tangent.shape == plain.shape
    torch.testing.assert_close(gradient.double(), of_query, rtol=5e-2, atol=5e-2)
    torch.testing.assert_close(plain.double(), wide, rtol=1e-2, atol=1e-2)
