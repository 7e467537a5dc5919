"""Logits of whole models on a GPU beside hwsim's: how far is each from the GPU, and how far is plain PyTorch on a CPU?

    python lab/tools/measure/logits.py record FOLDER                  # a GPU, PyTorch, transformers; no hwsim
    python lab/tools/measure/logits.py compare FOLDER --device h200   # CPU

A GPT-2 (768 wide, 2 layers) and a Llama (1024 wide, 2 layers, 16 heads and 4 of keys) with drawn weights, 128 tokens.
Distances are ||x - gpu|| / ||gpu|| over the recorded logits, of all tokens and of every 32nd word.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

SEED, TOKENS, EVERY = 44, 128, 32
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def gpt2(attention: str) -> Any:
    """A GPT-2 without dropout."""
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=2, attn_implementation=attention))


def llama(attention: str) -> Any:
    """A Llama with grouped keys."""
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            hidden_size=1024,
            intermediate_size=2816,
            num_hidden_layers=2,
            num_attention_heads=16,
            num_key_value_heads=4,
            attn_implementation=attention,
        )
    )


MODELS = {"gpt2": gpt2, "llama": llama}


def drawn(name: str, attention: str, dtype: torch.dtype) -> tuple[Any, torch.Tensor]:
    """The model with its weights, the same on every machine, and its tokens."""
    rng, model = np.random.default_rng(SEED), MODELS[name](attention).eval()
    with torch.no_grad():
        for x in model.parameters():
            values = torch.from_numpy(rng.standard_normal(tuple(x.shape), dtype=np.float32))
            x.copy_(values * 0.04 if x.dim() > 1 else 1 + values * 0.1)
    tokens = torch.from_numpy(rng.integers(0, model.config.vocab_size, (1, TOKENS)))
    return model.to(dtype), tokens


def forward(model: Any, tokens: torch.Tensor) -> dict[str, np.ndarray]:
    """Logits and what goes between the layers, in fp32."""
    with torch.no_grad():
        out = model(input_ids=tokens, output_hidden_states=True)
    states = {f"state {i}": x for i, x in enumerate(out.hidden_states)}
    return {name: x[0, :, ::EVERY].float().cpu().numpy() for name, x in {"logits": out.logits, **states}.items()}


def distance(x: np.ndarray, gpu: np.ndarray) -> float:
    """||x - gpu|| / ||gpu||."""
    return float(np.linalg.norm(x.astype(np.float64) - gpu) / np.linalg.norm(gpu.astype(np.float64)))


def settings() -> list[tuple[str, str, str]]:
    """Model, attention, dtype."""
    return [(name, attention, dtype) for name in MODELS for attention in ("sdpa", "eager") for dtype in DTYPES]


def record(folder: Path) -> None:
    """The GPU's."""
    about = {"hardware": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda}
    for name, attention, dtype in settings():
        model, tokens = drawn(name, attention, DTYPES[dtype])
        arrays = forward(model.cuda(), tokens.cuda())
        for key, x in arrays.items():
            arrays[key] = x.astype(np.float16) if dtype == "fp16" else (x.view(np.uint32) >> 16).astype(np.uint16)
        np.savez_compressed(folder / f"{name}_{attention}_{dtype}.npz", about=json.dumps(about), **arrays)
        print(name, attention, dtype, flush=True)


def compare(folder: Path, device: str) -> bool:
    """Prints a line for each; whether every sdpa model's logits by hwsim are nearer than plain PyTorch's by three."""
    import hwsim.torch

    is_nearer = True
    for name, attention, dtype in settings():
        path = folder / f"{name}_{attention}_{dtype}.npz"
        if not path.exists():
            continue
        with np.load(path) as archive:
            gpu = {key: archive[key] for key in archive.files if key != "about"}
        for key, x in gpu.items():
            gpu[key] = x.astype(np.float32) if dtype == "fp16" else (x.astype(np.uint32) << 16).view(np.float32)
        model, tokens = drawn(name, attention, DTYPES[dtype])
        results = {}
        for what in ("hwsim", "plain"):
            begin = time.perf_counter()
            emulation = hwsim.torch.emulate(device=device, library="pytorch") if what == "hwsim" else nullcontext()
            with emulation:
                results[what] = forward(model, tokens)
            seconds = time.perf_counter() - begin
            shares = ", ".join(f"{key} {100 * np.mean(x == gpu[key]):.1f} %" for key, x in results[what].items())
            print(f"{name} {attention} {dtype} {what}: equal: {shares}; {seconds:.0f} s", flush=True)
        ours, plain = (distance(results[what]["logits"], gpu["logits"]) for what in ("hwsim", "plain"))
        print(f"{name} {attention} {dtype}: distance {ours:.3g}, of plain PyTorch {plain:.3g}", flush=True)
        is_nearer &= attention != "sdpa" or 3 * ours <= plain
    return is_nearer


def main() -> int:
    """Run a verb."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("verb", choices=("record", "compare"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="h200", help="device of hwsim")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.verb == "record":
        record(given.folder)
        return 0
    return 0 if compare(given.folder, given.device) else 1


if __name__ == "__main__":
    sys.exit(main())
