"""Every cause of a stall that a program can have is said in the reader's words."""

import ml_dtypes
import numpy as np
import pytest

import hwsim
from hwsim.analysis.stall_words import engine_words, stall_words
from hwsim.devices.templates import new_device_file
from hwsim.machines.tables import CAUSES

CASES = [
    *[("v100", {"format": "fp16"}), ("a100", {"format": "bf16"}), ("t4", {"format": "fp16"}), ("tf64", {})],
    *[("mi300x", {"format": "bf16"}), ("mi300x", {"scheme": "bf16x9"}), ("h100", {"format": "bf16", "split_k": 4})],
    *[("h100", {"format": "bf16", "input_format": "fp32"}), ("h100", {"scheme": "ozaki-int8"})],
    *[("h100", {"scheme": "sgemm-cube"}), ("h100", {"format": "e4m3", "accumulate": "promoted"})],
    *[("b200", {"format": "e4m3"}), ("b200", {"scheme": "bf16x9"}), ("ascend910a", {"format": "fp16"})],
    *[("ascend910a", {"scheme": "sgemm-cube"}), ("ascend910b3", {"scheme": "sgemm-cube"})],
]


@pytest.mark.parametrize("name, arguments", CASES)
def test_semaphores_have_words(name, arguments):
    result = hwsim.run(device=name, exact=False, m=256, n=256, k=512, **arguments)
    assert_worded(result)


@pytest.mark.parametrize("name, format", [("h100", "bf16"), ("h100", "fp64"), ("a100", "int8")])
def test_semaphores_of_stream_k_have_words(name, format):
    result = hwsim.run(device=name, exact=False, m=256, n=256, k=8192, format=format, decomposition="stream-k")
    assert_worded(result)
    causes = {cause for engine in result.engines.values() for cause in engine.stall_cycles}
    assert "waits for another CTA's part of a sum" in map(stall_words, causes)


@pytest.mark.parametrize("stationary", ["outputs", "weights", "inputs"])
def test_semaphores_of_systolic_arrays_have_words(stationary, tmp_path):
    new_device_file(tmp_path / "array.yaml", "systolic", {"rows": 16, "cols": 16})
    sizes = {"m": 64, "n": 64, "k": 64, "format": "bf16", "stationary": stationary}
    assert_worded(hwsim.run(device=tmp_path / "array.yaml", exact=False, **sizes))


ATTENTION = [
    *[("a100", {"backend": "flash"}), ("h100", {"backend": "cudnn"}), ("h100", {"backend": "math"})],
    *[("h100", {"backend": "efficient"}), ("b200", {"library": "flash-attention-4"})],
    *[("h100", {"library": "flash-attention-3"}), ("h100", {"library": "flash-attention-3", "dtype": "e4m3"})],
]


@pytest.mark.parametrize("name, arguments", ATTENTION)
def test_semaphores_of_attention_have_words(name, arguments):
    dtype = {"e4m3": ml_dtypes.float8_e4m3fn}.get(arguments.get("dtype"), np.float16)
    zero = np.broadcast_to(dtype(0), (2, 300, 64))
    who = {key: value for key, value in arguments.items() if key != "dtype"}
    has_mask = who.get("backend") in ("efficient", "cudnn")
    mask = np.broadcast_to(np.float16(0), (300, 300)) if has_mask else None
    assert_worded(hwsim.attention(zero, zero, zero, device=name, exact=False, mask=mask, **who))


@pytest.mark.parametrize("buffer", ["part", "own", "whole"])
def test_sums_that_cores_share_have_words(buffer):
    """dataflows/tiled/shared_epilogue.py names them so."""
    assert "sum" in stall_words(f"semaphore:{buffer}.full") and "keys" not in stall_words(f"semaphore:{buffer}.full")


def assert_worded(result):
    """Every semaphore of the result's program has words of its own."""
    names = {semaphore.name for part in result.times.program.kernels for semaphore in part.semaphores}
    assert names
    for semaphore in names:
        words, buffer = stall_words(f"semaphore:{semaphore}"), semaphore.rpartition(".")[0]
        assert words.startswith("waits for ")
        assert words not in (f"waits for {text}" for text in (f"data in {buffer}", f"room in {buffer}", semaphore))


@pytest.mark.parametrize(
    "cause, words",
    [
        ("done", "finished early"),
        ("empty", "not started"),
        ("semaphore:acc0.free", "waits for a free accumulator"),
        ("semaphore:L0C.free", "waits for a free accumulator"),
        ("semaphore:out.sh.full", "waits for the result in shared memory"),
        ("semaphore:stage.full", "waits for the operands of a stage"),
        ("semaphore:B0.L1.free", "waits for room for operand B in L1"),
        ("semaphore:L0B.full", "waits for operand B in L0"),
        ("semaphore:stage.free", "waits for a free stage"),
        ("semaphore:C.done", "waits for C to be stored"),
        ("semaphore:PE.free", "waits for free PEs"),
        ("semaphore:ring.free", "waits for room in ring"),
        ("semaphore:mine", "waits for mine"),
        ("semaphore:ring.full", "waits for data in ring"),
    ],
)
def test_words(cause, words):
    assert stall_words(cause) == words


def test_causes_without_a_semaphore_have_words():
    assert len({stall_words(cause) for cause in CAUSES}) == len(CAUSES)
    assert not {stall_words(cause) for cause in CAUSES} & set(CAUSES)
    assert engine_words("TC") == "tensor cores" and engine_words("DMA") == "engine DMA"
