"""Models of Hugging Face's transformers, small and with random weights: forward, backward, layer by layer."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch", reason="needs hwsim[torch]")
transformers = pytest.importorskip("transformers", reason="needs hwsim[models]")

from torch_cases import same  # noqa: E402

import hwsim.torch  # noqa: E402

SIZES = {"vocab_size": 128}
WIDE = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}


def _gpt2(attention):
    config = transformers.GPT2Config(
        n_layer=2,
        n_embd=64,
        n_head=4,
        n_positions=32,
        bos_token_id=0,
        eos_token_id=0,
        attn_implementation=attention,
        **SIZES,
    )
    return transformers.GPT2LMHeadModel(config)


def _llama(attention):
    config = transformers.LlamaConfig(num_key_value_heads=2, attn_implementation=attention, **WIDE, **SIZES)
    return transformers.LlamaForCausalLM(config)


def _bert(attention):
    return transformers.BertForSequenceClassification(
        transformers.BertConfig(attn_implementation=attention, **WIDE, **SIZES)
    )


MODELS = {"gpt2": _gpt2, "llama": _llama, "bert": _bert}
DEVICES = {
    "h100": {"device": "h100", "library": "pytorch"},
    "mi300x": {"device": "mi300x", "library": "pytorch"},
    "b200": {"device": "b200"},
    "ascend910b3": {"device": "ascend910b3"},
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("name", MODELS)
def test_models_run_forward_and_backward(name, attention, device):
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = MODELS[name](attention).bfloat16().eval()
    ids = torch.randint(0, 128, (2, 9))
    with hwsim.torch.emulate(**DEVICES[device], measure_every=0) as run:
        logits = model(input_ids=ids).logits
        logits.float().square().mean().backward()
    plain = model(input_ids=ids).logits
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert torch.linalg.vector_norm((logits - plain).float()) < 0.05 * torch.linalg.vector_norm(plain.float())
    is_fused = attention == "sdpa" and "library" in DEVICES[device]
    substituted = run.record.substituted
    assert not run.not_caught
    assert all("ATTENTION" in kernel for kernel in substituted) and bool(substituted) == is_fused
    if device == "h100":  # whose fused kernels have a known order forward
        assert all(kernel.startswith("the backward pass of") for kernel in substituted)
    assert bool(run.record.unknown_orders) == (device == "mi300x") and not run.record.uncounted
    if "library" in DEVICES[device]:
        assert (run.record.library_share == 1) == (not is_fused and device != "mi300x")
    else:
        assert run.record.library_share is None and run.verdict.computed == 1


@pytest.mark.parametrize("name", MODELS)
def test_each_layer_is_the_call_by_hand(name):
    """Every product of the model with eager attention: the bits of hwsim.matmul for its operands."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = MODELS[name]("eager").bfloat16().eval()
    seen = []
    with hwsim.torch.emulate(device="h200", measure_every=0) as run, torch.no_grad():
        run.record.observer = lambda place, a, b, out, gemm: seen.append(
            (place, a.clone(), b.clone(), out.clone(), gemm)
        )
        model(input_ids=torch.randint(0, 128, (2, 9)))
    assert len(seen) == run.record.total().calls >= 12
    for place, a, b, out, gemm in seen:
        if gemm.problem.bias is not None or gemm.problem.has_c:
            continue
        fmt = "bf16" if out.dtype == torch.bfloat16 else "fp32"  # Llama's rotary angles are a product in fp32
        got = hwsim.matmul(a.float().numpy(), b.float().numpy(), device="h200", format=fmt, output=fmt)
        assert same(torch.from_numpy(got.astype("float32")).to(out.dtype), out), place
