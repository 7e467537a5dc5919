"""Train a small transformer on simulated matrix units, under seven settings, and draw their loss curves in one figure.

python examples/transformer/train.py --out build/transformer      # all seven, 300 steps each; resumes after a stop
python examples/transformer/train.py --steps 5 --settings h200-bf16 b200-bf16 --out build/short

Weights, activations and everything besides matrix products stay in fp32; a setting says what the products of the linear
layers and of attention are computed on, in all three passes. Initial weights and batches are the same in all settings.
"""

import argparse
import contextlib
import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # PyTorch's idle threads leave the cores to hwsim's
import torch
from model import POSITIONS, Transformer
from text import text
from torch.nn.functional import cross_entropy
from tqdm import tqdm

import hwsim.torch
from hwsim.report.plot_style import COLOURS

BF16 = {"device": "h200", "format": "bf16"}
#: In fp8 the linear layers of the blocks compute so; attention's own products and the last layer stay in bf16.
FP8 = {"device": "h200", "format": "e4m3", "gradient_format": "e5m2", "scale": "power-of-two"}
LAYERS = ("blocks.*.attention.qkv", "blocks.*.attention.out", "blocks.*.up", "blocks.*.down")
SETTINGS = {
    "fp32": None,
    "h200-bf16": BF16,
    "b200-bf16": {"device": "b200", "format": "bf16"},
    "mi300x-bf16": {"device": "mi300x", "format": "bf16"},
    "ascend910a-sgemm-cube": {"device": "ascend910a", "scheme": "sgemm-cube"},
    "h200-e4m3-fast": BF16 | {"modules": dict.fromkeys(LAYERS, FP8 | {"accumulate": "fast"})},
    "h200-e4m3-promoted": BF16 | {"modules": dict.fromkeys(LAYERS, FP8 | {"accumulate": "promoted"})},
}
BATCH = 8


def train(setting, steps, *, seed=0, progress=True):
    """The loss of each step, and the seconds of all."""
    corpus = text(200_000)
    letters = sorted(set(corpus))
    index = {letter: i for i, letter in enumerate(letters)}
    codes = torch.tensor([index[letter] for letter in corpus])
    torch.manual_seed(seed)
    model = Transformer(len(letters))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    generator = torch.Generator().manual_seed(seed + 1)
    losses, start = [], time.perf_counter()
    run = contextlib.nullcontext() if setting is None else hwsim.torch.emulate(measure_every=64, **setting)
    with run as emulation:
        for step in tqdm(range(steps), disable=not progress, unit="step"):
            for group in optimizer.param_groups:
                group["lr"] = 1e-3 * min(1.0, (step + 1) / 20)
            begin = torch.randint(len(codes) - POSITIONS - 1, (BATCH,), generator=generator)
            tokens = torch.stack([codes[i : i + POSITIONS + 1] for i in begin.tolist()])
            logits = model(tokens[:, :-1])
            loss = cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
    seconds = time.perf_counter() - start
    total = None if emulation is None else emulation.record.total().to_dict()
    return {"steps": steps, "losses": losses, "seconds": seconds, "products": total}


def plot(results, path):
    """Loss against step, and below it the difference from fp32's, each a mean of 10 steps."""
    import matplotlib.pyplot as plt

    figure, (above, below) = plt.subplots(2, 1, figsize=(8, 8), sharex=True, layout="constrained")
    for axes in (above, below):
        axes.set_prop_cycle(color=COLOURS[: len(results)])
    mean = {name: torch.tensor(x["losses"]).unfold(0, 10, 1).mean(1) for name, x in results.items()}
    for name, losses in mean.items():
        above.plot(range(10, 10 + len(losses)), losses, label=name, linewidth=1.2)
        below.plot(range(10, 10 + len(losses)), losses - mean.get("fp32", losses), label=name, linewidth=1.2)
    above.set(ylabel="cross-entropy, nats per character", title="1.2 million parameters, mean of 10 steps")
    below.set(xlabel="step", ylabel="difference from fp32, nats")
    above.legend()
    figure.savefig(path)
    plt.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=list(SETTINGS), metavar="NAME")
    parser.add_argument("--out", type=Path, default=Path("build/transformer"))
    parser.add_argument("--no-plot", action="store_true")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    results = {}
    for name in given.settings:
        path = given.out / f"{name}-{given.steps}.json"
        if not path.exists():
            print(f"{name}: {given.steps} steps", file=sys.stderr)
            path.write_text(json.dumps(train(SETTINGS[name], given.steps)))
        results[name] = json.loads(path.read_text())
    print(f"{'setting':<24} {'last loss':>10} {'steps/s':>8} {'GMAC/s':>8}")
    for name, x in results.items():
        rate = "" if x["products"] is None else f"{x['products']['macs'] / x['seconds'] / 1e9:8.2f}"
        last = x["losses"][-10:]
        print(f"{name:<24} {sum(last) / len(last):10.4f} {x['steps'] / x['seconds']:8.2f} {rate:>8}")
    if not given.no_plot and given.steps >= 20:
        plot(results, given.out / "losses.svg")
        print(f"drawn: {given.out / 'losses.svg'}")


if __name__ == "__main__":
    main()
