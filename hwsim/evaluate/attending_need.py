"""The memory that the evaluator takes for attention besides its operands, in bytes, before it takes any.

It knows records and how `Attending` goes through blocks of keys; it knows no values and not what there is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwsim.gemm.attention_record import is_of_math

if TYPE_CHECKING:
    from hwsim.gemm.attention_record import AnyAttention, FusedAttention, MathAttention

CODE_BYTES = 2  # of fp16 and bf16
SCORE_BYTES = 160  # of a score of one block of keys: those of its power, whose parts are integers of 8 bytes
MATRIX_BYTES = 16  # of an element of a whole matrix of fp32: as it was, as it is, as it is copied
RESULT_BYTES = 24  # of an element of the result: sums, and what rescaling, dividing and rounding hold
PART_BYTES = 8  # the same of each part of the keys, beside the others
ROW_BYTES = 400  # of a row: columns of largest scores, sums and powers


def bytes_needed(record: AnyAttention) -> int:
    """Bytes for one call."""
    return _of_math(record) if is_of_math(record) else _of_fused(record)


def _of_fused(record: FusedAttention) -> int:
    """Of a fused kernel: codes of the operands with shared heads repeated, a block of scores of all heads, results."""
    order, rows = record.order, record.heads * record.queries
    codes = CODE_BYTES * (rows * record.width + record.heads * record.keys * (record.width + record.value_width))
    block = SCORE_BYTES * rows * order.keys + 2 * CODE_BYTES * record.heads * order.keys * record.value_width
    parts = PART_BYTES * order.parts if order.parts > 1 else 0
    return codes + block + rows * ((RESULT_BYTES + parts) * record.value_width + ROW_BYTES)


def _of_math(record: MathAttention) -> int:
    """Of the math form: scores and weights of all heads, powers of one head."""
    scores = record.queries * record.keys
    operands = record.heads * (record.queries + 2 * record.keys) * max(record.width, record.value_width)
    return SCORE_BYTES * scores + MATRIX_BYTES * (record.heads * scores + operands)
