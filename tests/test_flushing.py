"""Bits and errors in processes where another library has set threads to flush subnormals to zero.

Each process prints digests of the same runs, whose operands are bit fields: subnormals, and others with such products.
"""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="the control register is set by code for x86-64"
)
SETTER = """
#include <xmmintrin.h>
__attribute__((constructor)) static void flush(void) { _mm_setcsr(_mm_getcsr() | 0x8040); }
"""
# What a process does first, before NumPy is loaded: nothing, a library built to flush, PyTorch's switch.
NOTHING = ""
LIBRARY = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"
TORCH = "import torch; assert torch.set_flush_denormal(True)"
RUNS = """
import hashlib, json, tempfile, threading
from pathlib import Path
import numpy as np
import hwsim, hwsim.host.threads
from hwsim import format_arrays
from hwsim.frameworks.blas.server import BlasServer
from hwsim.frameworks.product import multiplied
from hwsim.frameworks.settings import settings_of
from hwsim._kernels import gemm
from hwsim._kernels.convert import environment
from hwsim.devices import dot_spec, load

hwsim.host.threads.MACS_PER_THREAD = hwsim.host.threads.ELEMENTS_PER_THREAD = 1  # threads for small products as well
SMALL = np.full(64, 2.0**-80, np.float32)
SUBNORMAL = (np.arange(1, 601, dtype=np.uint32) << 11).view(np.float32).reshape(20, 30)
OUT = np.zeros((4, 4), np.float32)

def is_flushing():
    return not (SMALL * np.float32(2.0**-60)).any()

def drawn(seed, shape, dtype):
    rng = np.random.default_rng(seed)
    bits, fraction, bias = (32, 23, 127) if dtype == np.float32 else (64, 52, 1023)
    middle, spread = bias - bias // 2, bias // 2 - 4
    exponents = np.where(rng.random(shape) < 0.1, 0, middle + rng.integers(-spread, spread // 8, shape))
    code = rng.integers(0, 1 << fraction, shape) | exponents << fraction | rng.integers(0, 2, shape) << (bits - 1)
    return code.astype(f"u{bits // 8}").view(dtype)

KINDS = [
    ("h200", "native", {"format": "fp16"}, np.float32),
    ("h200", "native", {"format": "tf32", "split_k": 2}, np.float32),
    ("h200", "native", {"format": "fp64"}, np.float64),
    ("mi300x", "native", {"format": "bf16"}, np.float32),
    ("b200", "bf16x9", {}, np.float32),
    ("h200", "tf32x3", {}, np.float32),
    ("ascend910a", "sgemm-cube", {"functional": True}, np.float32),
    ("h200", "ozaki-int8", {}, np.float64),
]

def digests(found):
    def say(name, *arrays):
        found[name] = hashlib.sha256(b"".join(np.ascontiguousarray(x).tobytes() for x in arrays)).hexdigest()[:16]
    for device, scheme, options, dtype in KINDS:
        a, b = drawn(1, (48, 70), dtype), drawn(2, (70, 40), dtype)
        for threads in (1, 4):
            result = hwsim.run(a, b, device=device, scheme=scheme, threads=threads, timing=False, **options)
            say(f"{device} {scheme} {options} {threads}", result.c)
        errors = {key: value for key, value in result.errors().items() if isinstance(value, float)}
        found[f"errors of {device} {scheme}"] = {key: value.hex() for key, value in errors.items()}
        say(f"errors of {device} {scheme} by place", result.errors.by_place().ulps)
    for name in ("fp16", "bf16", "e4m3", "tf32"):
        values = drawn(3, (1 << 12,), np.float32)
        codes = format_arrays.encode(values, name)
        say(f"conversions, {name}", codes, format_arrays.decode(codes, name))
        others = [format_arrays.encode(values, name, rounding=x) for x in ("RA", "RO")]
        say(f"other roundings, {name}", *others, format_arrays.encode(values, name, rounding="SR", seed=1))
    small, large = drawn(9, (20, 30), np.float32) * np.float32(2.0**-20), drawn(10, (30, 9), np.float32)
    settings = settings_of({"device": "h200", "format": "e4m3", "scale": "power-of-two"}).of("", "forward")
    say("scaled products", multiplied(settings, SUBNORMAL, large, timing=False)[0])
    with tempfile.TemporaryDirectory() as folder, BlasServer(Path(folder) / "socket", {"device": "h200"}) as server:
        c = drawn(11, (20, 9), np.float32)
        say("blas", server.compute("sgemm", small, large, c, 2.0**-60, 0.75))
    x, w = drawn(4, (2, 3, 9, 9), np.float32), drawn(5, (4, 3, 3, 3), np.float32)
    say("conv2d", hwsim.conv2d(x, w, device="h200", format="tf32", threads=4))
    x, y = (drawn(seed, (20, 20), np.float64) for seed in (6, 7))
    z = np.empty((20, 20), np.complex64)
    z.real, z.imag = drawn(8, (20, 20), np.float32), drawn(9, (20, 20), np.float32)
    with hwsim.emulate(device="h200", format="fp64"):
        say("emulate", np.matmul(x, y), np.dot(z.real, z.imag), np.einsum("ij,jk->ik", z, z))
        say("emulate, out", np.matmul(SMALL[:4, None] * 2.0**20, SMALL[None, :4].astype(np.float64), out=OUT.copy()))
    chip = load("v100")
    rng = np.random.default_rng(8)
    codes = [rng.integers(0, 1 << 16, shape).astype(np.uint16) for shape in ((64, 64), (64, 64))]
    say("kernel", gemm(dot_spec(chip, chip.native["fp16"]), *codes, threads=4))

main, other = {}, {}
flushing, before = is_flushing(), environment() & ~0x3F
digests(main)
assert environment() & ~0x3F == before  # the caller's, without what exceptions leave there
thread = threading.Thread(target=digests, args=(other,))  # it starts with the settings of the one that starts it
thread.start()
thread.join()
print(json.dumps({"flushing": flushing, "main": main, "other": other}))
"""


def process(before: str, *words: str) -> dict[str, object]:
    """What a process prints that begins so."""
    done = subprocess.run([sys.executable, "-c", f"{before}\n{RUNS}", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def plain():
    found = process(NOTHING)
    assert not found["flushing"] and found["main"] == found["other"] and len(found["main"]) > 25
    return found["main"]


def test_a_library_that_flushes_when_it_is_loaded(plain, tmp_path):
    """As those built with -ffast-math do. NumPy is loaded afterwards, so that its BLAS starts threads that flush."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    source, library = tmp_path / "flush.c", tmp_path / "flush.so"
    source.write_text(SETTER)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    found = process(LIBRARY, str(library))
    assert found["flushing"] and found["main"] == plain and found["other"] == plain


def test_pytorch_s_switch(plain):
    pytest.importorskip("torch")
    found = process(TORCH)
    assert found["flushing"] and found["main"] == plain and found["other"] == plain
