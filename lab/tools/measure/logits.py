"""Logits of whole models on a GPU beside hwsim's: how far is each from the GPU, and how far is plain PyTorch on a CPU?

    python lab/tools/measure/logits.py record FOLDER                  # a GPU, PyTorch, transformers; no hwsim
    python lab/tools/measure/logits.py compare FOLDER --device h200   # CPU
    python lab/tools/measure/logits.py operators FOLDER --seconds 60  # a GPU and hwsim, both at once

A GPT-2 (768 wide, 2 layers) and a Llama (1024 wide, 2 layers, 16 heads and 4 of keys) with drawn weights, 128 tokens.
Distances are ||x - gpu|| / ||gpu|| over the recorded logits, of all tokens and of every 32nd word.
`operators` gives each operator's own inputs on the GPU to the CPU's and to hwsim's, and counts results that differ:
operators.jsonl, and examples in examples.npz (elements, or whole rows with the row that came out).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

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


class Recorded(NamedTuple):
    """A call of an operator on the GPU, with copies of its operands and results on the CPU."""

    func: Any
    args: tuple[Any, ...]
    keywords: dict[str, Any]
    results: list[torch.Tensor]


class _Calls(TorchDispatchMode):
    """Keeps the calls of operators that compute."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Recorded] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        keywords = kwargs or {}
        if func.is_view or func.overloadpacket.__name__ in ("detach", "empty", "copy_", "clone", "arange"):
            return func(*args, **keywords)
        operands, named = tree_map(_to_cpu, (tuple(args), dict(keywords)))
        result = func(*args, **keywords)
        results = [x.cpu() for x in tree_leaves(result) if isinstance(x, torch.Tensor)]
        if results and results[0].dtype.is_floating_point:
            self.calls.append(Recorded(func, operands, named, results))
        return result


def _to_cpu(x: Any) -> Any:
    if isinstance(x, torch.Tensor):
        return x.cpu().clone(memory_format=torch.preserve_format)
    return torch.device("cpu") if isinstance(x, torch.device) else x


def _again(call: Recorded) -> torch.Tensor:
    """The first result of a call's operands on the CPU; of attention, whose operators are a GPU's, the function's."""
    args, keywords = tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, (call.args, call.keywords))
    if "scaled_dot_product" not in call.func.overloadpacket.__name__:
        return tree_leaves(call.func(*args, **keywords))[0]
    named = {a.name: a.default_value for a in call.func._schema.arguments}
    named |= dict(zip(named, args, strict=False)) | keywords
    return torch.nn.functional.scaled_dot_product_attention(
        named["query"], named["key"], named["value"], named.get("attn_bias"), 0.0, named["is_causal"],
        scale=named.get("scale"), enable_gqa=named["query"].shape[1] != named["key"].shape[1],
    )  # fmt: skip


def _differs(x: torch.Tensor, gpu: torch.Tensor) -> torch.Tensor:
    return (x != gpu) & ~(x.isnan() & gpu.isnan())


def _examples(call: Recorded, ours: torch.Tensor, most: int = 256, rows: int = 4) -> dict[str, np.ndarray]:
    """Where hwsim's result differs: elements with their operands, or whole rows of operands and results."""
    gpu, wrong = call.results[0], _differs(ours, call.results[0])
    tensors = [x for x in tree_leaves(call.args) if isinstance(x, torch.Tensor) and x.dtype.is_floating_point]
    out: dict[str, np.ndarray] = {}
    if any(word in call.func.overloadpacket.__name__ for word in ("mm", "dot_product")):
        return {"places": wrong.nonzero()[:most].int().numpy()}
    try:
        spread = [x.broadcast_to(gpu.shape) for x in tensors]
        is_of_rows = call.func.overloadpacket.__name__ in ("_softmax", "native_layer_norm", "_fused_rms_norm")
    except RuntimeError:
        is_of_rows = True
    if not is_of_rows:
        for name, x in {"gpu": gpu, "hwsim": ours, **{f"operand{i}": x for i, x in enumerate(spread)}}.items():
            out[name] = x[wrong][:most].float().numpy()
        return out
    operand = tensors[0].reshape(-1, tensors[0].shape[-1])
    of_rows = gpu.reshape(operand.shape[0], -1)
    at = wrong.reshape(operand.shape[0], -1).any(1).nonzero()[:rows, 0]
    later = {f"operand{i + 1}": x.float().numpy() for i, x in enumerate(tensors[1:])}
    return {
        "rows": at.int().numpy(), "operand0": operand[at].float().numpy(), "gpu": of_rows[at].float().numpy(),
        "hwsim": ours.reshape(of_rows.shape)[at].float().numpy(), **later,
    }  # fmt: skip


def operators(folder: Path, device: str, seconds: float) -> None:
    """Each operator of each model, fp16 first, until the time is up."""
    import hwsim.torch

    start, arrays, kept = time.time(), dict[str, np.ndarray](), Counter[str]()
    torch.set_grad_enabled(False)
    with (folder / "operators.jsonl").open("w") as file:
        for name, attention, dtype in sorted(settings(), key=lambda x: x[2] != "fp16"):
            if time.time() - start > seconds:
                break
            model, tokens = drawn(name, attention, DTYPES[dtype])
            model, tokens = model.cuda(), tokens.cuda()
            with _Calls() as recorded:
                model(input_ids=tokens)
            plain: list[Any] = []
            for call in recorded.calls:
                try:
                    plain.append(_again(call))
                except (RuntimeError, NotImplementedError) as error:
                    plain.append(str(error).splitlines()[0])
            with hwsim.torch.emulate(device=device, library="pytorch", measure_every=0):
                for index, (call, near) in enumerate(zip(recorded.calls, plain, strict=True)):
                    if time.time() - start > seconds:
                        break
                    gpu, ours = call.results[0], near
                    line = {
                        "model": name, "attention": attention, "dtype": dtype, "index": index,
                        "operator": str(call.func), "result": [str(gpu.dtype), list(gpu.shape)],
                        "operands": [
                            [str(x.dtype), list(x.shape), list(x.stride())] if isinstance(x, torch.Tensor) else repr(x)
                            for x in tree_leaves((call.args, call.keywords))
                        ],
                    }  # fmt: skip
                    try:
                        ours = _again(call)
                    except Exception as error:
                        line["hwsim_error"] = repr(error)[:200]
                    if isinstance(near, torch.Tensor) and near.shape == gpu.shape:
                        line["plain"] = int(_differs(near, gpu).sum())
                    if isinstance(ours, torch.Tensor) and ours.shape == gpu.shape:
                        line["hwsim"] = int(_differs(ours, gpu).sum())
                        key = f"{call.func}/{dtype}"
                        if line["hwsim"] and kept[key] < 4 and "hwsim_error" not in line:
                            kept[key] += 1
                            where = f"{name}/{attention}/{dtype}/{index}"
                            arrays |= {f"{where}/{what}": x for what, x in _examples(call, ours).items()}
                    file.write(json.dumps(line) + "\n")
                    file.flush()
            print(name, attention, dtype, f"{time.time() - start:.0f} s", flush=True)
    np.savez_compressed(folder / "examples.npz", **arrays)


def main() -> int:
    """Run a verb."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("verb", choices=("record", "compare", "operators"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="h200", help="device of hwsim")
    parser.add_argument("--seconds", type=float, default=60, help="after which `operators` stops")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.verb == "record":
        record(given.folder)
        return 0
    if given.verb == "operators":
        operators(given.folder, given.device, given.seconds)
        return 0
    return 0 if compare(given.folder, given.device) else 1


if __name__ == "__main__":
    sys.exit(main())
