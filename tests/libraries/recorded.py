"""GEMMs that an H200 ran through PyTorch, with cuBLASLt's answer for each: tests/golden/h200_library.

Recorded by lab/tools/record/cublas_gemms.py (CUDA 13.0, PyTorch 2.11, 2026-11-22);
hwsim/libraries/recording/gemm_list.py draws the operands again.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np

from hwsim.libraries.recording.gemm_list import drawn, parse

ROOT = Path(__file__).parents[2]

DTYPES = {
    "fp16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "fp32": np.float32, "fp64": np.float64,
    "e4m3": ml_dtypes.float8_e4m3fn,
}  # fmt: skip


@dataclass(frozen=True)
class Recorded:
    """One GEMM: what was asked, what cuBLASLt answered (fields of cublaslt.Answer), and a block of the result."""

    seed: int
    index: int
    kind: str
    a_layout: str
    b_layout: str
    m: int
    n: int
    k: int
    answer: dict[str, int]
    kernels: tuple[str, ...]
    d: np.ndarray

    @property
    def formats(self):
        """Operand, output, fast accumulation (None: not e4m3), bias."""
        return parse(self.kind)

    @property
    def places(self):
        """Rows and columns of the whole product that the block holds."""
        rows, columns, *_ = drawn(self.seed, self.index, self.m, self.n, 1)
        return rows[: self.d.shape[0]], columns[: self.d.shape[1]]

    def operands(self):
        """A rows, B columns and bias of the block, in the operands' format."""
        operand, output, _, has_bias = self.formats
        _, _, a, b, bias = drawn(self.seed, self.index, self.m, self.n, self.k)

        def typed(x, name):
            return x if name == "fp64" else x.astype(np.float32).astype(DTYPES[name])

        rows, columns = self.d.shape
        return (
            typed(a[:rows], operand),
            typed(b[:, :columns], operand),
            typed(bias[:columns], output) if has_bias else None,
        )


@cache
def recorded() -> tuple[Recorded, ...]:
    """All of them."""
    with np.load(ROOT / "tests" / "golden" / "h200_library" / "gemms.npz") as archive:
        said = json.loads(str(archive["meta"]))
        return tuple(
            Recorded(
                *(x[name] for name in ("seed", "index", "kind", "a_layout", "b_layout", "m", "n", "k")),
                dict(zip(said["fields"], x["answer"], strict=True)),
                tuple(x["kernels"]),
                archive[f"{x['seed']}/{x['index']}/d"],
            )
            for x in said["entries"]
        )
