"""Triton kernels on a GPU beside hwsim.triton: results recorded there, compared here by the interpreter.

    python lab/tools/record/triton_kernels.py record FOLDER [--case NAME ...]   # a GPU, PyTorch, Triton; no hwsim
    python lab/tools/record/triton_kernels.py check FOLDER --device h200 [--case NAME ...]  # CPU; no GPU

triton_cases.py names the kernels; their packages must be on PYTHONPATH. An autotuner takes its first configuration
that runs on the GPU, and the check takes the same. `draws` is a case too: 60 products of one kernel over formats,
precisions, shapes and tiles. FOLDER gets NAME.npz (results as codes, the configurations) and what Triton compiled.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import types
import warnings
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

SEED = int(os.environ.get("TRITON_KERNELS_SEED", "44"))  # another one draws another set
DRAWS = "draws"
SMS = 132  # of an H100 and an H200
SHARED_BYTES = 232448
KEPT_CODE = (".ttgir", ".ptx")


def file_of(folder: Path, name: str) -> Path:
    """The file of a case's results."""
    return folder / ("".join(x if x.isalnum() else "_" for x in name) + ".npz")


def drawer(device: str) -> Any:
    """Operands in order, the same on every machine."""
    import torch

    rng = np.random.default_rng(SEED)

    def draw(*shape: int, dtype: Any, scale: float = 1.0) -> Any:
        values = torch.from_numpy(rng.standard_normal(shape, dtype=np.float32) * np.float32(scale))
        return values.to(dtype).to(device)

    return draw


def choose_configurations(chosen: dict[str, int], is_recording: bool) -> None:
    """Autotuners take one configuration: the recorded one, or the first that runs."""
    from triton.runtime import autotuner

    plain = autotuner.Autotuner.run

    def run(self: Any, *arguments: Any, **keywords: Any) -> Any:
        name, every = self.base_fn.__name__, list(self.configs)
        places = range(len(every)) if is_recording and name not in chosen else [chosen[name]]
        try:
            for place in places:
                self.configs = [every[place]]
                try:
                    result = plain(self, *arguments, **keywords)
                except Exception as error:
                    if place == places[-1] or "OutOfResources" not in type(error).__name__:
                        raise
                    continue
                chosen[name] = place
                return result
        finally:
            self.configs = every
        return None

    autotuner.Autotuner.run = run


def pretend_gpu() -> None:
    """What packages ask a GPU for, answered as an H100 answers."""
    import torch

    warnings.filterwarnings("ignore")
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    torch.cuda.get_device_properties = lambda *_: types.SimpleNamespace(
        multi_processor_count=SMS, major=9, minor=0, shared_memory_per_block_optin=SHARED_BYTES
    )
    torch.Tensor.is_cuda = True
    nvidia = import_module("triton._C.libtriton").nvidia
    nvidia.cublas = types.SimpleNamespace(CublasLt=lambda *_: None)
    torch.accelerator.current_accelerator = lambda *_: torch.device("cuda")
    plain_empty = torch.empty
    torch.empty = lambda *sizes, device=None, **keywords: plain_empty(*sizes, **keywords)
    try:
        modules = [import_module(name) for name in ("fla.utils.hardware", "fla.utils")]
    except ImportError:
        return
    for module in modules:
        for name, value in (("IS_NVIDIA", True), ("IS_NVIDIA_HOPPER", True), ("IS_TF32_SUPPORTED", True)):
            setattr(module, name, value)
        module.check_shared_mem = lambda *_: True


def stub_modules() -> None:
    """tritonbench's helpers, which its kernels' files import."""
    for name in ("tritonbench.utils", "tritonbench.utils.env_utils"):
        module = types.ModuleType(name)
        for question, answer in (("is_cuda", True), ("is_fbcode", False), ("is_hip_mi300", False)):
            setattr(module, question, lambda answer=answer: answer)
        sys.modules[name] = module
    sys.modules["triton.tools.experimental_descriptor"] = types.ModuleType("experimental_descriptor")


def drawn_products() -> list[tuple[str, str, int, tuple[int, int, int], tuple[int, int, int], int]]:
    """60 products: format, input_precision, max_num_imprecise_acc (-1: default), M x N x K, tile, warps."""
    rng = np.random.default_rng(SEED + 1)
    formats = [("fp16", "tf32", 0), ("bf16", "tf32", 0), ("e4m3", "tf32", 1), ("e5m2", "tf32", 1), ("int8", "tf32", 0)]
    formats += [("fp32", precision, 0) for precision in ("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6")]
    products = []
    for number in range(60):
        fmt, precision, has_partial = formats[number % len(formats)]
        imprecise = int(rng.choice([-1, 0, 16, 32])) if has_partial else -1
        sizes = (int(rng.integers(1, 300)), int(rng.integers(1, 300)), int(rng.integers(1, 900)))
        most = 1 if precision == "ieee" else 2 if fmt == "fp32" else 3
        tile = (int(2 ** rng.integers(5, 6 + most)), int(2 ** rng.integers(4, 5 + most)), int(2 ** rng.integers(5, 7)))
        products.append((fmt, precision, imprecise, sizes, tile, int(rng.choice([2, 4, 8]))))
    return products


def product_kernel() -> Any:
    """The kernel of the draws."""
    from tile_kernels import product

    return product


def draws(device: str) -> dict[str, Any]:
    """The drawn products."""
    import torch

    kernel, results = product_kernel(), {}
    types_ = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32, "e4m3": torch.float8_e4m3fn}
    types_ |= {"e5m2": torch.float8_e5m2, "int8": torch.int8}
    for number, (fmt, precision, imprecise, (m, n, k), (bm, bn, bk), warps) in enumerate(drawn_products()):
        rng = np.random.default_rng(SEED + 100 + number)
        operands = []
        for shape in ((m, k), (n, k)):
            values = rng.standard_normal(shape, dtype=np.float32)
            values = np.rint(values * 40).clip(-128, 127) if fmt == "int8" else values
            operands.append(torch.from_numpy(values).to(types_[fmt]).to(device))
        is_integer = fmt == "int8"
        d = torch.zeros(m, n, dtype=torch.int32 if is_integer else torch.float32, device=device)
        grid = (-(-m // bm), -(-n // bn))
        key = f"{number} {fmt} {precision} {imprecise} {m}x{n}x{k} {bm}x{bn}x{bk} {warps}"
        try:
            kernel[grid](
                *operands, d, m, n, k, k, 1, 1, k, BM=bm, BN=bn, BK=bk, PREC=precision, IMP=imprecise,
                INTEGER=is_integer, num_warps=warps,
            )  # fmt: skip
            if device != "cpu":
                torch.cuda.synchronize()
        except Exception as error:
            print(f"{key}: {type(error).__name__}: {str(error)[:200]}", flush=True)
            continue
        results[key] = d
    return results


def codes_of(results: dict[str, Any]) -> dict[str, Any]:
    """Results as unsigned integers."""
    import torch

    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
    arrays = {}
    for name, x in results.items():
        x = x.detach().cpu().contiguous()
        arrays[name] = x.view(kinds[x.element_size()]).numpy()
    return arrays


def run_case(name: str, device: str, chosen: dict[str, int], is_recording: bool) -> dict[str, Any]:
    """The codes of a case's results."""
    choose_configurations(chosen, is_recording)
    stub_modules()
    if name == DRAWS:
        return codes_of(draws(device))
    from triton_cases import CASES

    return codes_of(CASES[name](drawer(device)))


def record_one(folder: Path, name: str) -> None:
    """One case on this machine's GPU."""
    cache = folder / "code" / file_of(folder, name).stem
    os.environ["TRITON_CACHE_DIR"] = str(cache)
    chosen: dict[str, int] = {}
    arrays = run_case(name, "cuda", chosen, True)
    import torch
    import triton

    about = {"hardware": torch.cuda.get_device_name(), "triton": triton.__version__, "torch": torch.__version__}
    np.savez_compressed(file_of(folder, name), about=json.dumps(about), chosen=json.dumps(chosen), **arrays)
    for path in sorted(cache.rglob("*")):
        if path.is_file() and path.suffix not in KEPT_CODE:
            path.unlink()


def check_one(folder: Path, name: str, device: str) -> bool:
    """Whether hwsim.triton's results are the recorded ones; prints how many differ."""
    pretend_gpu()
    import hwsim.triton

    with np.load(file_of(folder, name)) as archive:
        wanted = {key: archive[key] for key in archive.files if key not in ("about", "chosen")}
        chosen = json.loads(str(archive["chosen"]))
    begin = time.process_time()
    with hwsim.triton.emulate(device=device, measure_every=0) as emulation:
        arrays = run_case(name, "cpu", chosen, False)
    is_equal = True
    for key, expected in wanted.items():
        got = arrays.get(key)
        differ = expected.size if got is None else int((got != expected).sum())
        is_equal &= not differ
        share = f"{differ} of {expected.size} differ" if differ else f"all {expected.size} equal"
        print(f"{name}: {key}: {share}", flush=True)
    left = ", ".join(f"{what} {count}" for what, count in emulation.not_simulated.items()) or "nothing"
    print(f"{name}: not simulated: {left}; {time.process_time() - begin:.1f} s", flush=True)
    return is_equal


def each(verb: str, folder: Path, names: list[str], options: list[str], processes: int) -> bool:
    """Every case in a process of its own, so that one that fails ends no other."""

    def run(name: str) -> int:
        command = [sys.executable, __file__, verb, str(folder), "--one", name, *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        told = done.stderr.strip().splitlines()[-4:] if "Traceback" in done.stderr else []
        print("\n".join([*done.stdout.strip().splitlines(), *(f"{name}: {line}" for line in told)]), flush=True)
        return done.returncode

    with ThreadPoolExecutor(processes) as pool:
        return not any(list(pool.map(run, names)))


def main() -> int:
    """Run a verb."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("verb", choices=("record", "check"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--case", nargs="+", metavar="NAME", help="default: all, and the draws")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--device", default="h200", help="device of hwsim")
    parser.add_argument("--processes", type=int, default=1)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.verb == "check":
        os.environ["TRITON_INTERPRET"] = "1"
    if given.one:
        if given.verb == "record":
            record_one(given.folder, given.one)
            print(f"{given.one}: recorded")
            return 0
        return 0 if check_one(given.folder, given.one, given.device) else 1
    from triton_cases import CASES

    options = ["--device", given.device] if given.verb == "check" else []
    return 0 if each(given.verb, given.folder, given.case or [DRAWS, *CASES], options, given.processes) else 1


if __name__ == "__main__":
    sys.exit(main())
