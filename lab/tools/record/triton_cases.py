"""Triton kernels of packages and repositories, called on small operands. The module knows their interfaces; it knows no
hwsim, and imports a package when a case runs.

A case is `case(draw) -> {name: tensor}`; `draw(*shape, dtype=..., scale=...)` gives the next operand on the device.
Packages of PyPI: fla-core (fla), liger-kernel, sageattention. Repositories, on the path: meta-pytorch/tritonbench (its
copies of Triton's tutorials 03, 08 and 09), triton-lang/kernels (tutorial 06),
thinking-machines-lab/batch_invariant_ops.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import torch

Draw = Callable[..., torch.Tensor]
Results = dict[str, torch.Tensor]
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
GROUPED = ((128, 256, 128), (256, 128, 96), (128, 128, 224))


def _tutorial_matmul(dtype: torch.dtype, activation: str) -> Callable[[Draw], Results]:
    def case(draw: Draw) -> Results:
        module = import_module("tritonbench.operators.gemm.triton_matmul")
        return {"c": module.matmul(draw(256, 320, dtype=dtype), draw(320, 192, dtype=dtype), activation)}

    return case


def _tutorial_persistent(draw: Draw) -> Results:
    module = import_module("tritonbench.operators.gemm.persistent_matmul")
    return {"c": module.matmul_persistent(draw(256, 320, dtype=FP16), draw(320, 384, dtype=FP16))}


def _tutorial_grouped(draw: Draw) -> Results:
    module = import_module("tritonbench.operators.grouped_gemm.kernels")
    pairs = [(draw(m, k, dtype=FP16), draw(k, n, dtype=FP16)) for m, n, k in GROUPED]
    results = module.triton_group_gemm_fn([a for a, _ in pairs], [b for _, b in pairs])
    return {f"c{i}": c for i, c in enumerate(results)}


def _tutorial_fp8(draw: Draw) -> Results:
    module = import_module("tritonbench.operators.fp8_gemm.tutorial")
    a, b = draw(256, 256, dtype=torch.float8_e4m3fn), draw(128, 256, dtype=torch.float8_e4m3fn)
    return {"c": module.matmul(a, b.T)}


def _tutorial_attention(dtype: torch.dtype, is_causal: bool, width: int) -> Callable[[Draw], Results]:
    def case(draw: Draw) -> Results:
        module = import_module("kernels.flash_attention")
        q, k, v = (draw(1, 2, 256, width, dtype=dtype).requires_grad_() for _ in range(3))
        out = module.attention(q, k, v, is_causal, width**-0.5, False)
        return {"out": out.detach()}

    return case


def _attention_backward(draw: Draw) -> Results:
    module = import_module("kernels.flash_attention")
    module.is_hip = lambda: False
    q, k, v = (draw(1, 1, 256, 64, dtype=FP16).requires_grad_() for _ in range(3))
    out = module.attention(q, k, v, True, 0.125, False)
    out.backward(draw(1, 1, 256, 64, dtype=FP16))
    return {"out": out.detach(), **{f"d{name}": x.grad for name, x in zip("qkv", (q, k, v), strict=True)}}


def _lang_matmul(draw: Draw) -> Results:
    module = import_module("kernels.matmul")
    return {"c": module.matmul(draw(128, 512, dtype=BF16), draw(512, 256, dtype=BF16))}


def _invariant(dtype: torch.dtype) -> Callable[[Draw], Results]:
    def case(draw: Draw) -> Results:
        module = import_module("batch_invariant_ops.batch_invariant_ops")
        a, b = draw(96, 384, dtype=dtype), draw(384, 300, dtype=dtype)
        return {"c": module.matmul_persistent(a, b), "biased": module.matmul_persistent(a, b, draw(300, dtype=dtype))}

    return case


def _invariant_rows(draw: Draw) -> Results:
    module = import_module("batch_invariant_ops.batch_invariant_ops")
    x = draw(8, 1536, dtype=FP32, scale=3.0)
    return {"log_softmax": module.log_softmax(x), "mean": module.mean_dim(x, 1)}


def _fla_attention(draw: Draw) -> Results:
    q, k, v = (draw(1, 256, 2, 64, dtype=BF16) for _ in range(3))
    return {"out": import_module("fla.ops.attn").parallel_attn(q, k, v)}


def _fla_retention(draw: Draw) -> Results:
    q, k, v = (draw(1, 128, 2, 64, dtype=BF16) for _ in range(3))
    return {"out": import_module("fla.ops.retention").chunk_retention(q, k, v)[0]}


def _fla_linear(draw: Draw) -> Results:
    q, k, v = (draw(1, 128, 2, 64, dtype=BF16) for _ in range(3))
    return {"out": import_module("fla.ops.linear_attn").chunk_linear_attn(q, k, v, normalize=False)[0]}


def _fla_gated(draw: Draw) -> Results:
    q, k, v = (draw(1, 128, 2, 64, dtype=BF16) for _ in range(3))
    gates = torch.nn.functional.logsigmoid(draw(1, 128, 2, 64, dtype=FP32).cpu()).to(q.device)
    return {"out": import_module("fla.ops.gla").chunk_gla(q, k, v, gates)[0]}


def _fla_simple_gated(draw: Draw) -> Results:
    q, k, v = (draw(1, 128, 2, 64, dtype=BF16) for _ in range(3))
    gates = torch.nn.functional.logsigmoid(draw(1, 128, 2, dtype=FP32).cpu()).to(q.device)
    return {"out": import_module("fla.ops.simple_gla").chunk_simple_gla(q, k, v, gates)[0]}


def _fla_delta(draw: Draw) -> Results:
    q, k, v = (draw(1, 128, 2, 64, dtype=BF16) for _ in range(3))
    k = torch.nn.functional.normalize(k.cpu().float(), dim=-1).bfloat16().to(k.device)
    beta = draw(1, 128, 2, dtype=BF16).cpu().float().sigmoid().bfloat16().to(k.device)
    return {"out": import_module("fla.ops.delta_rule").chunk_delta_rule(q, k, v, beta)[0]}


def _fla_based(draw: Draw) -> Results:
    q, k = (draw(1, 2, 128, 16, dtype=BF16) for _ in range(2))
    return {"out": import_module("fla.ops.based").parallel_based(q, k, draw(1, 2, 128, 64, dtype=BF16))}


def _liger_neighborhood(draw: Draw) -> Results:
    module = import_module("liger_kernel.ops.fused_neighborhood_attention")
    q, k, v = (draw(1, 2, 128, 64, dtype=BF16) for _ in range(3))
    out, weights, _ = module.fused_neighborhood_attention_forward(q, k, v, kernel_size=31)
    return {"out": out, "weights": weights}


def _liger_int8(draw: Draw) -> Results:
    module = import_module("liger_kernel.ops.experimental.mm_int8int2")
    a = draw(128, 512, dtype=FP32, scale=40.0).round().clamp(-128, 127).to(torch.int8)
    packed = draw(128, 128, dtype=FP32, scale=60.0).abs().round().clamp(0, 255).to(torch.uint8)
    return {"c": module.matmul(a, packed)}


def _liger_rows(draw: Draw) -> Results:
    norm, layer = import_module("liger_kernel.ops.rms_norm"), import_module("liger_kernel.ops.layer_norm")
    softmax, swiglu = import_module("liger_kernel.ops.softmax"), import_module("liger_kernel.ops.swiglu")
    x, w, y = draw(16, 1000, dtype=BF16), draw(1000, dtype=BF16), draw(16, 1000, dtype=BF16)
    return {
        "rms_norm": norm.LigerRMSNormFunction.apply(x, w, 1e-6, 0.0, "llama", False),
        "layer_norm": layer.layer_norm_forward(x, w, draw(1000, dtype=BF16), 1e-5)[0],
        "softmax": softmax._softmax_forward(x)[0],
        "swiglu": swiglu.swiglu_forward(x, y)[-1],
    }


def _sage(is_causal: bool) -> Callable[[Draw], Results]:
    def case(draw: Draw) -> Results:
        module = import_module("sageattention.core")
        q, k, v = (draw(1, 2, 256, 64, dtype=FP16) for _ in range(3))
        codes = module.per_block_int8(q, k)
        attend = module.attn_true if is_causal else module.attn_false
        out = attend(codes[0], codes[2], v, codes[1], codes[3], output_dtype=FP16)
        out = out[0] if isinstance(out, tuple) else out
        return {"q": codes[0], "q_scale": codes[1], "k": codes[2], "k_scale": codes[3], "out": out}

    return case


def _own_attention(dtype: torch.dtype, is_causal: bool, width: int, keys: int) -> Callable[[Draw], Results]:
    def case(draw: Draw) -> Results:
        q, k, v = (draw(2, 256, width, dtype=dtype) for _ in range(3))
        out, sums = torch.empty_like(q), torch.empty(2, 256, dtype=FP32, device=q.device)
        kernel = import_module("tile_kernels").attention
        warps = 4 if width < 128 else 8
        kernel[(2, 2)](q, k, v, out, sums, width**-0.5, 256, width, 128, keys, is_causal, num_warps=warps)
        return {"out": out, "lse": sums}

    return case


def _own_functions(draw: Draw) -> Results:
    count = 1 << 14
    edges = torch.arange(0, 1 << 32, 1 << 18, dtype=torch.int64) + torch.arange(count) * 7919 % (1 << 18)
    x = edges.to(torch.int32).view(FP32).to(draw(1, dtype=FP32).device)
    y, z = draw(count, dtype=FP32, scale=100.0), draw(count, dtype=FP32)
    out = torch.empty(20, count, dtype=FP32, device=x.device)
    near = torch.empty_like(out)
    kernel = import_module("tile_kernels").functions
    kernel[(16,)](x, y, z, out, count, 1024)
    kernel[(16,)](y, z, draw(count, dtype=FP32), near, count, 1024)
    return {"all exponents": out[:, ::32], "near 1": near[:, ::32]}


def _own_sums(draw: Draw) -> Results:
    results, kernel = {}, import_module("tile_kernels").sums
    for m, n, warps in ((1, 1024, 4), (64, 64, 4), (16, 256, 8), (128, 32, 2), (8, 4096, 4)):
        x = draw(m, n, dtype=FP32)
        parts = [torch.empty(size, dtype=FP32, device=x.device) for size in (1, m, n, m * n)]
        kernel[(1,)](x, *parts, m, n, num_warps=warps)
        names = ("whole", "rows", "columns", "running")
        results |= {f"{m}x{n} {warps} {name}": part[:1024] for name, part in zip(names, parts, strict=True)}
    return results


def _fla_gated_delta(draw: Draw) -> Results:
    q, k, v = (draw(1, 128, 2, 64, dtype=BF16) for _ in range(3))
    gates = torch.nn.functional.logsigmoid(draw(1, 128, 2, dtype=FP32).cpu()).to(q.device)
    beta = draw(1, 128, 2, dtype=BF16).cpu().float().sigmoid().bfloat16().to(k.device)
    function = import_module("fla.ops.gated_delta_rule").chunk_gated_delta_rule
    return {"out": function(q, k, v, gates, beta, use_qk_l2norm_in_kernel=True)[0]}


def _fla_forgetting(draw: Draw) -> Results:
    q, k, v = (draw(1, 256, 2, 64, dtype=BF16) for _ in range(3))
    gates = torch.nn.functional.logsigmoid(draw(1, 256, 2, dtype=FP32).cpu()).to(q.device)
    return {"out": import_module("fla.ops.forgetting_attn").parallel_forgetting_attn(q, k, v, gates)}


def _fla_rwkv6(draw: Draw) -> Results:
    r, k, v = (draw(1, 128, 2, 64, dtype=BF16) for _ in range(3))
    w = torch.nn.functional.logsigmoid(draw(1, 128, 2, 64, dtype=FP32).cpu()).to(r.device)
    return {"out": import_module("fla.ops.rwkv6").chunk_rwkv6(r, k, v, w, draw(2, 64, dtype=BF16))[0]}


def _fla_backward(draw: Draw) -> Results:
    q, k, v = (draw(1, 128, 2, 64, dtype=BF16).requires_grad_() for _ in range(3))
    out = import_module("fla.ops.attn").parallel_attn(q, k, v)
    out.backward(draw(1, 128, 2, 64, dtype=BF16))
    return {"out": out.detach(), **{f"d{name}": x.grad for name, x in zip("qkv", (q, k, v), strict=True)}}


def _liger_more(draw: Draw) -> Results:
    layer, softmax = import_module("liger_kernel.ops.layer_norm"), import_module("liger_kernel.ops.softmax")
    swiglu, added = import_module("liger_kernel.ops.swiglu"), import_module("liger_kernel.ops.fused_add_rms_norm")
    x, w, y = draw(16, 2000, dtype=BF16), draw(2000, dtype=BF16), draw(16, 2000, dtype=BF16)
    return {
        "layer_norm": layer.layer_norm_forward(x, w, draw(2000, dtype=BF16), 1e-5)[0],
        "softmax": softmax._softmax_forward(x)[0],
        "swiglu": swiglu.swiglu_forward(x, y)[-1],
        "fused_add_rms_norm": added.fused_add_rms_norm_forward(x, y, w, 1e-6, 0.0, "llama")[0],
    }


def _own_scaled(stages: int) -> Callable[[Draw], Results]:
    """Every pair of formats; a 16-bit operand has no scales. stages: of the compiled loop, which overlaps its
    iterations where there are more than one.
    """

    def case(draw: Draw) -> Results:
        m, n, k, results, kernel = 128, 64, 256, {}, import_module("tile_kernels").scaled_product
        types = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "bf16": BF16}
        pairs = ("e4m3 e4m3", "e5m2 e4m3", "e2m1 e2m1", "e2m1 e4m3", "bf16 e2m1", "e5m2 bf16")
        for a, b in map(str.split, pairs):
            operands = []
            for name, shape in ((a, (m, k)), (b, (k, n))):
                packed = (shape[0], shape[1] // 2) if shape == (m, k) else (shape[0] // 2, shape[1])
                if name == "e2m1":
                    x = draw(*packed, dtype=FP32, scale=60.0).abs().round().clamp(0, 255).to(torch.uint8)
                else:
                    x = draw(*shape, dtype=types[name])
                    x = x.view(torch.uint8) if name[0] == "e" else x
                rows = m if shape == (m, k) else n
                operands += [x, (draw(rows, k // 32, dtype=FP32, scale=3.0).round() + 127).to(torch.uint8)]
            d = torch.empty(m, n, dtype=FP32, device=operands[0].device)
            kernel[(1,)](*operands, d, m, n, k, 64, a, b, a != "bf16", b != "bf16", num_stages=stages)
            results[f"{a} x {b}"] = d
        return results

    return case


def _own_scale_codes(draw: Draw) -> Results:
    """Scales of every second code and of NaN: sums that are subnormal, infinite and NaN."""
    m, n, k, results, kernel = 128, 64, 32, {}, import_module("tile_kernels").scaled_product
    for name, dtype in (("e4m3", torch.float8_e4m3fn), ("e5m2", torch.float8_e5m2)):
        a, b = (draw(*shape, dtype=dtype).view(torch.uint8) for shape in ((m, k), (k, n)))
        a_scale, b_scale = (torch.arange(count, device=a.device) * (256 // count) for count in (m, n))
        a_scale[-1] = 255
        scales = [x.to(torch.uint8)[:, None].contiguous() for x in (a_scale, b_scale)]
        d = torch.empty(m, n, dtype=FP32, device=a.device)
        kernel[(1,)](a, scales[0], b, scales[1], d, m, n, k, k, name, name, True, True)
        results[name] = d
    return results


def _own_scales_alone(draw: Draw) -> Results:
    """bf16 by e2m1 with one step of K: a scale of each code, one at a time, so that no loop overlaps anything."""
    m, n, k, kernel = 128, 16, 64, import_module("tile_kernels").scaled_product
    a, unused = draw(m, k, dtype=BF16), torch.zeros(m, k // 32, dtype=torch.uint8)
    b = draw(k // 2, n, dtype=FP32, scale=60.0).abs().round().clamp(0, 255).to(torch.uint8)
    d = torch.empty(256, m, n, dtype=FP32, device=a.device)
    for code in range(256):
        scales = torch.full((n, k // 32), code, dtype=torch.uint8, device=a.device)
        kernel[(1,)](
            a, unused.to(a.device), b, scales, d[code], m, n, k, k, "bf16", "e2m1", False, True, num_stages=1
        )  # fmt: skip
    return {"bf16 x e2m1": d}


def _own_scaled_steps(draw: Draw) -> Results:
    """bf16 by e2m1 over one to four steps of K, with one stage and with three."""
    m, n, step, results, kernel = 128, 64, 64, {}, import_module("tile_kernels").scaled_product
    for steps in range(1, 5):
        k = steps * step
        a, unused = draw(m, k, dtype=BF16), torch.zeros(m, k // 32, dtype=torch.uint8)
        b = draw(k // 2, n, dtype=FP32, scale=60.0).abs().round().clamp(0, 255).to(torch.uint8)
        scales = (draw(n, k // 32, dtype=FP32, scale=3.0).round() + 127).to(torch.uint8)
        for stages in (1, 3):
            d = torch.empty(m, n, dtype=FP32, device=a.device)
            kernel[(1,)](
                a, unused.to(a.device), b, scales, d, m, n, k, step, "bf16", "e2m1", False, True, num_stages=stages
            )  # fmt: skip
            results[f"{steps} steps, {stages} stages"] = d
    return results


def _fla_slots(draw: Draw) -> Results:
    q, k, v = (draw(1, 192, 2, 64, dtype=BF16) for _ in range(3))
    slots = draw(1, 192, 2, 32, dtype=BF16)
    gates = torch.nn.functional.logsigmoid(draw(1, 192, 2, 32, dtype=FP32).cpu()).to(q.device)
    return {"out": import_module("fla.ops.gsa").chunk_gsa(q, k, v, slots, gates)[0]}


def _fla_lightning(draw: Draw) -> Results:
    q, k, v = (draw(2, 160, 4, 32, dtype=FP16) for _ in range(3))
    return {"out": import_module("fla.ops.lightning_attn").chunk_lightning_attn(q, k, v, 3, 8)[0]}


def _fla_rebased(draw: Draw) -> Results:
    q, k = (draw(1, 3, 192, 32, dtype=BF16) for _ in range(2))
    return {"out": import_module("fla.ops.rebased").parallel_rebased(q, k, draw(1, 3, 192, 128, dtype=BF16))}


def _liger_geglu(draw: Draw) -> Results:
    module = import_module("liger_kernel.ops.geglu")
    return {"out": module.geglu_forward(draw(24, 1500, dtype=FP16), draw(24, 1500, dtype=FP16))[-1]}


def _liger_poly_norm(draw: Draw) -> Results:
    module = import_module("liger_kernel.ops.poly_norm")
    return {"out": module.poly_norm_forward(draw(12, 1300, dtype=BF16), draw(3, dtype=BF16), draw(1, dtype=BF16))[0]}


def _liger_cross_entropy(draw: Draw) -> Results:
    module = import_module("liger_kernel.ops.cross_entropy")
    x = draw(20, 3000, dtype=FP32, scale=3.0).requires_grad_()
    target = draw(20, dtype=FP32, scale=900.0).abs().clamp(0, 2999).to(torch.int64)
    with torch.no_grad():
        loss, _, _, _, grad = module.cross_entropy_forward(x, target, None, -100, 0.0, 0.1, "none", None, False)
    return {"loss": loss, "grad": grad}


CASES: dict[str, Callable[[Draw], Results]] = {
    "tutorial 03, fp16": _tutorial_matmul(FP16, ""),
    "tutorial 03, bf16, leaky ReLU": _tutorial_matmul(BF16, "leaky_relu"),
    "tutorial 03, e4m3": _tutorial_fp8,
    "tutorial 08, grouped": _tutorial_grouped,
    "tutorial 09, persistent": _tutorial_persistent,
    "tutorial 06, fp16, 64": _tutorial_attention(FP16, False, 64),
    "tutorial 06, bf16, causal, 128": _tutorial_attention(BF16, True, 128),
    "tutorial 06, backward": _attention_backward,
    "triton-lang/kernels, matmul": _lang_matmul,
    "batch_invariant_ops, bf16": _invariant(BF16),
    "batch_invariant_ops, fp16": _invariant(FP16),
    "batch_invariant_ops, fp32": _invariant(FP32),
    "batch_invariant_ops, rows": _invariant_rows,
    "fla, parallel attention": _fla_attention,
    "fla, retention by chunks": _fla_retention,
    "fla, linear attention by chunks": _fla_linear,
    "fla, gated linear attention by chunks": _fla_gated,
    "fla, simple gated linear attention": _fla_simple_gated,
    "fla, delta rule by chunks": _fla_delta,
    "fla, based": _fla_based,
    "liger, neighborhood attention": _liger_neighborhood,
    "liger, int8 by int2": _liger_int8,
    "liger, rows": _liger_rows,
    "fla, gated delta rule": _fla_gated_delta,
    "fla, forgetting attention": _fla_forgetting,
    "fla, rwkv6": _fla_rwkv6,
    "fla, parallel attention, backward": _fla_backward,
    "liger, more rows": _liger_more,
    "own, scaled dots": _own_scaled(3),
    "own, scaled dots, one stage": _own_scaled(1),
    "own, scale codes": _own_scale_codes,
    "own, scales of each code, one step": _own_scales_alone,
    "own, scaled dots by steps": _own_scaled_steps,
    "own, functions": _own_functions,
    "own, sums": _own_sums,
    "own, attention, fp16, 64": _own_attention(FP16, False, 64, 64),
    "own, attention, bf16, causal, 64": _own_attention(BF16, True, 64, 32),
    "own, attention, bf16, 128": _own_attention(BF16, False, 128, 64),
    "sageattention, int8": _sage(False),
    "sageattention, int8, causal": _sage(True),
    "fla, gated slot attention": _fla_slots,
    "fla, lightning attention": _fla_lightning,
    "fla, rebased": _fla_rebased,
    "liger, GEGLU": _liger_geglu,
    "liger, PolyNorm": _liger_poly_norm,
    "liger, cross entropy": _liger_cross_entropy,
}
