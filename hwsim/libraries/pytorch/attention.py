"""Which kernel PyTorch runs for scaled dot-product attention on a chip: the first backend that takes the call.

It knows sizes, formats, families and backends by name; no kernel and no tensor.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from hwsim.errors import UnsupportedError
from hwsim.libraries.cublas.pytorch import FRAMEWORK
from hwsim.libraries.pytorch.routes import pytorch

OTHER = "other"
DENSE = 4  # dimensions of the operands that fused kernels take: batch, heads, rows, width


class Candidate(NamedTuple):
    """A backend, and the sizes that it takes: at most most_width elements of a head (0: any), in
    steps of width_step; equal widths of query and value; as many queries as keys; at least so many keys.
    """

    backend: str
    most_width: int = 0
    width_step: int = 1
    needs_equal_widths: bool = False
    needs_square: bool = False
    least_keys: int = 0


class AttentionKind(NamedTuple):
    """What is known of a call beside its sizes: the operands' format and dimensions, whether it has a mask of its own,
    is causal, whether the elements of a head lie one after the other, whether heads of the query share one of the key,
    and whether batches or heads are broadcast.
    """

    operand: str
    dimensions: int
    has_mask: bool
    is_causal: bool
    is_by_rows: bool
    is_grouped: bool = False
    is_broadcast: bool = False


def candidates(
    kind: AttentionKind,
    chip: str,
    family: str,
    enabled: Collection[str] | None = None,
    order: Sequence[str] | None = None,
    version: str = FRAMEWORK[1],
) -> tuple[Candidate, ...]:
    """The backends that may take a call, in the order in which PyTorch asks them. chip, family: of the device, by name.

    enabled: backends that PyTorch's switches allow; None: all. order: in which they are asked; None: PyTorch's default
    on the chip.
    """
    rules = pytorch(version).attention
    taken = []
    for backend in rules.orders.get(family, rules.orders[OTHER]) if order is None else order:
        if enabled is not None and backend not in enabled:
            continue
        if backend == rules.math:
            taken.append(Candidate(backend))
            break
        taken += [
            Candidate(
                backend,
                rule.most_width or 0,
                rule.width_step,
                rule.equal_widths,
                rule.square_causal and kind.is_causal,
                rule.least_keys,
            )
            for rule in rules.backends.values()
            if rule.backend == backend
            and (family in rule.families or chip in rule.chips)
            and kind.operand in rule.operands
            and kind.dimensions == DENSE
            and kind.is_by_rows
            and (rule.masks or not kind.has_mask)
            and (rule.groups or not kind.is_grouped)
            and not kind.is_broadcast
        ]
    return tuple(taken)


def has_small_tiles(chip: str, version: str = FRAMEWORK[1]) -> bool:
    """Whether kernels of attention have smaller tiles on a chip, by name, than on others of its family."""
    return chip in pytorch(version).attention.small_tiles


def first_fit(
    options: Sequence[Sequence[Any]], width: Any, value_width: Any, queries: Any, keys: Any, *, has_mask: bool = False
) -> str:
    """The backend of the first candidate (a Candidate's fields) that takes these sizes. Raises UnsupportedError where
    there is none, as PyTorch does.
    """
    for backend, most_width, step, needs_equal_widths, needs_square, least_keys in options:
        if most_width and (width > most_width or value_width > most_width):
            continue
        if width % step or value_width % step or (needs_equal_widths and width != value_width):
            continue
        if (not needs_square or queries == keys) and keys >= least_keys:
            return str(backend)
    raise UnsupportedError(
        f"scaled_dot_product_attention: no backend that PyTorch's switches allow takes heads of {width} and "
        f"{value_width} elements, {queries} queries and {keys} keys{' with a mask' if has_mask else ''} on this device "
        f"(PyTorch: No available kernel); enable {pytorch().attention.math} (torch.nn.attention.sdpa_kernel)"
    )
