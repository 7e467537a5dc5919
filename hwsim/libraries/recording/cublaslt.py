"""cuBLASLt's heuristic by ctypes: which algorithm it would run for a GEMM. No GEMM is run.

It knows the C interface of cuBLASLt 12 and 13; nothing of hwsim, whose tools load it by its path, and not which GEMMs
are worth asking for. Matrices are row-major here, and cuBLAS's are column-major: a product C = A B goes to it as its
transpose, so cuBLAS's A is B, and its m is n.
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

FP32, FP64, FP16, INT8, INT32, BF16, E4M3, E5M2 = 0, 1, 2, 3, 10, 14, 28, 29  # cudaDataType_t
TYPES = {
    "fp32": FP32,
    "fp64": FP64,
    "fp16": FP16,
    "bf16": BF16,
    "int8": INT8,
    "int32": INT32,
    "e4m3": E4M3,
    "e5m2": E5M2,
    "tf32": FP32,
}
COMPUTE_32F, COMPUTE_FAST_TF32, COMPUTE_64F, COMPUTE_32I = 68, 77, 70, 72  # cublasComputeType_t
COMPUTE = {"tf32": COMPUTE_FAST_TF32, "fp64": COMPUTE_64F, "int8": COMPUTE_32I}
EPILOGUE_BIAS = 4
WORKSPACE_BYTES = 32 << 20  # PyTorch's of cublasGemmEx on Hopper; of cublasLtMatmul it is 1 MiB
ANY_REDUCTION, COMPUTE_TYPE_REDUCTION = 7, 2  # masks: the second where reduced-precision reductions are off
ALIGNMENT_BYTES = 256  # of pointers, as of PyTorch's own allocations and by default
MIN_ALIGNMENTS = (5, 6, 7, 8)  # CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES to _D_BYTES


@dataclass(frozen=True)
class Kind:
    """Operand and output format of a GEMM, and how it is asked for. fast: fp8 accumulation; bias: one per column;
    operand_b: format of B where it is not A's.
    """

    operand: str
    output: str
    fast: bool | None = None
    bias: bool = False
    operand_b: str | None = None

    @property
    def name(self) -> str:
        """Like "bf16>bf16+bias", "e4m3>bf16fast", "e4m3,e5m2>bf16fast"."""
        operands = self.operand if self.operand_b is None else f"{self.operand},{self.operand_b}"
        speed = "" if self.fast is None else ("fast" if self.fast else "slow")
        return f"{operands}>{self.output}{speed}{'+bias' if self.bias else ''}"


class LtAnswer(NamedTuple):
    """The attributes CUBLASLT_ALGO_CONFIG_* of the first algorithm; id -1: cuBLASLt refuses the GEMM."""

    id: int
    tile: int
    stages: int
    splitk: int
    reduction: int
    swizzle: int
    custom: int
    inner: int
    cluster: int


REFUSED = LtAnswer(id=-1, tile=0, stages=0, splitk=0, reduction=0, swizzle=0, custom=0, inner=0, cluster=0)
#: CUBLAS_STATUS_INVALID_VALUE and _NOT_SUPPORTED: of a GEMM that cuBLASLt refuses, of an attribute that it lacks.
REFUSALS = (7, 15)
#: Attribute number and C type, in the order of LtAnswer.
ATTRIBUTES = (
    (0, ctypes.c_int32),
    (1, ctypes.c_uint32),
    (6, ctypes.c_uint32),
    (2, ctypes.c_int32),
    (3, ctypes.c_uint32),
    (4, ctypes.c_uint32),
    (5, ctypes.c_uint32),
    (7, ctypes.c_uint16),
    (8, ctypes.c_uint16),
)


class _Result(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = [
        ("algo", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    ]


def find() -> str:
    """Path of libcublasLt.so: HWSIM_CUBLASLT, the copy that this process has loaded (PyTorch's, where it is imported),
    PyTorch's copy, or what the loader finds.
    """
    if named := os.environ.get("HWSIM_CUBLASLT"):
        return named
    with suppress(OSError):
        for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
            *_, path = line.split(maxsplit=5)
            if Path(path).name.startswith("libcublasLt.so"):
                return path
    for folder in sys.path:
        files = sorted(Path(folder).glob("nvidia/*/lib/libcublasLt.so.*"))
        if files:
            return str(files[-1])
    return "libcublasLt.so"


class CublasLt:
    """One handle on the current CUDA device. Raises OSError without the library, RuntimeError without a device.

    So do questions where a call of cuBLASLt fails: that is no answer.
    """

    def __init__(self, path: str | None = None) -> None:
        self.c = ctypes.CDLL(path or find())
        self.c.cublasLtGetVersion.restype = ctypes.c_size_t
        for name in ("cublasLtMatmulDescDestroy", "cublasLtMatrixLayoutDestroy", "cublasLtMatmulPreferenceDestroy"):
            getattr(self.c, name).argtypes = [ctypes.c_void_p]
        self.handle = ctypes.c_void_p()
        if status := self.c.cublasLtCreate(ctypes.byref(self.handle)):
            raise RuntimeError(f"cublasLtCreate: status {status}; is there a CUDA device?")
        self.version = int(self.c.cublasLtGetVersion())
        self.preferences: dict[tuple[int, int, int], ctypes.c_void_p] = {}
        self.descriptors: dict[tuple[Kind, bool, bool], ctypes.c_void_p] = {}
        self.pointer = ctypes.c_void_p(1 << 20)  # of scales and biases; asked for, never read

    def _call(self, name: str, *arguments: Any, allowed: tuple[int, ...] = ()) -> int:
        """The status of a call: 0, or one of those allowed. Raises RuntimeError for any other."""
        status = int(getattr(self.c, name)(*arguments))
        if status and status not in allowed:
            raise RuntimeError(f"{name}: status {status}")
        return status

    def _preference(self, workspace: int, reductions: int, alignment: int) -> ctypes.c_void_p:
        key = workspace, reductions, alignment
        if key not in self.preferences:
            new, size = ctypes.c_void_p(), ctypes.c_size_t(workspace)
            self._call("cublasLtMatmulPreferenceCreate", ctypes.byref(new))
            self._call("cublasLtMatmulPreferenceSetAttribute", new, 1, ctypes.byref(size), ctypes.c_size_t(8))
            words = [(3, reductions)]
            words += [(number, alignment) for number in MIN_ALIGNMENTS] if alignment != ALIGNMENT_BYTES else []
            for number, word in words:
                value = ctypes.c_uint32(word)
                self._call("cublasLtMatmulPreferenceSetAttribute", new, number, ctypes.byref(value), ctypes.c_size_t(4))
            self.preferences[key] = new
        return self.preferences[key]

    def _set(self, descriptor: ctypes.c_void_p, attribute: int, value: ctypes._SimpleCData[Any]) -> None:
        size = ctypes.c_size_t(ctypes.sizeof(value))
        self._call("cublasLtMatmulDescSetAttribute", descriptor, attribute, ctypes.byref(value), size)

    def _descriptor(self, kind: Kind, a_columns: bool, b_columns: bool) -> ctypes.c_void_p:
        key = (kind, a_columns, b_columns)
        if key not in self.descriptors:
            new = ctypes.c_void_p()
            scale = {"fp64": FP64, "int8": INT32}.get(kind.operand, FP32)
            compute = COMPUTE.get(kind.operand, COMPUTE_32F)
            self._call("cublasLtMatmulDescCreate", ctypes.byref(new), compute, scale)
            self._set(new, 3, ctypes.c_int32(int(b_columns)))  # TRANSA: of B, stored by columns as cuBLAS's A is not
            self._set(new, 4, ctypes.c_int32(int(a_columns)))
            if kind.fast is not None:
                self._set(new, 25, ctypes.c_int8(int(kind.fast)))
                self._set(new, 17, self.pointer)
                self._set(new, 18, self.pointer)
            if kind.bias:
                self._set(new, 7, ctypes.c_uint32(EPILOGUE_BIAS))
                self._set(new, 8, self.pointer)
                self._set(new, 26, ctypes.c_int32(TYPES[kind.output]))
            self.descriptors[key] = new
        return self.descriptors[key]

    def _layout(self, type: int, rows: int, columns: int, batch: int) -> ctypes.c_void_p:
        new = ctypes.c_void_p()
        sizes = ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(rows)
        self._call("cublasLtMatrixLayoutCreate", ctypes.byref(new), type, *sizes)
        if batch > 1:
            count, stride = ctypes.c_int32(batch), ctypes.c_int64(rows * columns)
            self._call("cublasLtMatrixLayoutSetAttribute", new, 5, ctypes.byref(count), ctypes.c_size_t(4))
            self._call("cublasLtMatrixLayoutSetAttribute", new, 6, ctypes.byref(stride), ctypes.c_size_t(8))
        return new

    def ask(
        self,
        kind: Kind,
        m: int,
        n: int,
        k: int,
        *,
        a_columns: bool = False,
        b_columns: bool = False,
        batch: int = 1,
        workspace: int = WORKSPACE_BYTES,
        reductions: int = ANY_REDUCTION,
        alignment: int = ALIGNMENT_BYTES,
    ) -> LtAnswer:
        """The first algorithm for C (m, n) = A (m, k) B (k, n); leading dimensions are as tight as the shape.

        workspace: bytes offered. reductions: CUBLASLT_REDUCTION_SCHEME_* that are allowed, as a mask. alignment: bytes
        to which the pointers of A, B, C and D are aligned. REFUSED where cuBLASLt does not support the GEMM, or has no
        algorithm for it.
        """
        operand, output = TYPES[kind.operand], TYPES[kind.output]
        operand_b = operand if kind.operand_b is None else TYPES[kind.operand_b]
        left = self._layout(operand_b, k, n, batch) if b_columns else self._layout(operand_b, n, k, batch)
        right = self._layout(operand, m, k, batch) if a_columns else self._layout(operand, k, m, batch)
        to = self._layout(output, n, m, batch)
        result, count = _Result(), ctypes.c_int()
        try:
            status = self._call(
                "cublasLtMatmulAlgoGetHeuristic",
                self.handle,
                self._descriptor(kind, a_columns, b_columns),
                left,
                right,
                to,
                to,
                self._preference(workspace, reductions, alignment),
                1,
                ctypes.byref(result),
                ctypes.byref(count),
                allowed=REFUSALS,
            )
        finally:
            for layout in (left, right, to):
                self.c.cublasLtMatrixLayoutDestroy(layout)
        if not status and count.value and result.state not in (0, *REFUSALS):
            raise RuntimeError(f"cublasLtMatmulAlgoGetHeuristic: state {result.state} of the algorithm")
        return REFUSED if status or not count.value or result.state else self._answer(result)

    def _answer(self, result: _Result) -> LtAnswer:
        values, written = [], ctypes.c_size_t()
        for attribute, type in ATTRIBUTES:
            value = type()
            self._call(  # what an algorithm lacks is 0
                "cublasLtMatmulAlgoConfigGetAttribute",
                ctypes.byref(result.algo),
                attribute,
                ctypes.byref(value),
                ctypes.c_size_t(ctypes.sizeof(value)),
                ctypes.byref(written),
                allowed=REFUSALS,
            )
            values.append(int(value.value))
        return LtAnswer(*values)
