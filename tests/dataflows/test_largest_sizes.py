"""Sizes whose programs would take minutes to time are refused before they are timed, with what to do instead."""

import time

import numpy as np
import pytest

import hwsim
from hwsim.cli import main
from hwsim.errors import UnsupportedError
from hwsim.program.executed import Executed, executed
from hwsim.program.ir import CoreGroup, Instr, Kernel, Loop, Program, Stream
from hwsim.resolve import mapping_choice

BILLION = 10**9


@pytest.mark.parametrize(
    ("sizes", "device", "scheme", "message"),
    [
        ((BILLION, BILLION, BILLION), "a100", "tf32x3", "m = 1,000,000,000: programs have at most 268,435,456"),
        ((BILLION, 1, 1), "a100", "native", "m = 1,000,000,000"),
        ((1, 1, BILLION), "ascend910b1", "native", "k = 1,000,000,000"),
        ((1, BILLION, 1), "mi300x", "native", "n = 1,000,000,000"),
        ((200_000, 200_000, 200_000), "h200", "bf16x9", "executes 83,...,...,... instructions; programs of at most"),
        ((1, 1, 1 << 28), "a100", "tf32x3", "instructions on one core; programs of at most 268,435,456"),
    ],
)
def test_too_large_sizes_are_refused_in_seconds(sizes, device, scheme, message):
    start = time.process_time()
    m, n, k = sizes
    with pytest.raises(UnsupportedError, match=f"{message}.* or ask for bits alone"):
        hwsim.run(m=m, n=n, k=k, device=device, scheme=scheme, exact=False)
    assert time.process_time() - start < 10


def test_the_command_line_refuses_them_with_2(capsys):
    asked = ["--m", str(BILLION), "--n", str(BILLION), "--k", str(BILLION), "--no-exact"]
    assert main(["run", "--device", "a100", "--scheme", "tf32x3", *asked]) == 2
    assert "programs have at most 268,435,456" in capsys.readouterr().err


def test_bits_are_computed_without_a_program(monkeypatch):
    a, b = np.ones((64, 48), np.float16), np.ones((48, 40), np.float16)
    expected = hwsim.run(a, b, device="a100")
    monkeypatch.setattr(mapping_choice, "MOST_LINES", 60)
    monkeypatch.setattr(mapping_choice, "_PROGRAMS", type(mapping_choice._PROGRAMS)(8, 0))
    monkeypatch.setattr("hwsim.resolve.resolver._CACHE", type(hwsim.resolve.resolver._CACHE)(8))
    found = hwsim.run(a, b, device="a100")
    assert np.array_equal(found.c, expected.c) and found.cycles is None and "at most 60" in found.timing_note


def test_a_stack_counts_with_all_its_rows():
    with pytest.raises(UnsupportedError, match=r"m = 1,024,000,000 times 1,000,000 matrices"):
        record = hwsim.run(np.ones((2, 1024, 16), np.float16), np.ones((16, 16), np.float16), device="a100").gemm
        data = record.to_dict()
        del data["digest"]
        data["problem"]["lead"] = [1_000_000]
        hwsim.run(gemm=data, exact=False)


def test_instructions_are_counted_by_the_loops_of_all_cores():
    one = Instr("E", "sync")
    long = Stream("s", (one, Loop("i", 10, (one, Loop("j", 5, (one, one))))))
    short = Stream("t", (one,))
    kernel = Kernel("k", (CoreGroup(0, 3, (long, short)), CoreGroup(3, 2, (short,))))
    assert executed(Program((), (kernel, kernel), (), "")) == Executed(2 * (3 * 112 + 2), 2 * 112)
