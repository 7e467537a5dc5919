"""lab/tools/record/triton_kernels.py: recorded kernels of an H200 beside hwsim.triton, and a check that can fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'hwsim[torch]'")
triton = pytest.importorskip("triton", reason="needs Triton: pip install 'hwsim[triton]'")

TOOL = Path(__file__).parents[2] / "tools" / "record" / "triton_kernels.py"
GOLDEN = Path(__file__).parents[3] / "tests" / "golden" / "h200_triton"
#: Results that another Triton than the recording's gives other bits, as it lowers another kernel, and what hwsim lacks.
RECORDED_BY = "3.6"
FUSED_OTHERWISE = 16  # the row of a b + c a, where a b has further uses
ERF, SIN, COS = 9, 4, 5  # erf changed with the compiler; sin and cos loop for large arguments
OTHER_SUMS = ("whole", "rows", "columns")
SAME_SUMS = "1x1024"  # whose order both compilers take


def checked(folder: Path, case: str) -> tuple[int, list[str]]:
    """Exit status and lines of a check."""
    command = [sys.executable, str(TOOL), "check", str(folder), "--one", case]
    env = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env, timeout=300)
    return done.returncode, [line for line in done.stdout.splitlines() if line.startswith(case)]


def test_sums_have_an_h200s_bits() -> None:
    case = "own, sums"
    _, lines = checked(GOLDEN, case)
    differing = [line.split(": ")[1] for line in lines if "differ" in line]
    by_compiler = () if triton.__version__.startswith(RECORDED_BY) else OTHER_SUMS
    excused = [name for name in differing if name.endswith(by_compiler) and not name.startswith(SAME_SUMS)]
    assert len(lines) > 20 and differing == excused
    assert f"{case}: not simulated: nothing" in lines[-1]


def test_an_attention_has_an_h200s_bits_but_one_that_is_planted(tmp_path: Path) -> None:
    case, name = "own, attention, bf16, causal, 64", "own__attention__bf16__causal__64.npz"
    with np.load(GOLDEN / name) as archive:
        arrays = dict(archive)
    arrays["out"][0, 3, 5] ^= 1
    np.savez(tmp_path / name, **arrays)  # type: ignore[arg-type]
    status, lines = checked(tmp_path, case)
    assert status == 1 and f"{case}: out: 1 of {arrays['out'].size} differ" in lines


def test_functions_have_an_h200s_bits(tmp_path: Path) -> None:
    code = (
        "import sys, json, numpy as np; sys.path.insert(0, sys.argv[1]); import triton_kernels as tool, hwsim.triton\n"
        "with hwsim.triton.emulate(device='h200', measure_every=0) as run:\n"
        "    arrays = tool.run_case('own, functions', 'cpu', {}, False)\n"
        "np.savez(sys.argv[2], left=json.dumps(dict(run.not_simulated)), **arrays)\n"
    )
    out = tmp_path / "got.npz"
    env = {**os.environ, "TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, "-c", code, str(TOOL.parent), str(out)], check=True, env=env, timeout=300)
    lacking = {FUSED_OTHERWISE} if triton.__version__.startswith(RECORDED_BY) else {FUSED_OTHERWISE, ERF}
    with np.load(out) as got, np.load(GOLDEN / "own__functions.npz") as wanted:
        for key, left in (("near 1", lacking), ("all exponents", lacking | {SIN, COS})):
            rows = [row for row in range(20) if row not in left]
            np.testing.assert_array_equal(got[key][rows], wanted[key][rows])
