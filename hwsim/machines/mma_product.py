"""The products of matrix instructions from their operands by role. The module knows units, K and a backend; it knows no
order of execution and no storage.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from hwsim.arithmetic.instruction_order import in_instruction_order, whole
from hwsim.arithmetic.scaled import scaled_gemm
from hwsim.errors import UnsupportedError
from hwsim.numerics.dot_operands import DotOperands
from hwsim.program.roles import K_AXES

if TYPE_CHECKING:
    from hwsim.backend.operations import Backend
    from hwsim.numerics.units import DotSpec
    from hwsim.program.ir import Program

Codes = NDArray[Any]
RoleCodes = Mapping[str, Codes]  # operands by role
SCALES = ("scale_a", "scale_b")


def check_products(program: Program) -> None:
    """Raise UnsupportedError for an operand that no dot unit takes."""
    for kernel in program.kernels:
        for instr in kernel.instrs():
            if instr.has("metadata"):
                raise UnsupportedError(
                    f"kernel {kernel.name}: {instr.unit} reads metadata of a sparse A; no dot unit takes metadata yet. "
                    "The program's time is known, its bits are not"
                )


def in_steps(operands: RoleCodes, depth: int, scale_block: int | None) -> list[RoleCodes]:
    """The operands of a product over K as a chain of instructions consumes them: one set, or two that are chained.

    depth: the K of an instruction. scale_block: of the unit. The last instruction is padded with zeros.
    """
    if scale_block is not None:
        return [whole_steps(operands, depth, scale_block)]
    k = operands["a"].shape[1]
    parts = (in_instruction_order([operands[role]], (0, k), depth, None, _axis(role)) for role in ("a", "b"))
    return [{"a": a, "b": b} for a, b in zip(*parts, strict=True)]


def whole_steps(operands: RoleCodes, depth: int, scale_block: int | None) -> RoleCodes:
    """The same as one set. Scales of elements that are padded have the code 0."""
    steps = {}
    for role, codes in operands.items():
        axis, length = _axis(role), depth // (scale_block or 1) if role in SCALES else depth
        steps[role] = whole(codes, (0, codes.shape[axis]), length, None, axis)
    return steps


def _axis(role: str) -> int:
    return 1 if K_AXES[role] == "columns" else 0


def product(
    spec: DotSpec,
    operands: RoleCodes,
    c: Codes | None,
    *,
    scale_d: int | Codes,
    rule: str,
    backend: Backend,
    out: Codes | None = None,
    threads: int = 1,
) -> Codes:
    """Codes of c + a b by a backend, c None: +0. scale_d, rule, out, threads: as of hwsim.arithmetic.scaled."""
    dot_operands = DotOperands(c=c, scale_d=scale_d, **operands)
    return scaled_gemm(spec, dot_operands, rule, backend=backend, out=out, threads=threads)
