"""What of a record no instruction computes, so that its program stands for the work and its time alone.

It knows records; it knows no dataflow and no instruction.
"""

from __future__ import annotations

from hwsim.gemm.plan import Mixed
from hwsim.gemm.record import Gemm


def time_alone(gemm: Gemm, *, is_of_stack: bool = True) -> str:
    """The first such part of a record by name; "" where a program computes all of it. is_of_stack: one program computes
    all matrices of a stack.
    """
    image, plan = gemm.problem.image, gemm.plan
    is_mixed_stack = isinstance(plan, Mixed) and bool(plan.a_types) and gemm.problem.matrices > 1 and not is_of_stack
    why = {
        "the windows of its image, which the record does not say": image is not None and image.windows is None,
        "the blocks of each matrix of a stack, which have plans of their own": is_mixed_stack,
    }
    return next((name for name, is_so in why.items() if is_so), "")
