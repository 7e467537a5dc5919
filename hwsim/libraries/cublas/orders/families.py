"""From cuBLASLt's answer to the order in which the kernel adds over K, and by which instruction: a `SummationOrder`.

The rules are those of docs/library.md: found on recorded GEMMs of an H200 and an H100 (cuBLAS 13.1), or published by
others and checked there. Which algorithm has which rule is data (`families` of configs/libraries/*.sums.yaml). The
module knows families of kernels; no device and no array.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING

from hwsim.gemm.schedule import Schedule
from hwsim.libraries.cublas.answer import UNKNOWN, Answer, Generation
from hwsim.libraries.cublas.calls import CublasGemm
from hwsim.libraries.cublas.orders.gemv import Gemv
from hwsim.libraries.cublas.orders.shared_k import SharedK
from hwsim.libraries.cublas.orders.simt import dot_product, gemm_sn, one_chain, sgemm_largek, vector_slices
from hwsim.libraries.cublas.orders.tensor_core import interleaved, rest_first, whole_tiles
from hwsim.libraries.cublas.versions import version_of
from hwsim.libraries.kernel_choice import SummationOrder
from hwsim.libraries.model.facts import sums_in

if TYPE_CHECKING:
    from hwsim.libraries.model.sums_model import FamilyModel

NVJET = 66  # cuBLASLt's number of nvjet's kernels
Rule = Callable[[CublasGemm, Answer], SummationOrder]


@dataclass(frozen=True, eq=False)
class KernelFamily:
    """Kernels of one algorithm number: the row of the data, and the rule of their sums.

    order_of_m: where the order depends on m beyond what cuBLASLt answers, a number for (call, slices, custom option)
    that is equal where orders are; 0: it does not.
    """

    row: FamilyModel
    rule: Rule
    order_of_m: Callable[[CublasGemm, int, int], int]

    def is_across(self, b_layout: str) -> bool:
        """Whether tile and cluster, as cuBLASLt answers them, are (m, n) of the row-major product and not (n, m)."""
        return self.row.mn_major_b_first and b_layout == "rows"

    def kernel(self, tile: tuple[int, int] | None, name: str) -> str:
        """The family's name on a chip, and the tile as its kernels' names have it. tile: as cuBLASLt answers it."""
        if tile is None:
            return name
        first, second = reversed(tile) if self.row.names_m_first else tile
        return f"{name} {first}x{second}"

    def is_rounded_before_bias(self, slices: int, reduction: int, is_lt: bool) -> bool:
        """Whether a sum of a 16-bit output is rounded to it before the bias is added, and the result again.

        is_lt: the bias is cublasLtMatmul's epilogue; else it is the C of cublasGemmEx. Seen with fp16 and bf16.
        """
        if is_lt:
            return slices > 1 and (self.row.merges == "any" or reduction in self.row.merges)
        return self.row.rounded_before_c and slices < 2


@dataclass(frozen=True, eq=False)
class OrderTables:
    """The rules of one version's kernels. families: by cuBLASLt's algorithm number."""

    families: dict[int, KernelFamily]
    shared_k: SharedK

    def order_of(self, call: CublasGemm, answer: Answer) -> SummationOrder:
        """The order of summation of the kernel that an answer names; of an unknown algorithm, and of operands that the
        rule is not for, a plain chain, not `known`.
        """
        family = self.families.get(answer.algorithm)
        if call.operand == "int8":  # sums of integers are the same in any order
            order = SummationOrder(Schedule())
        elif family is None or (family.row.operands and call.operand not in family.row.operands):
            order = UNKNOWN
        else:
            order = family.rule(call, answer)
            if family.row.instruction is not None and call.operand != "fp64":
                order = replace(order, schedule=replace(order.schedule, instruction=family.row.instruction))
        return replace(order, schedule=replace(order.schedule, shape=(call.m, call.n)))

    def family_name(self, algorithm: int, generation: Generation) -> str:
        """What the kernels of an algorithm are called on chips of a generation; "" for one that is not known."""
        family = self.families.get(algorithm)
        return dict(generation.names).get(algorithm, "" if family is None else family.row.name)


def usual_tables() -> OrderTables:
    """The rules of the version that is taken where none is named."""
    return tables_in(version_of(None).sums)


@cache
def tables_in(file: str) -> OrderTables:
    """The rules by a file of sums beside the library files. Raises ConfigError where it is not valid."""
    sums = sums_in(file)
    gemv, shared_k = Gemv(sums.gemv), SharedK(sums.shared_k)
    families: dict[int, KernelFamily] = {}
    for row in sums.families.values():
        rules: dict[str, Rule] = {
            "whole_tiles": whole_tiles,
            "rest_first": rest_first,
            "segments": partial(_segments, row, shared_k),
            "interleaved": interleaved,
            "one_chain": one_chain,
            "sgemm_largek": sgemm_largek,
            "vector_slices": vector_slices,
            "gemm_sn": gemm_sn,
            "gemv": gemv.order,
            "dot_product": dot_product,
        }
        by_m: dict[str, Callable[[CublasGemm, int, int], int]] = {
            "no": lambda call, slices, custom: 0,
            "lanes": gemv.lanes_by_m,
            "shared_tiles": lambda call, slices, custom: call.m if slices < 0 else 0,
        }
        family = KernelFamily(row, rules[row.rule], by_m[row.order_by_m])
        families |= dict.fromkeys(row.algorithms, family)
    return OrderTables(families, shared_k)


def _segments(row: FamilyModel, shared_k: SharedK, call: CublasGemm, answer: Answer) -> SummationOrder:
    """xmma for Hopper: one chain; with slices -1 CTAs share the K of the last tiles, where that fills the SMs."""
    if answer.slices > 1:  # cuBLASLt never answers so on Hopper
        return UNKNOWN
    if answer.slices >= 0 or call.operand != "tf32":
        return SummationOrder(Schedule())
    # wgmma takes tf32 from shared memory K-major only: a B by rows goes through registers, as the kernel's A.
    return shared_k.order(call, answer, row.mn_major_b_first and call.b_layout == "rows")
