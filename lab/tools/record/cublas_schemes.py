"""Run schemes as sequences of cuBLAS calls and fp32 elementwise steps (by way of PyTorch), and keep a block of each.

    python lab/tools/record/cublas_schemes.py --out schemes.npz [--seed 1] [--draw 40]

Needs a GPU, PyTorch with CUDA, and NumPy; nothing of hwsim. Every product is one call over all of K; shapes are large
enough that cuBLAS does not split K. Kept: the leading rows of A and of B transposed, and the leading block of each C.
Plain fp32 products on the CUDA cores are kept too, and of them shapes of which some do split.

With --draw N the shapes are drawn: half multiples of 64, a quarter of 8, a quarter of nothing, K to 16384, m or n of 1
among them, so that cuBLAS takes all kinds of kernels and splits K; of every scheme each product is then a call that
adds to the C of those before. Operands are not kept: (seed, index) gives them again.
"""

import argparse
import json

import numpy as np
import torch

BLOCK = 24
SHAPES = ((1024, 1024, 256), (1024, 1024, 1000), (2048, 1536, 2048), (1000, 1200, 72))
PLAIN = ((1024, 1024, 1024), (2048, 2048, 512), (512, 384, 1000), (4096, 4096, 64), (300, 500, 333), (128, 128, 4096))
DRAWS = ("normal", "uniform", "wide", "mixed")


def drawn(kind: str, rng: np.random.Generator, rows: int, k: int) -> np.ndarray:
    """fp32 operands: N(0, 1), [0, 1), exponents from -60 to 10, or N(0, 1) with zeros, -0 and fp32 subnormals."""
    if kind == "normal":
        return rng.standard_normal((rows, k), np.float32)
    if kind == "uniform":
        return rng.random((rows, k), np.float32)
    bits = rng.integers(0, 1 << 32, (rows, k), dtype=np.uint32)
    if kind == "wide":
        exponent = rng.integers(127 - 60, 127 + 10, (rows, k), dtype=np.uint32)
        return (bits & np.uint32(0x807FFFFF) | exponent << np.uint32(23)).view(np.float32)
    x = rng.standard_normal((rows, k), np.float32)
    which = rng.integers(0, 8, (rows, k))
    x[which == 0] = 0
    x[which == 1] = -0.0
    return np.where(which == 2, (bits & np.uint32(0x807FFFFF)).view(np.float32), x)


def tf32(x: torch.Tensor) -> torch.Tensor:
    """Nearest even to 10 fraction bits."""
    bits = x.view(torch.int32)
    return ((bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)


def multiply(a: torch.Tensor, b: torch.Tensor, *, use_tf32: bool = False) -> torch.Tensor:
    """a (m, k) times b (n, k) transposed, fp32 result, one call."""
    torch.backends.cuda.matmul.allow_tf32 = use_tf32
    return torch.mm(a, b.t()) if a.dtype == torch.float32 else torch.mm(a, b.t(), out_dtype=torch.float32)


def multiword(a: torch.Tensor, b: torch.Tensor, count: int) -> torch.Tensor:
    """tf32x1, x3, x4: accumulating calls."""
    a1, b1 = tf32(a), tf32(b)
    a2, b2 = tf32(a - a1), tf32(b - b1)  # kernels of FP32, which some shapes get, would take what is not rounded
    pairs = ((a1, b1), (a1, b2), (a2, b1), (a2, b2))[:count]
    c = multiply(*pairs[0], use_tf32=True)
    for x, y in pairs[1:]:
        c = torch.addmm(c, x, y.t())
    return c


def halves(x: torch.Tensor, shift: int) -> list[torch.Tensor]:
    """Two fp16 pieces, the low one times 2^shift."""
    high = x.half()
    return [high, ((x - high.float()) * 2.0**shift).half()]


def cube(a: torch.Tensor, b: torch.Tensor, shift: int) -> torch.Tensor:
    """sgemm-cube, termwise."""
    (a1, a2), (b1, b2) = halves(a, shift), halves(b, shift)
    small = multiply(a1, b2) + multiply(a2, b1)
    return multiply(a1, b1) + small * 2.0**-shift


def thirds(x: torch.Tensor) -> list[torch.Tensor]:
    """Three bf16 pieces."""
    p0 = x.bfloat16()
    p1 = (x - p0.float()).bfloat16()
    return [p0, p1, (x - p0.float() - p1.float()).bfloat16()]


def bf16(a: torch.Tensor, b: torch.Tensor, last: int) -> torch.Tensor:
    """bf16x9 (last 4), x6 (2), x3 (1), termwise: products i + j from `last` down to 0."""
    p, q = thirds(a), thirds(b)
    c = None
    for band in range(last, -1, -1):
        for i in range(3):
            if 0 <= band - i < 3:
                product = multiply(p[i], q[band - i])
                c = product if c is None else c + product
    return c


def calls(p: list[torch.Tensor], q: list[torch.Tensor], pairs: tuple[tuple[int, int], ...], shift: int = 0):
    """Products of pieces, each a call that adds to C: the first as it is, the others times 2^-shift (alpha)."""
    c = None
    for i, j in pairs:
        if c is None:
            c = multiply(p[i], q[j])
        else:
            c = torch.addmm(c, p[i], q[j].t(), out_dtype=torch.float32, alpha=2.0**-shift)
    return c


def in_turn(p: list[torch.Tensor], q: list[torch.Tensor], pairs: tuple[tuple[int, int], ...], shift: int = 0):
    """Products of pieces, each a call that adds to C; before the last, C is multiplied by 2^-shift (beta)."""
    c = None
    for index, (i, j) in enumerate(pairs):
        if c is None:
            c = multiply(p[i], q[j])
        else:
            beta = 2.0**-shift if index + 1 == len(pairs) else 1.0
            c = torch.addmm(c, p[i], q[j].t(), out_dtype=torch.float32, beta=beta)
    return c


def bands(last: int) -> tuple[tuple[int, int], ...]:
    """The products of bf16x9 (last 4), x6 (2) and x3 (1)."""
    return tuple((i, band - i) for band in range(last, -1, -1) for i in range(3) if 0 <= band - i < 3)


SCHEMES = {
    "tf32x1": lambda a, b: multiword(a, b, 1),
    "tf32x3": lambda a, b: multiword(a, b, 3),
    "tf32x4": lambda a, b: multiword(a, b, 4),
    "sgemm-cube.11": lambda a, b: cube(a, b, 11),
    "sgemm-cube.12": lambda a, b: cube(a, b, 12),
    "sgemm-cube.6": lambda a, b: cube(a, b, 6),
    "bf16x9": lambda a, b: bf16(a, b, 4),
    "bf16x6": lambda a, b: bf16(a, b, 2),
    "bf16x3": lambda a, b: bf16(a, b, 1),
    # The calls of Ape's released code (github JohndeVostok/APE, src/gemm_fp32_fp32f.cpp and _fp32b.cpp), and Markidis'.
    "ape-fp32-f": lambda a, b: calls(halves(a, 12), halves(b, 12), ((0, 0), (1, 0), (0, 1)), 12),
    "ape-fp32-b": lambda a, b: calls(thirds(a), thirds(b), ((0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (0, 2))),
    "markidis": lambda a, b: calls(halves(a, 0), halves(b, 0), ((1, 1), (0, 1), (1, 0), (0, 0))),
}

#: The same with every product a call that adds to C.
ADDING = SCHEMES | {
    **{
        f"sgemm-cube.{shift}": lambda a, b, s=shift: in_turn(halves(a, s), halves(b, s), ((0, 1), (1, 0), (0, 0)), s)
        for shift in (6, 11, 12)
    },
    "bf16x9": lambda a, b: in_turn(thirds(a), thirds(b), bands(4)),
    "bf16x6": lambda a, b: in_turn(thirds(a), thirds(b), bands(2)),
    "bf16x3": lambda a, b: in_turn(thirds(a), thirds(b), bands(1)),
}
UNITS = np.array([64, 64, 8, 1])


def shapes(count: int, seed: int) -> list[tuple[int, int, int]]:
    """Drawn (m, n, k), log-uniform; one in twelve has m or n of 1."""
    rng, found = np.random.default_rng([seed, count]), []
    for _ in range(count):
        unit = int(UNITS[rng.integers(len(UNITS))])
        sizes = [int(2 ** rng.uniform(3, 12.5)), int(2 ** rng.uniform(3, 12.5)), int(2 ** rng.uniform(4, 14))]
        sizes = [max(size // unit, 1) * unit for size in sizes]
        if rng.random() < 1 / 12:
            sizes[int(rng.integers(2))] = 1
        found.append((sizes[0], sizes[1], sizes[2]))
    return found


def kernels(work) -> list[str]:
    """Names of the device kernels that `work` starts."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        work()
        torch.cuda.synchronize()
    return [event.key for event in profile.key_averages()]


def main() -> None:
    """Record and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--draw", type=int, default=0, help="this many drawn shapes instead of the listed ones")
    arguments = parser.parse_args()
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    arrays, entries = {}, []
    cases = [(shape, kind, SCHEMES) for shape in SHAPES for kind in DRAWS]
    cases += [(shape, "normal", {"fp32": multiply}) for shape in PLAIN]
    cases += [(PLAIN[0], "wide", {"fp32": multiply}), (PLAIN[2], "mixed", {"fp32": multiply})]
    if arguments.draw:
        drawn_shapes = shapes(arguments.draw, arguments.seed)
        cases = [(shape, DRAWS[index % len(DRAWS)], ADDING) for index, shape in enumerate(drawn_shapes)]
    for index, ((m, n, k), kind, schemes) in enumerate(cases):
        rng = np.random.default_rng([arguments.seed, index])
        a, bt = drawn(kind, rng, m, k), drawn(kind, rng, n, k)
        if not arguments.draw:
            arrays[f"{index}/a"], arrays[f"{index}/bt"] = a[:BLOCK].copy(), bt[:BLOCK].copy()
        left, right = torch.from_numpy(a).cuda(), torch.from_numpy(bt).cuda()
        for name, scheme in schemes.items():
            d = scheme(left, right)[:BLOCK, :BLOCK].contiguous().cpu().numpy()
            arrays[f"{index}/{name}/d"] = d
            entries.append(
                {"case": index, "scheme": name, "m": m, "n": n, "k": k, "operands": kind}
                | {"kernels": kernels(lambda s=scheme, x=left, y=right: s(x, y))}
            )
    meta = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "seed": arguments.seed,
        "entries": entries,
    }
    np.savez_compressed(arguments.out, meta=np.array(json.dumps(meta)), **arrays)
    print(f"{len(entries)} results of {len(cases)} cases kept")


if __name__ == "__main__":
    main()
