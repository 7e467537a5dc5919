"""Recorded bits beside the GPU's: golden sets of instructions, and the manifest's runs. engine.py is its command."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import sys
import time
import warnings
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache, partial
from pathlib import Path
from typing import Any

from every_product import COUNTS, every_product

from hwsim.backend.by_name import CUDA
from hwsim.backend.cuda import unit_programs
from hwsim.backend.cuda.backend import cuda_backend
from hwsim.backend.cuda.device import compiled
from hwsim.backend.cuda.source import program_text
from hwsim.devices import load
from hwsim.devices.query import dot_spec
from hwsim.golden import simulated
from hwsim.golden.verify import all_sets, golden_files, verify
from hwsim.numerics.units import DotSpec

MANIFEST = Path(__file__).resolve().parents[3] / "tests" / "manifest"
KEPT_AFTER = 20  # runs of the manifest, after which the file is written again


def specs_of(paths: list[Path]) -> list[DotSpec]:
    """The dot units of golden sets."""
    named = dict.fromkeys((meta.device, golden.instruction) for _, meta, golden in all_sets(paths))
    return list(dict.fromkeys(dot_spec(load(device), instruction) for device, instruction in named))


def golden(paths: list[Path], results: int | None, workers: int, file: Path | None) -> int:
    """Golden sets with every product on the GPU; returns the number of results that differ."""
    every_product()
    unit_programs.MOST_TERMS_OF_FEWER = 0  # a unit's sets are small: one program computes them
    with ProcessPoolExecutor(workers) as pool:  # before this process has the GPU
        texts = [program_text(spec, divided=False) for spec in specs_of(paths)]
        for done, _ in enumerate(pool.map(compiled, texts), 1):
            if done % 10 == 0 or done == len(texts):
                print(f"{done} of {len(texts)} programs compiled", flush=True)
    known: dict[str, Any] = _read(file)
    gpu = cuda_backend()
    for path in golden_files(paths):
        if str(path) not in known:
            begin, sets = time.monotonic(), list(all_sets([path]))
            if not sets:
                continue  # operands alone
            report = verify([path], partial(simulated.mma, backend=gpu), results=results)
            known[str(path)] = report.to_json()
            took = time.monotonic() - begin
            print(f"{path}: {report.results} results, {report.mismatches} differ, {took:.1f} s", flush=True)
            for line in report.to_text().splitlines()[:-1]:
                if not line.startswith("ok "):
                    print(line, flush=True)
            _write(file, known)
    results_of, differ = (sum(x[name] for x in known.values()) for name in ("results", "mismatches"))
    print(f"{len(known)} files, {results_of} results, {differ} differ; {COUNTS['product']} products on the GPU")
    return int(differ)


@cache
def _record() -> Any:
    sys.path.insert(0, str(MANIFEST))
    import record  # optional

    return record


def manifest_run(case: Mapping[str, Any]) -> dict[str, Any]:
    """The bits of a run of the manifest with every product on the GPU, and what the engine said of it."""
    os.environ["HWSIM_ENGINE"] = CUDA
    every_product()
    before = COUNTS.copy()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            bits = _record().row_of(case, 1)["c"]
        except Exception as error:  # a fault of hwsim's: the other runs go on
            return {"c": None, "said": [repr(error)], "product": 0, "add_chains": 0}
    said = [str(x.message) for x in told if str(x.message).startswith("engine cuda")]
    return {"c": bits, "said": said, **{x: COUNTS[x] - before[x] for x in ("product", "add_chains")}}


def manifest(seconds: float, workers: int, file: Path | None) -> int:
    """The manifest's runs that give bits, in a random order, for so many seconds; returns how many differ from the
    recording or were left to the CPU with a warning.
    """
    end, want, known = time.monotonic() + seconds, _record().expected(), _read(file)
    cases = [case for case in _record().listed.cases() if want[case["id"]]["c"] and case["id"] not in known]
    random.Random(1).shuffle(cases)
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))
    names = {pool.submit(manifest_run, case): case["id"] for case in cases}
    try:
        for count, future in enumerate(as_completed(names, max(end - time.monotonic(), 0)), 1):
            name = names[future]
            known[name] = future.result() | {"differs": future.result()["c"] != want[name]["c"]}
            if known[name]["differs"] or known[name]["said"]:
                print(f"{name}: {known[name]}", flush=True)
            if count % KEPT_AFTER == 0:
                _write(file, known)
    except TimeoutError:
        print("the time is over")
    _write(file, known)
    pool.shutdown(wait=False, cancel_futures=True)
    differ, said = (sum(bool(row[x]) for row in known.values()) for x in ("differs", "said"))
    products, chains = (sum(row[x] for row in known.values()) for x in ("product", "add_chains"))
    of = len(known) + len(cases) - sum(name in known for name in names.values())
    print(
        f"{len(known)} of {of} runs, {products} products and {chains} sums of chains on the GPU, "
        f"{differ} differ, {said} warned"
    )
    return differ + said


def _read(file: Path | None) -> dict[str, Any]:
    return json.loads(file.read_text()) if file is not None and file.is_file() else {}


def _write(file: Path | None, known: Mapping[str, Any]) -> None:
    if file is not None:
        file.write_text(json.dumps(known, indent=1) + "\n")
