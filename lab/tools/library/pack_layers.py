"""Pack cuBLASLt's own answers for weights of layers into the file that ships.

    python lab/tools/library/pack_layers.py --out configs/libraries/cublas-13.1.layers.npz --source "DATE, ..." \
        FILE=DEVICE[,DEVICE] [FILE=DEVICE ...]

FILE is what lab/tools/record/cublaslt_layers.py wrote on the first DEVICE; files of one device are joined. Kernels that
are no nvjet ones are the same on all Hopper chips, so that the others may stand behind a comma: FILE's kinds without
nvjet count for them, where they have no answers of their own.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from hwsim.libraries.cublas.answers.sweeps import CallKind, Recorded, Runs, write
from hwsim.libraries.cublas.orders.families import NVJET
from hwsim.libraries.cublas.versions import versions
from hwsim.libraries.recording.gemm_list import parse

Weights = dict[tuple[int, int], Runs]
Entry = tuple[CallKind, tuple[str, ...], Weights]


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


def entries_of(files: Iterable[str]) -> list[Entry]:
    """The answers of all files, FILE=DEVICE[,DEVICE] each: one entry per kind and device, and one for several devices
    with the same answers.
    """
    own: dict[tuple[CallKind, str], Weights] = {}
    implied: dict[tuple[CallKind, str], Weights] = {}
    for text in files:
        path, _, names = text.partition("=")
        first, *others = names.split(",")
        for kind, runs in columns(Path(path)):
            own.setdefault((kind, first), {}).update(runs)
            if not any(answer is not None and answer[0] == NVJET for one in runs.values() for _, answer in one):
                for other in others:
                    implied.setdefault((kind, other), {}).update(runs)
    found: list[Entry] = []
    for kind, device in dict.fromkeys([*own, *implied]):
        weights = implied.get((kind, device), {}) | own.get((kind, device), {})
        for place, (same, devices, there) in enumerate(found):
            if same == kind and there == weights:
                found[place] = (kind, (*devices, device), weights)
                break
        else:
            found.append((kind, (device,), weights))
    return found


def main() -> None:
    """Read, join, write."""
    cores = {one.version: one.devices for one in versions()}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--version", choices=tuple(cores), default=versions()[0].version)
    parser.add_argument("--source", required=True)
    parser.add_argument("files", nargs="+", metavar="FILE=DEVICE")
    arguments = parser.parse_args()
    entries = entries_of(arguments.files)
    write(
        arguments.out, library=versions()[0].library, version=arguments.version, source=arguments.source,
        cores=cores[arguments.version], entries=entries,
    )  # fmt: skip
    print(f"{sum(len(runs) for *_, runs in entries)} sweeps, {arguments.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
