"""A figure: a transformer block's linear layers in BF16, FP8 by block, MXFP8 and NVFP4: error, cycles and energy.

    python lab/tools/measure/scaled_layers.py --device b200 --tokens 4096 --out scaled_layers.png

Layers of Llama 3 8B. Cycles and energy are of whole layers. Errors are against the exact product of the operands before
quantisation, relative, in the Frobenius norm, of 64 tokens by 64 outputs over all of K; operands are N(0, 1). Joules
have three levels; where the energy of a format's products comes from stands below the table.
"""

import argparse

import numpy as np

import hwsim
from hwsim.analysis.energy import LEVELS, energies_of, energy

SCHEMES = {
    "BF16": {"scheme": "native", "format": "bf16"},
    "FP8 by block": {"scheme": "fp8-block"},
    "MXFP8": {"scheme": "mxfp8"},
    "NVFP4": {"scheme": "nvfp4"},
}
#: (layer, outputs n, inputs k)
LAYERS = (
    ("query", 4096, 4096),
    ("key, value", 2048, 4096),
    ("output", 4096, 4096),
    ("gate, up", 28672, 4096),
    ("down", 4096, 14336),
)
PART = 64  # tokens and outputs of which the error is taken


def error(device, options, k):
    """Relative error of a part of a layer."""
    rng = np.random.default_rng(k)
    a, b = rng.standard_normal((PART, k)).astype(np.float32), rng.standard_normal((k, PART)).astype(np.float32)
    exact = a.astype(np.float64) @ b
    product = hwsim.matmul(a, b, device=device, **options)
    return float(np.linalg.norm(product - exact) / np.linalg.norm(exact))


def rows(device, tokens):
    """(name, error, cycles, joules at each level, format of the products) of all layers together."""
    table = []
    for name, options in SCHEMES.items():
        cycles, joules, errors, element = 0, dict.fromkeys(LEVELS, 0.0), [], ""
        for _, n, k in LAYERS:
            result = hwsim.run(m=tokens, n=n, k=k, device=device, exact=False, **options)
            cycles += result.cycles
            for level in LEVELS:
                joules[level] += energy(result.times, result.gemm, level).joules
            element = result.gemm.single.a_pieces[0].format
            errors.append(error(device, options, k))
        table.append((name, max(errors), cycles, joules, element))
    return table


def draw(table, device, tokens, out):
    """Three panels of bars."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
    names = [row[0] for row in table]
    for axis, column, label in zip(axes, (1, 2, 3), ("relative error", "cycles", "joules (assumed)"), strict=True):
        heights = [row[column]["typical"] if column == 3 else row[column] for row in table]
        low_high = [[abs(row[3][level] - row[3]["typical"]) for row in table] for level in ("low", "high")]
        axis.bar(names, heights, color="#4477aa", yerr=low_high if column == 3 else None, ecolor="#333333")
        axis.set_ylabel(label)
        axis.tick_params(axis="x", rotation=20)
    axes[0].set_yscale("log")
    figure.suptitle(f"Linear layers of a block of Llama 3 8B, {tokens} tokens, {device}")
    figure.savefig(out, dpi=150)


def main():
    """Print the table, and draw it where a file is named."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="b200")
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--out", help="the figure: .png, .svg or .pdf")
    asked = parser.parse_args()
    table = rows(asked.device, asked.tokens)
    print(f"{'format':14} {'error':>10} {'cycles':>12} {'joules':>10}     low to high")
    for name, wrong, cycles, joules, _ in table:
        low, typical, high = (joules[level] for level in LEVELS)
        print(f"{name:14} {wrong:10.2e} {cycles:12,} {typical:10.4f}  {low:.4f} to {high:.4f}")
    for element in dict.fromkeys(row[4] for row in table):
        entry = energies_of(asked.device).mac_pj[element]
        print(f"{element}: {entry.low} to {entry.high} pJ a product, assumed: {entry.source}")
    if asked.out:
        draw(table, asked.device, asked.tokens, asked.out)


if __name__ == "__main__":
    main()
