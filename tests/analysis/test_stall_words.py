"""Every cause of a stall that a program can have is said in the reader's words."""

import re

import pytest

import hwsim
from hwsim.analysis.stall_words import engine_words, stall_words
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
    names = {semaphore.name for part in result.times.program.kernels for semaphore in part.semaphores}
    assert names
    for semaphore in names:
        words = stall_words(f"semaphore:{semaphore}")
        assert words.startswith("waits ") and "data in" not in words and "." not in words, semaphore
        assert not re.search(r"\b(acc|out|in|stage)\d*\b(?! )", words), (semaphore, words)


@pytest.mark.parametrize(
    "cause, words",
    [
        ("done", "finished early"),
        ("empty", "not started"),
        ("semaphore:acc0.free", "waits for a free accumulator"),
        ("semaphore:L0C.free", "waits for a free accumulator"),
        ("semaphore:out.sh.full", "waits for the result in shared memory"),
        ("semaphore:stage.full", "waits for the operands in shared memory"),
        ("semaphore:B0.L1.free", "waits for room for operand B in L1"),
        ("semaphore:L0B.full", "waits for operand B in L0"),
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
