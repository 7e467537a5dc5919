"""What a library runs for one GEMM: its answer read as a kernel's name, tile, slices of K and order of summation.

It knows families of kernels and how their names and tiles read; not where the answer came from.
"""

from __future__ import annotations

from dataclasses import dataclass

from hwsim.libraries.cublas.answer import Answer
from hwsim.libraries.cublas.answers.lookup import ANSWERED, KernelAnswer
from hwsim.libraries.cublas.calls import ALL_ASKED, Extrapolation, HeuristicQuery
from hwsim.libraries.cublas.orders.families import OrderTables
from hwsim.libraries.cublas.versions import chips_text
from hwsim.libraries.kernel_choice import LibraryChoice


@dataclass(frozen=True, slots=True, kw_only=True)
class CublasChoice(LibraryChoice):
    """What cuBLAS runs for one GEMM. evidence: "microbenchmark" where kernel and slices are cuBLASLt's own answer for
    these sizes, "assumption" where it was not asked for such a call, so that the confidence is of the nearest one that
    it was asked for. Of an estimate confidence is the share of cuBLASLt's answers on other chips that the same estimate
    gives.
    """

    algorithm: int  # CUBLASLT_ALGO_CONFIG_ID
    reduction: int  # CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME
    custom: int  # CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION; of nvjet 0 but where a user's file has it
    unasked: Extrapolation = (
        ALL_ASKED  # what in the call cuBLASLt was not asked about, where another call's answer is taken
    )
    asked_on: tuple[str, ...] = ()  # the chips that it was asked on

    @property
    def numbers(self) -> dict[str, int]:
        """cuBLASLt's number of the kernel."""
        return {"algorithm": self.algorithm}

    @property
    def share_text(self) -> str:
        """How often such estimates are right, in words."""
        return f"{self.confidence:.0%} of cuBLAS's answers to such GEMMs on {chips_text(self.asked_on)}"

    @property
    def why(self) -> str:
        """How the choice is known, in words."""
        if self.is_estimated:
            return (
                "by hwsim's estimate of time, as cuBLAS was not asked on such a chip; the same estimate gives "
                f"{self.share_text}"
            )
        if self.evidence == ANSWERED and not any(self.unasked):
            return "the library's own answer for these sizes on such a chip"
        return f"right with a probability of {self.confidence:.2f}{self.unasked.text}"

    def pin_text(self, m: int) -> str:
        """How a caller asks cuBLASLt for this kernel with every number of rows."""
        return (
            f"give cublasLtMatmul for every m the algorithm that cublasLtMatmulAlgoGetHeuristic has for m = {m:,}, "
            "where cublasLtMatmulAlgoCheck takes it"
        )


def choice_of(
    query: HeuristicQuery, source: KernelAnswer, answer: Answer, stages: int, tables: OrderTables
) -> CublasChoice:
    """The choice that an answer stands for. answer, stages: of `found`, with tile and cluster."""
    call, family = query.call, tables.families.get(answer.algorithm)
    is_across = family is not None and family.is_across(call.b_layout)
    if source.estimate is not None:  # its tile is (m, n), and it has no cluster
        tile = source.estimate.tile
        answer = answer._replace(tile=tile if is_across else tile[::-1])
    name = tables.family_name(answer.algorithm, answer.generation) or f"algorithm {answer.algorithm}"
    shown, cluster = answer.tile, None if source.estimate is not None else answer.cluster
    if not is_across:
        shown, cluster = _reversed(shown), _reversed(cluster)
    return CublasChoice(
        algorithm=answer.algorithm,
        reduction=answer.reduction,
        custom=answer.custom,
        family=name,
        kernel=name if family is None else family.kernel(answer.tile, name),
        operand=call.operand,
        split_k=max(answer.slices, 1),
        order=tables.order_of(call, answer),
        order_by_m=family is None or family.order_of_m(call, answer.slices, answer.custom) > 0,
        tile=shown,
        tile_k=answer.tile_k or 0,
        stages=stages or None,
        cluster=cluster,
        confidence=source.confidence,
        evidence=source.evidence,
        is_estimated=source.estimate is not None,
        unasked=source.unasked,
    )


def _reversed(pair: tuple[int, int] | None) -> tuple[int, int] | None:
    return None if pair is None else pair[::-1]
