"""Batch classes by the fitted choice beside those by cuBLASLt's own answers, for weights that were asked at every m.

    python lab/tools/library/compare_sweeps.py tests/golden/h200_library/drawn_h100.npz --device h100 [--beside]

FILE holds answers as `library=` takes them (lab/tools/library/pack_layers.py writes it), to which nothing was fitted.
Of each kind, over the m of lab/tools/record/batch_classes.py: weights that have exactly the library's partition by
`hwsim.invariance` (an order told apart may still give the same bits), and the share of single m whose order of
summation is the library's. Weights whose answers ship are left out; --weights takes a seeded sample of the others, and
--beside those that stand beside one whose answers ship (hwsim/libraries/cublas/answers/neighbours.py).
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

from compare_classes import partition

import hwsim
from hwsim.libraries.cublas.answers.neighbours import near
from hwsim.libraries.cublas.answers.sweeps import CallKind, read, shipped
from hwsim.libraries.cublas.versions import versions

SIZES = (
    *(1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 17, 24, 31, 32, 33, 40, 48, 63, 64, 65, 80, 96, 100, 112, 128, 129, 144, 160),
    *(192, 200, 224, 256, 257, 288, 320, 384, 448, 512, 513, 640, 768, 1000, 1024, 1280, 1536, 2048, 3072, 4096),
    *(6144, 8192),
)


def labels(library: str, device: str, kind: CallKind, n: int, k: int) -> list:
    """Of each of SIZES, by the fitted choice or a file's answers."""
    accumulate = None if kind.fast is None else "fast" if kind.fast else "promoted"
    return hwsim.invariance(
        n=n, k=k, m=SIZES, device=device, library=library, format=kind.operand, output=kind.output, bias=kind.bias,
        accumulate=accumulate, a_layout=kind.a_layout, b_layout=kind.b_layout,
    )  # fmt: skip


def compared(
    path: Path, device: str, weights: int = 0, seed: int = 1, *, beside: bool = False
) -> dict[CallKind, tuple[int, int, float]]:
    """Of each kind: weights with the library's partition, how many there are, and the share of single m right.

    weights: so many, of a sample with this seed; 0: all. beside: those beside one whose answers ship alone; a kind
    that has none is left out.
    """
    found = {}
    for (name, kind), sweep in read(path).by_kind.items():
        if name != device:
            continue
        answers = shipped(versions()[0].layers)
        known = [divmod(int(key), 1 << 32) for key in sweep.keys]
        known = [weight for weight in known if not answers.kinds(device, *weight)]
        if beside and (own := answers.sweep(device, kind)) is not None:
            known = [weight for weight in known if any(near(own, kind.operand, SIZES, *weight))]
        if not known:
            continue
        chosen = random.Random(seed).sample(known, min(weights or len(known), len(known)))
        exact = right = 0
        for n, k in chosen:
            own, library = (labels(by, device, kind, n, k) for by in ("cublas", str(path)))
            exact += partition(own) == partition(library)
            right += sum(a == b for a, b in zip(own, library, strict=True))
        found[kind] = exact, len(chosen), right / (len(chosen) * len(SIZES))
    return found


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--device", required=True)
    parser.add_argument("--weights", type=int, default=0, help="so many of them; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--beside", action="store_true", help="those beside one whose answers ship")
    arguments = parser.parse_args()
    found = compared(arguments.file, arguments.device, arguments.weights, arguments.seed, beside=arguments.beside)
    for kind, (exact, count, share) in found.items():
        text = f"{arguments.device} {kind.text}: {exact} of {count} weights have the library's partition"
        print(f"{text}; m: {share:.4f}")


if __name__ == "__main__":
    main()
