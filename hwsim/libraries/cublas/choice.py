"""What a library runs for one GEMM: its answer read as a kernel's name, tile, slices of K and order of summation.

It knows families of kernels and how their names and tiles read; not where the answer came from.
"""

from __future__ import annotations

from dataclasses import dataclass

from hwsim.gemm.schedule import Schedule
from hwsim.libraries.cublas.answer import Answer
from hwsim.libraries.cublas.calls import ALL_ASKED, Asked, Unasked
from hwsim.libraries.cublas.lookup import FoundAnswer
from hwsim.libraries.cublas.orders import FAMILIES, family_name, order_of


@dataclass(frozen=True, slots=True)
class LibraryChoice:
    """What the library runs for one GEMM.

    algorithm, reduction, custom: cuBLASLt's CUBLASLT_ALGO_CONFIG_ID, _REDUCTION_SCHEME and _CUSTOM_OPTION (of nvjet 0
    but where a user's file has it). family: the family's name. kernel: the same, with the tile as its own name has it.
    split_k: slices of K, at least 1. order_by_m: may the order of summation be another one for other m, although
    algorithm and slices are the same? tile, cluster: (m, n) of the row-major product, None where not known. tile_k: K
    of a stage, elements; 0: not stated. stages: of shared memory, None where the kernel decides. schedule: the order of
    summation, the instruction and (m, n); `hwsim.matmul(schedule=, format=)` gives the bits of the kernel with it.
    known: is the rule of this kernel's sums known (else `schedule` stands for it)? confidence: the probability that
    algorithm and slices are right. evidence: a level of hwsim.datafiles.provenance; "microbenchmark" where they are
    cuBLASLt's own answer for these sizes, "assumption" where it was not asked for such a call, so that the confidence
    is of the nearest one that it was asked for. seen: was the rule found with this version on this chip (or does none
    matter: integers)? is_estimated: the chip was not asked, and hwsim's estimate of time stands for the choice; then
    confidence is the share of cuBLASLt's answers on other chips that the same estimate gives. lost_k: how many of the
    last products of K the kernel does not add (the schedule has it). unasked: what in the call cuBLASLt was not asked
    about, where another call's answer stands for it.
    """

    algorithm: int
    family: str
    kernel: str
    split_k: int
    order_by_m: bool
    reduction: int
    custom: int
    tile: tuple[int, int] | None
    tile_k: int
    stages: int | None
    cluster: tuple[int, int] | None
    schedule: Schedule
    known: bool
    confidence: float
    evidence: str
    seen: bool
    is_estimated: bool = False
    lost_k: int = 0
    unasked: Unasked = ALL_ASKED

    @property
    def order_evidence(self) -> str:
        """Evidence of the order of summation: that of the kernel, or none better than an assumption for its rule."""
        return self.evidence if self.known and self.seen else "assumption"


def choice_of(asked: Asked, found: FoundAnswer, answer: Answer, stages: int, is_seen: bool) -> LibraryChoice:
    """The choice that an answer stands for. answer, stages: of `found`, with tile and cluster. is_seen: as
    `LibraryChoice.seen`.
    """
    call, family = asked.call, FAMILIES.get(answer.algorithm)
    is_across = family is not None and family.is_across(call.b_layout)
    if found.estimate is not None:  # its tile is (m, n), and it has no cluster
        tile = found.estimate.tile
        answer = answer._replace(tile=tile if is_across else tile[::-1])
    order = order_of(call, answer)
    name = family_name(answer.algorithm, answer.generation) or f"algorithm {answer.algorithm}"
    shown, cluster = answer.tile, None if found.estimate is not None else answer.cluster
    if not is_across:
        shown, cluster = _reversed(shown), _reversed(cluster)
    return LibraryChoice(
        algorithm=answer.algorithm,
        family=name,
        kernel=name if family is None else family.kernel(answer.tile, name),
        split_k=max(answer.slices, 1),
        order_by_m=family is None or family.order_of_m(call, answer.slices, answer.custom) > 0,
        reduction=answer.reduction,
        custom=answer.custom,
        tile=shown,
        tile_k=answer.tile_k or 0,
        stages=stages or None,
        cluster=cluster,
        schedule=order.schedule,
        known=order.known,
        confidence=found.confidence,
        evidence=found.evidence,
        seen=is_seen,
        is_estimated=found.estimate is not None,
        lost_k=order.lost_k,
        unasked=found.unasked,
    )


def _reversed(pair: tuple[int, int] | None) -> tuple[int, int] | None:
    return None if pair is None else pair[::-1]
