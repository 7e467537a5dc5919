"""What hwsim.torch costs beside its kernels: a bf16 product of n x n x n through `emulate`, over the kernels alone (the
chains in fp32, then rounding to bf16), in pairs.

python lab/tools/measure/framework_overhead.py [--pairs 60]
python lab/tools/measure/framework_overhead.py --schemes [--threads 1] [--pairs 60]

With --schemes: products of 512^3 and 1024^3 of several formats and schemes, fp32 tensors in and out. What is beside the
functions of hwsim._kernels (with scales the search for the largest magnitude is one), by the calling thread's processor
time, over the time within them: that of all threads' processors, divided evenly. So a busy machine does not count, and
what kernels do on one thread alone makes the ratio too large.
Also a stack of small products beside one product of as many multiply-adds. Ratios are medians over pairs of
neighbouring calls, so that a noisy machine troubles both sides alike.
"""

import argparse
import contextlib
import os
import statistics
import sys
import time

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # PyTorch's idle threads leave the cores to hwsim's
import numpy as np
import torch

import hwsim
import hwsim.torch
from hwsim._kernels import gemm
from hwsim._kernels.convert import encode
from hwsim.backend.cpu import CpuBackend
from hwsim.devices import dot_spec, load
from hwsim.formats import format_of
from hwsim.frameworks.torch.tensors import array_of
from hwsim.host.threads import for_elements

BF16 = format_of("bf16")
DEVICES, SIZES = ("h200", "b200", "mi300x"), (512, 1024)
FP8 = {"device": "h200", "format": "e4m3", "scale": "power-of-two"}
SCHEMES = (
    *({"device": device, "format": name} for device in DEVICES for name in ("bf16", "fp16", "tf32")),
    FP8 | {"accumulate": "fast"},
    FP8 | {"accumulate": "promoted"},
    {"device": "ascend910a", "scheme": "sgemm-cube"},
    {"device": "b200", "scheme": "bf16x9"},
    {"device": "h200", "library": "cublas", "format": "bf16"},
)
STACKS = (("ascend910a", "sgemm-cube", {}), ("h200", "native", {"format": "fp16"}), ("b200", "bf16x9", {}))


def seconds(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def ratio(one, other, pairs):
    """Median of one / other over pairs, and the other's median seconds."""
    found = []
    for index in range(pairs + 2):
        first, second = (one, other) if index % 2 else (other, one)
        times = {first: seconds(first)}
        times[second] = seconds(second)
        found.append((times[one] / times[other], times[other]))
    return tuple(statistics.median(x) for x in zip(*found[2:], strict=True))


def of_torch(device, n, threads, pairs):
    """(ratio, kernel's seconds) of one bf16 product."""
    spec = dot_spec(load(device), load(device).native["bf16"])
    a, b = torch.randn(n, n).bfloat16(), torch.randn(n, n).bfloat16()
    left, right = (array_of(x).view(np.uint16) for x in (a, b))

    def kernels():
        encode(
            gemm(spec, left, right, threads=threads).view(np.float32), BF16, "RNE", threads=for_elements(threads, n * n)
        )

    with hwsim.torch.emulate(device=device, format="bf16"):
        return ratio(lambda: a @ b, kernels, pairs)


def of_stack(arguments, pairs):
    """(ratio, one product's seconds) of a stack."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((96, 128, 32), (96, 32, 128)))
    tall, one = np.ascontiguousarray(a.reshape(-1, 32)), np.ascontiguousarray(b[0])
    return ratio(lambda: hwsim.matmul(a, b, **arguments), lambda: hwsim.matmul(tall, one, **arguments), pairs)


def counted(function, spent):
    """The function, its processor time added to `spent`: of the calling thread, and of all threads."""

    def inside(*args, **options):
        own, whole = time.thread_time(), time.process_time()
        made = function(*args, **options)
        spent[0] += time.thread_time() - own
        spent[1] += time.process_time() - whole
        return made

    return inside


@contextlib.contextmanager
def kernels_as(other):
    """Inside, hwsim calls other(function) instead of each function of its kernels."""
    before = []
    for module in [CpuBackend, *(module for name, module in sys.modules.items() if name.startswith("hwsim."))]:
        for name in list(vars(module)):
            value = getattr(module, name)
            if type(value).__name__ == "cython_function_or_method" and value.__module__.startswith("hwsim._kernels."):
                before.append((module, name, value))
    try:
        for module, name, value in before:
            setattr(module, name, staticmethod(other(value)) if module is CpuBackend else other(value))
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, staticmethod(value) if module is CpuBackend else value)


def of_scheme(given, n, threads, count):
    """(ratio, seconds of the kernels) of one product of fp32 tensors, medians of processor times."""
    a, b = torch.randn(n, n), torch.randn(n, n)
    found, spent = [], [0.0, 0.0]
    with hwsim.torch.emulate(measure_every=0, threads=threads, **given):
        a @ b
        with kernels_as(lambda function: counted(function, spent)):
            for _ in range(count):
                spent[:], start = (0.0, 0.0), time.thread_time()
                a @ b
                beside, kernels = time.thread_time() - start - spent[0], spent[1] / threads
                found.append((1 + beside / kernels, kernels))
    return tuple(statistics.median(x) for x in zip(*found, strict=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--schemes", action="store_true", help="what is beside the kernels, by scheme")
    parser.add_argument("--threads", type=int, default=1, help="with --schemes: of the host")
    given = parser.parse_args()
    if given.schemes:
        torch.set_num_threads(given.threads)
        for arguments in SCHEMES:
            for n in SIZES:
                found, kernels = of_scheme(arguments, n, given.threads, given.pairs)
                print(
                    f"{' '.join(map(str, arguments.values()))}, {n}^3 of fp32 tensors on {given.threads} thread(s): "
                    f"{found:.3f} of the kernels' {1e3 * kernels:.1f} ms",
                    flush=True,
                )
        return
    threads = torch.get_num_threads()
    for device in DEVICES:
        for n in SIZES:
            found, kernel = of_torch(device, n, threads, given.pairs)
            print(f"{device}, {n}^3 bf16 on {threads} threads: {found:.3f} of the kernels' {1e3 * kernel:.1f} ms")
    for device, scheme, options in STACKS:
        found, single = of_stack({"device": device, "scheme": scheme, "threads": threads, **options}, given.pairs)
        print(f"{device} {scheme}: a stack of 96 x (128 x 32 x 128) {found:.2f} of one product's {1e3 * single:.1f} ms")


if __name__ == "__main__":
    main()
