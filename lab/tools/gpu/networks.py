"""Networks on an NVIDIA GPU with other chips' bits: GPT-2 forward and backward, and a small model's training.

    python lab/tools/gpu/networks.py gpt2 --chips ascend910a:fp16 v100:fp16 --json gpt2.json
    python lab/tools/gpu/networks.py train --chips ascend910a:fp16 v100:fp16 mi250:bf16 h200:e4m3 --out build/training

gpt2: 124 million random parameters, 128 tokens; seconds of a pass by the engine cuda, with tensors on the GPU, and by
the CPU's kernels, and whether loss and gradients have equal bits. train: 200 steps of 10.8 million parameters, beside
PyTorch's own FP32 products; draws losses.svg from the files of --out, also without a GPU where all are there.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

import hwsim.torch
from hwsim.backend.by_name import CUDA

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "transformer"
WIDTH, HEADS, BLOCKS, WORDS, POSITIONS = 768, 12, 12, 50257, 1024  # of GPT-2
TOKENS = 128
SMALL = {"WIDTH": 384, "HEADS": 6, "BLOCKS": 6, "POSITIONS": 256}  # of the model that is trained
BATCH, WARM_UP, RATE = 16, 20, 1e-3
FP8 = ("e4m3", "e5m2")
#: PyTorch's own products, twice: their sums on a GPU, and so the losses, differ from run to run.
PLAIN = ("FP32", "FP32 again")
MEAN = 10  # steps of which a curve shows the mean


class Block(nn.Module):
    """One of GPT-2's."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (batch, length, WIDTH)."""
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        y = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    """GPT-2 of 124 million parameters; the last layer has the embedding's weights."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(WORDS, WIDTH), nn.Embedding(POSITIONS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.norm = nn.LayerNorm(WIDTH)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits of tokens (batch, length)."""
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return nn.functional.linear(self.norm(x), self.token.weight)


def settings_of(chip: str, engine: str) -> dict[str, Any]:
    """Arguments of hwsim.torch.emulate for DEVICE:FORMAT."""
    device, _, fmt = chip.partition(":")
    more = {"gradient_format": "e5m2", "scale": "power-of-two", "accumulate": "fast"} if fmt in FP8 else {}
    return {"device": device, "format": fmt, "engine": engine, "measure_every": 1 << 20, **more}


def gpt2(chips: list[str], turns: int, with_cpu: bool, file: Path | None) -> int:
    """Seconds of passes; returns how many chips' bits differ between the engines."""
    torch.manual_seed(0)
    model = Gpt2().cuda()
    tokens = torch.randint(WORDS, (1, TOKENS + 1), device="cuda")
    found: dict[str, Any] = {"parameters": sum(x.numel() for x in model.parameters())}
    differ = 0
    for chip in chips:
        bits = {}
        for engine in (CUDA, "cpu") if with_cpu else (CUDA,):
            seconds = []
            for _ in range(turns if engine == CUDA else 1):
                model.zero_grad(set_to_none=True)
                torch.cuda.synchronize()
                start = time.perf_counter()
                with hwsim.torch.emulate(**settings_of(chip, engine)):
                    loss = cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
                    torch.cuda.synchronize()
                    forward = time.perf_counter() - start
                    loss.backward()
                torch.cuda.synchronize()
                seconds.append((forward, time.perf_counter() - start))
            bits[engine] = [loss.detach().cpu(), *(x.grad.cpu() for x in model.parameters() if x.grad is not None)]
            found[f"{chip} {engine}"] = {"forward_s": min(seconds)[0], "both_s": min(s for _, s in seconds)}
            print(chip, engine, found[f"{chip} {engine}"], flush=True)
        if with_cpu:
            pairs = zip(bits[CUDA], bits["cpu"], strict=True)
            are_equal = all(torch.equal(x.view(torch.int32), y.view(torch.int32)) for x, y in pairs)
            differ += not are_equal
            found[f"{chip} equal"] = are_equal
            print(chip, "equal bits" if are_equal else "bits differ", flush=True)
        if file is not None:
            file.write_text(json.dumps(found, indent=1) + "\n")
    return differ


def trained(chip: str | None, steps: int, engine: str) -> dict[str, Any]:
    """The loss of each step, and the seconds of all. chip: None for PyTorch's own FP32 products."""
    sys.path.insert(0, str(EXAMPLE))
    import model as example  # optional
    from text import text  # optional

    for name, value in SMALL.items():
        setattr(example, name, value)
    corpus = text(200_000)
    letters = sorted(set(corpus))
    codes = torch.tensor([letters.index(letter) for letter in corpus])
    torch.manual_seed(0)
    model = example.Transformer(len(letters)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.1)
    generator = torch.Generator().manual_seed(1)
    losses, start = [], time.perf_counter()
    length = SMALL["POSITIONS"]
    with contextlib.nullcontext() if chip is None else hwsim.torch.emulate(**settings_of(chip, engine)):
        for step in range(steps):
            for group in optimizer.param_groups:
                group["lr"] = RATE * min(1.0, (step + 1) / WARM_UP)
            begin = torch.randint(len(codes) - length - 1, (BATCH,), generator=generator)
            tokens = torch.stack([codes[i : i + length + 1] for i in begin.tolist()]).cuda()
            loss = cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
    parameters = sum(x.numel() for x in model.parameters())
    return {"losses": losses, "seconds": time.perf_counter() - start, "parameters": parameters, "engine": engine}


def plot(results: dict[str, dict[str, Any]], path: Path) -> None:
    """Loss against step, and below it the difference from FP32's, each a mean of 10 steps."""
    import matplotlib.pyplot as plt  # optional

    from hwsim.report.plot_style import COLOURS

    figure, (above, below) = plt.subplots(2, 1, figsize=(8, 7), sharex=True, layout="constrained")
    mean = {name: torch.tensor(x["losses"]).unfold(0, MEAN, 1).mean(1) for name, x in results.items()}
    for colour, (name, losses) in zip(COLOURS, mean.items(), strict=False):
        steps = range(MEAN, MEAN + len(losses))
        above.plot(steps, losses, label=name, linewidth=1.2, color=colour)
        below.plot(steps, losses - mean[PLAIN[0]], label=name, linewidth=1.2, color=colour)
    above.set(ylabel="cross-entropy, nats per character", title="10.8 million parameters, mean of 10 steps")
    below.set(xlabel="step", ylabel="difference from FP32, nats")
    above.legend()
    figure.savefig(path)
    plt.close(figure)


def train(chips: list[str], steps: int, engine: str, folder: Path) -> None:
    """Train under each chip whose file is not there, and draw the losses."""
    folder.mkdir(parents=True, exist_ok=True)
    results = {}
    for name, chip in {**dict.fromkeys(PLAIN), **dict(zip(chips, chips, strict=True))}.items():
        file = folder / f"{name.replace(':', '-').replace(' ', '-')}-{steps}.json"
        if not file.exists():
            file.write_text(json.dumps(trained(chip, steps, engine)) + "\n")
        results[name] = json.loads(file.read_text())
        last = results[name]["losses"][-MEAN:]
        print(f"{name}: {sum(last) / len(last):.4f}, {results[name]['seconds']:.1f} s", flush=True)
    if steps >= MEAN:
        plot(results, folder / "losses.svg")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("gpt2", "train"))
    parser.add_argument("--chips", nargs="*", default=["ascend910a:fp16"], metavar="DEVICE:FORMAT")
    parser.add_argument("--steps", type=int, default=200, help="of train (200)")
    parser.add_argument("--turns", type=int, default=3, help="of gpt2, of which the fastest counts (3)")
    parser.add_argument("--engine", default=CUDA, help="of train (cuda)")
    parser.add_argument("--no-cpu", action="store_true", help="gpt2 without the CPU's kernels")
    parser.add_argument("--out", type=Path, default=Path("build/training"), help="folder of train")
    parser.add_argument("--json", type=Path, help="file of what gpt2 found")
    chosen = parser.parse_args()
    torch.use_deterministic_algorithms(True, warn_only=True)
    if chosen.what == "gpt2":
        return int(gpt2(chosen.chips, chosen.turns, not chosen.no_cpu, chosen.json) > 0)
    train(chosen.chips, chosen.steps, chosen.engine, chosen.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
