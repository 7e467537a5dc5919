"""Pack cuBLASLt's own answers for weights of layers into the file that ships.

    python tools/library/pack_layers.py --out configs/libraries/cublas-13.1.layers.npz --source "DATE, ..." \
        FILE=DEVICE[,DEVICE] [FILE=DEVICE ...]

FILE is what tools/record/cublaslt_layers.py wrote on the first DEVICE; files of one device are joined. Kernels that are
no nvjet ones are the same on all Hopper chips, so that the others may stand behind a comma: FILE's kinds without nvjet
count for them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from hwsim.library_calls.sweeps import CallKind, Recorded, Runs, write
from hwsim.recording.gemm_list import parse

NVJET = 66
CORES = {"h100": 132, "h200": 132}
Weights = dict[tuple[int, int], Runs]


def kind_of(text: str) -> CallKind:
    """From "bf16>bf16+bias 1048576 2"."""
    name, workspace, mask = text.split()
    operand, output, fast, bias = parse(name)
    return CallKind(operand, output, bias, fast, "rows", "columns", int(workspace), int(mask))


def columns(path: Path) -> list[tuple[CallKind, Weights]]:
    """Kinds of a recorder's file with the runs of each weight."""
    with np.load(path) as file:
        answers: list[Recorded] = [tuple(row) for row in file["answers"].tolist()]
        weights = [(n, k) for n, k in file["weights"].tolist()]
        counts, firsts, labels = file["counts"], file["firsts"].tolist(), file["labels"].tolist()
        kinds, largest = [kind_of(text) for text in file["kinds"].tolist()], int(file["largest"])
    found, at = [], 0
    for kind, own in zip(kinds, counts.tolist(), strict=True):
        runs: Weights = {}
        for weight, count in zip(weights, own, strict=True):
            pairs = zip(firsts[at : at + count], labels[at : at + count], strict=True)
            runs[weight] = [*((first, answers[label]) for first, label in pairs), (largest + 1, None)]
            at += count
        found.append((kind, runs))
    return found


def main() -> None:
    """Read, join, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--version", default="13.1")
    parser.add_argument("--source", required=True)
    parser.add_argument("files", nargs="+", metavar="FILE=DEVICE")
    arguments = parser.parse_args()
    found: dict[tuple[CallKind, tuple[str, ...]], Weights] = {}
    for text in arguments.files:
        path, _, names = text.partition("=")
        first, *others = names.split(",")
        for kind, runs in columns(Path(path)):
            has_nvjet = any(answer is not None and answer[0] == NVJET for own in runs.values() for _, answer in own)
            found.setdefault((kind, (first,) if has_nvjet else (first, *others)), {}).update(runs)
    entries = [(kind, devices, runs) for (kind, devices), runs in found.items()]
    write(
        arguments.out, library="cublas", version=arguments.version, source=arguments.source, cores=CORES,
        entries=entries,
    )  # fmt: skip
    print(f"{sum(len(runs) for *_, runs in entries)} sweeps, {arguments.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
