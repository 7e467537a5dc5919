"""Fit hwsim's model of cuBLASLt's choice to its answers, and pack it.

    python lab/tools/library/fit.py --out configs/libraries/cublas-13.1.trees FOLDER=DEVICE [FOLDER=DEVICE ...]

FOLDER holds what lab/tools/record/cublaslt_choices.py wrote on DEVICE. Models of A by columns and of batches start from
the simple call's in --out, which must be there. Takes half an hour on two cores for 50 million
answers. Prints for each tree the share of held-back answers that it gives; of those that it may learn from the last
2 % are held back, and every 50th chunk is left out of all (lab/tools/library/held_back.py takes rows for the tests from
them). Kernels that are no nvjet ones are the same on all Hopper chips, so their trees are fitted once.
"""

from __future__ import annotations

import argparse
import json
import lzma
import pickle
import re
import sys
import time
import zipfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "record"))
from cublaslt_choices import draw
from grow import Grown, grow, leaves, packed, pruned

from hwsim.libraries.cublas.answers.features import BATCH_NAMES, NAMES, batch_features, features
from hwsim.libraries.cublas.answers.tree import unpack
from hwsim.libraries.cublas.answers.vectors import NAMES as VECTOR_NAMES
from hwsim.libraries.cublas.orders.families import NVJET

SHARES_K = 43
HELD_BACK = 0.02
LEFT_OUT = 50  # of so many chunks one is for tests
MOST_SAMPLES, MOST_FURTHER = 4_500_000, 800_000  # MOST_FURTHER: of models of A by columns and of batches
MOST_BASED = 1_200_000  # of models that take the choice of another preference beside the sizes
ORDER_PRICE, UNALIGNED_PRICE, TILE_PRICE = 1.0, 2.0, 9.0  # answers that a leaf must mend
FURTHER_PRICE = 9.0  # the same, of models of A by columns and of batches, for which little room is left
BOTH_PRICE = 4.0  # the same, of batches with A by columns
ORDER = ("id", "stages", "splitk", "reduction", "custom")  # of the answer: what fixes bits
ALGORITHM_AND_SLICES = (0, 2)  # of these: of what the confidence speaks; of rows that are not whole 16 bytes, of all
SHAPE = ("tile", "cluster", "swizzle")  # what fixes time besides; swizzle: of algorithm 43 alone, whose bits it moves
MIB = 1 << 20
SERVING = ("invariant_unaligned", "invariant_vector")  # parts


@dataclass(frozen=True)
class Model:
    """One tree for the order and one for the tile. sources: (part, kind) of the columns that it learns from."""

    operand: str
    a_layout: str
    b_layout: str
    workspace_bytes: int
    reductions: int
    sources: tuple[tuple[str, str], ...]
    aligned: bool | None = None  # rows of whole 16 bytes, or not; None: both
    fast: bool | None = None
    devices: tuple[str, ...] = ("h100", "h200")
    tile: bool = True
    batched: bool = False
    biased: bool = False  # of products with a bias alone, of which the choice is another one
    narrow: bool = False  # of 16-bit results alone
    base: tuple[int, int] | None = None  # workspace and reductions of the model whose choice it takes beside the sizes

    @property
    def is_further(self) -> bool:
        """Whether it learns in what the choice differs from that of the simple call: one product, A by rows."""
        return self.batched or self.a_layout == "columns"

    @property
    def name(self) -> str:
        """Of its entries in the file."""
        words = [self.operand, *([] if self.fast is None else ["fast" if self.fast else "promoted"])]
        words += [self.a_layout, self.b_layout, f"{self.workspace_bytes // 1024}KiB", f"reductions{self.reductions}"]
        words += [] if self.aligned is None else ["aligned" if self.aligned else "unaligned"]
        words += ["narrow"] if self.narrow else []
        words += ["batch"] if self.batched else []
        return "-".join([*words, *self.devices])


def models() -> list[Model]:
    """All that are fitted."""
    found = []
    for fmt in ("fp16", "bf16"):
        plain, narrow, biased = f"{fmt}>fp32", f"{fmt}>{fmt}", f"{fmt}>{fmt}+bias"
        for b in ("rows", "columns"):
            every = tuple((part, plain) for part in ("unaligned", "long_unaligned", "vector", "variants"))
            found.append(Model(fmt, "rows", b, 32 * MIB, 7, every, aligned=False))
            slim = (("narrow", narrow), ("long_unaligned", narrow))
            found.append(Model(fmt, "rows", b, 32 * MIB, 2, slim, aligned=False, tile=False))
            found.append(
                Model(
                    fmt,
                    "rows",
                    b,
                    MIB,
                    2,
                    (("linear", biased), ("linear_unaligned", biased), ("linear_vector", biased)),
                    aligned=False,
                    tile=False,
                )
            )
            slim = (("default_linear", biased), ("default_linear_layers", biased), ("default_vector", biased))
            found.append(Model(fmt, "rows", b, MIB, 7, slim, aligned=False))
            others = (  # kind, workspace, reductions, those of the model that it starts from, parts
                (narrow, 32 * MIB, 7, (32 * MIB, 7), ("default_mm", "default_mm_layers", "default_mm_vector")),
                (biased, MIB >> 10, 2, (MIB, 2), SERVING),
                (narrow, MIB >> 3, 2, (32 * MIB, 2), SERVING),
                (plain, MIB >> 3, 7, (32 * MIB, 7), SERVING),
            )
            for kind, size, mask, base, parts in others:
                own = tuple((part, kind) for part in parts)
                is_narrow = size == 32 * MIB
                found.append(
                    Model(fmt, "rows", b, size, mask, own, aligned=False, tile=False, narrow=is_narrow, base=base)
                )
            for device in ("h200", "h100"):
                parts = ("aligned", "vector", "variants")
                own = tuple((part, plain) for part in (*parts, "long_aligned", "layers"))
                found.append(Model(fmt, "rows", b, 32 * MIB, 7, own, aligned=True, devices=(device,)))
                own = tuple((part, biased) for part in ("linear", "linear_aligned", "linear_vector", "layers"))
                found.append(Model(fmt, "rows", b, MIB, 2, own, aligned=True, devices=(device,), tile=False))
    for device in ("h200", "h100"):
        for fast, kind in ((True, "e4m3>bf16fast"), (False, "e4m3>fp32slow")):
            own = (("aligned", kind), ("variants", kind), ("vector", kind))
            found.append(Model("e4m3", "rows", "columns", 32 * MIB, 7, own, fast=fast, devices=(device,)))
            own = (("scaled", kind), ("layers", kind))
            found.append(Model("e4m3", "rows", "columns", MIB, 7, own, fast=fast, devices=(device,), tile=False))
    for fmt in ("tf32", "fp32", "fp64"):
        kind = f"{fmt}>{'fp64' if fmt == 'fp64' else 'fp32'}"
        for b in ("rows", "columns"):
            own = tuple((part, kind) for part in ("any", "long_any", "layers", "vector", "variants"))
            found.append(Model(fmt, "rows", b, 32 * MIB, 7, own))
            part = "linear_double" if fmt == "fp64" else "linear"
            own = ((part, f"{kind}+bias"), (f"{part}_vector", f"{kind}+bias"))
            found.append(Model(fmt, "rows", b, MIB, 7, own, tile=False, biased=fmt == "fp64"))
    found.append(Model("int8", "rows", "columns", 32 * MIB, 7, (("any", "int8>int32"),)))
    found.append(Model("int8", "rows", "columns", 0, 7, (("int8", "int8>int32"),)))
    return found + further_models()


def further_models() -> list[Model]:
    """Those of A by columns and of batches, which start from the choice of the simple call."""
    found = []
    for fmt in ("fp16", "bf16", "tf32", "fp32", "fp64"):
        kind = f"{fmt}>{'fp64' if fmt == 'fp64' else 'fp32'}"
        for b in ("rows", "columns"):
            for a, part in (("columns", "turned"), ("rows", "batch"), ("columns", "batch_turned")):
                one = Model(fmt, a, b, 32 * MIB, 7, ((part, kind),), tile=False, batched=part != "turned")
                if fmt not in ("fp16", "bf16"):
                    found.append(one)
                    continue
                found.append(replace(one, aligned=False))
                if part == "batch_turned":  # aligned ones are nvjet's without slices, as batches of A by rows are
                    continue
                found += [replace(one, aligned=True, devices=(device,)) for device in ("h200", "h100")]
    return found


def simple(model: Model) -> Model:
    """The model of the simple call that a further one starts from."""
    return next(
        one
        for one in models()
        if (one.operand, one.b_layout, one.aligned) == (model.operand, model.b_layout, model.aligned)
        and (one.workspace_bytes, one.reductions) == (model.workspace_bytes, model.reductions)
        and set(model.devices) <= set(one.devices)
        and not one.is_further
        and one.base is None
    )


def starts_from(model: Model) -> Model | None:
    """The model whose choice another takes beside the sizes; None: it takes none."""
    if model.base is not None:
        workspace, reductions = model.base
        return simple(replace(model, workspace_bytes=workspace, reductions=reductions))
    return simple(model) if model.is_further else None


class Answers:
    """What a folder holds, as (sizes, answers) of a column."""

    def __init__(self, folder: Path, device: str) -> None:
        self.folder, self.device = folder, device
        self.said = json.loads((folder / "choices.json").read_text())
        self.table = np.array(self.said["answers"], np.int64)

    def column(
        self, model: Model, part: str, kind: str, *, left_out: bool = False
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Sizes (rows, 4: m, n, k, batch) and answers (rows, 9), or None where it was not asked. left_out: the chunks
        for tests.
        """
        for one in self.said["columns"]:
            asked = (one.get("workspace_bytes", 32 * MIB), one.get("reductions", 7))
            key = (one["part"], one["kind"], one["a_layout"], one["b_layout"], *asked)
            if key != (part, kind, model.a_layout, model.b_layout, model.workspace_bytes, model.reductions):
                continue
            planes = np.frombuffer(lzma.decompress((self.folder / one["file"]).read_bytes()), np.uint8).reshape(2, -1)
            codes = planes[0] + 256 * planes[1].astype(np.int64)
            wanted = [chunk % LEFT_OUT == LEFT_OUT - 1 for chunk in one["chunks"]]
            chosen = np.repeat(np.array(wanted) == left_out, self.said["chunk"])
            sizes = np.concatenate([draw(part, self.said["seed"], chunk) for chunk in one["chunks"]])
            return sizes[chosen], self.table[codes[chosen]]
        return None


def is_aligned(model: Model, size: np.ndarray) -> np.ndarray:
    """Whether the rows of A, B and C are whole 16 bytes, of 16-bit operands with these sizes."""
    leading = [0 if model.a_layout == "columns" else 2, 1, 2 if model.b_layout == "columns" else 1]
    aligned: np.ndarray = (size[:, leading] % 8 == 0).all(1)
    return aligned


def samples(model: Model, folders: list[Answers]) -> tuple[np.ndarray, np.ndarray]:
    """All that a model may learn from, in an order of chance that is always the same."""
    sizes, answers = [], []
    for folder in folders:
        if folder.device not in model.devices:
            continue
        for part, kind in model.sources:
            if (found := folder.column(model, part, kind)) is not None:
                sizes.append(found[0])
                answers.append(found[1])
    size, answer = np.concatenate(sizes), np.concatenate(answers)
    keep = answer[:, 0] >= 0
    if model.aligned is not None:
        keep &= is_aligned(model, size) == model.aligned
    size, answer = size[keep], answer[keep]
    most = MOST_FURTHER if model.is_further else MOST_BASED if model.base is not None else MOST_SAMPLES
    order = np.random.default_rng(0).permutation(len(size))[:most]
    return size[order], answer[order]


def groups(tree: Grown) -> np.ndarray:
    """Of each node a number for how full and how pure it is."""
    purity = tree.hits / np.maximum(tree.count, 1)
    size = np.minimum(np.log2(np.maximum(tree.count, 1)).astype(int), 12)
    found: np.ndarray = size * 8 + np.minimum((purity * 8).astype(int), 7)
    return found


def shares(group: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Of each group the share right of held-back samples. group: of each sample's leaf."""
    seen = np.bincount(group, minlength=13 * 8).astype(float)
    good = np.bincount(group, weights=right, minlength=13 * 8)
    overall = right.mean() if len(right) else 0.5
    found: np.ndarray = (good + 4 * overall) / (seen + 4)
    return found


def confidences(tree: Grown, at: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Per node, the share right of held-back samples in leaves like it. at: the leaf of each sample."""
    group = groups(tree)
    return shares(group[at], right)[group]


def tree_of(
    values: np.ndarray, labels: np.ndarray, price: float, sure_of: tuple[int, ...] = ()
) -> tuple[bytes, list[list[int]], float, int]:
    """The packed tree, the table of its labels, the share right of what was held back, and its nodes.

    price: samples that a leaf must mend to stay. sure_of: columns of a label of which confidences speak; (): all.
    """
    table, y = np.unique(labels, axis=0, return_inverse=True)
    held = max(2000, int(HELD_BACK * len(y)))
    tree = pruned(grow(values[:, :-held], y[:-held]), price)
    at = leaves(tree, values[:, -held:])
    right = tree.label[at] == y[-held:]
    known = (table[tree.label[at]] == table[y[-held:]])[:, list(sure_of)].all(1) if sure_of else right
    ready = packed(tree, confidences(tree, at, known), np.arange(len(table)))
    return ready.pack(), table.tolist(), float(right.mean()), len(ready.feature)


def simple_choices(model: Model, out: Path, size: np.ndarray) -> np.ndarray:
    """(5, rows): what the model in the file gives for the simple call, as further models take it."""
    with zipfile.ZipFile(out) as file:
        head = json.loads(file.read("head.json"))
        tree = unpack(file.read(f"{model.name}.order"))
    (entry,) = (one for one in head["models"] if one["name"] == model.name)
    labels, _ = tree.leaves(features(*size[:, :3].T))
    return np.array(entry["order"], float)[labels].T


def fitted(
    task: tuple[Model, list[tuple[Path, str]], Path, Path],
) -> tuple[Model, dict[str, object], dict[str, bytes], str]:
    """A model's entry of the header, its trees, and a line that says how good they are."""
    model, given, parts, out = task
    kept = parts / f"{model.name}.pickle"
    if kept.exists():
        found: tuple[Model, dict[str, object], dict[str, bytes], str] = pickle.loads(kept.read_bytes())
        return found
    start = time.time()
    size, answer = samples(model, [Answers(folder, device) for folder, device in given])
    values = batch_features(*size.T) if model.batched else features(*size[:, :3].T)
    order = answer[:, [0, 2, 3, 4, 6]].copy()
    order[order[:, 0] == NVJET, 4] = 0  # another kernel of the same bits
    price = UNALIGNED_PRICE if model.aligned is False else ORDER_PRICE
    before = starts_from(model)
    if before is not None:
        values = np.concatenate([values, simple_choices(before, out, size)])
    if model.is_further:
        price = BOTH_PRICE if model.batched and model.a_layout == "columns" else FURTHER_PRICE
    sure_of = () if model.aligned is False and not model.is_further else ALGORITHM_AND_SLICES
    data, table, right, nodes = tree_of(values, order, price, sure_of)
    entry: dict[str, object] = {
        "name": model.name, "operand": model.operand, "a_layout": model.a_layout, "b_layout": model.b_layout,
        "workspace_bytes": model.workspace_bytes, "reductions": model.reductions, "aligned": model.aligned,
        "fast": model.fast, "batched": model.batched, "biased": model.biased, "narrow": model.narrow,
        "base": before.name if before is not None and model.base is not None else "", "devices": model.devices,
        "asked_on": sorted({device for _, device in given if device in model.devices}), "order": table,
        "samples": len(size), "order_right": round(right, 4),
    }  # fmt: skip
    files = {f"{model.name}.order": data}
    said = f"{model.name}: {len(size)} answers, order {right:.4f} of {nodes} nodes"
    if model.tile:
        shape = answer[:, [1, 8, 5]].copy()
        shape[answer[:, 0] != SHARES_K, 2] = 0
        wide = np.concatenate([values, answer[:, [0, 3]].T.astype(float)])
        data, table, right, nodes = tree_of(wide, shape, TILE_PRICE)
        entry |= {"tile": table, "tile_right": round(right, 4)}
        files[f"{model.name}.tile"] = data
        said += f", tile {right:.4f} of {nodes} nodes"
    done = model, entry, files, f"{said}, {time.time() - start:.0f} s"
    kept.write_bytes(pickle.dumps(done))
    return done


def write(out: Path, head: dict[str, object], files: dict[str, bytes]) -> None:
    """The file of trees."""
    with zipfile.ZipFile(out, "w", zipfile.ZIP_LZMA) as file:
        file.writestr(zipfile.ZipInfo("head.json"), json.dumps(head), zipfile.ZIP_LZMA)
        for name, data in sorted(files.items()):
            file.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_LZMA)
    print(f"{out}: {out.stat().st_size / 1e6:.2f} MB")


def main() -> None:
    """Fit and pack."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="FOLDER=DEVICE")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", default="", help="models whose name matches; the others stay as they are in --out")
    parser.add_argument("--parts", type=Path, default=Path("parts"), help="folder of finished models, to go on from")
    arguments = parser.parse_args()
    arguments.parts.mkdir(parents=True, exist_ok=True)
    given = [(Path(folder), device) for folder, _, device in (x.rpartition("=") for x in arguments.folders)]
    entries, files = [], {}
    tasks = [
        (model, given, arguments.parts, arguments.out) for model in models() if re.search(arguments.only, model.name)
    ]
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for _, entry, own, said in pool.map(fitted, tasks):
            print(said, flush=True)
            entries.append(entry)
            files |= own
    vectors: list[dict[str, object]] = []
    tiles: list[dict[str, object]] = []  # of batches
    if arguments.out.exists():  # what was not fitted here stays
        with zipfile.ZipFile(arguments.out) as file:
            before = json.loads(file.read("head.json"))
            vectors, tiles = before.get("vectors", []), before.get("batch_tiles", [])
            new = {entry["name"] for entry in entries}
            models_left = [one for one in before["models"] if arguments.only and one["name"] not in new]
            entries += models_left
            names = [f"{one['name']}.{x}" for one in (*models_left, *vectors, *tiles) for x in ("order", "tile")]
            files |= {name: file.read(name) for name in file.namelist() if name in names}
    version = Answers(*given[0]).said["version"]
    head = {"library": "cublas", "version": version, "features": [*NAMES, "id", "splitk"], "models": entries}
    head |= {"vectors": vectors, "vector_features": VECTOR_NAMES, "batch_tiles": tiles}
    head |= {"batch_features": [*NAMES, *BATCH_NAMES], "further_features": list(ORDER)}
    head |= {"order_fields": ORDER, "tile_fields": SHAPE}
    head["names"] = json.loads((Path(__file__).resolve().parent / "cublaslt_names.json").read_text())
    write(arguments.out, head, files)


if __name__ == "__main__":
    main()
