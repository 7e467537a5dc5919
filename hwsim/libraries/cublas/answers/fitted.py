"""What the trees fitted to a library's answers give for a call that no answer was recorded of.

It knows which model is for which call, and how sure it is; not what an answer means, nor who else may have one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwsim.errors import UnsupportedError
from hwsim.formats import format_of
from hwsim.libraries.cublas.answers.features import batch_features, features
from hwsim.libraries.cublas.answers.store import BatchTiles, Entry, Store, store
from hwsim.libraries.cublas.answers.vectors import facts
from hwsim.libraries.cublas.calls import (
    REDUCTION_IN_PLACE,
    REDUCTION_OUTPUT_TYPE,
    VECTOR_BYTES,
    CublasGemm,
    Extrapolation,
    HeuristicQuery,
    Preference,
)
from hwsim.libraries.cublas.pytorch import NARROW, biased_outputs, pytorch_call
from hwsim.libraries.cublas.versions import Version

#: Parts of a call in words.
BIAS, COLUMNS, BATCHES = "a bias", "A by columns", "batches"
ACCUMULATOR_BYTES = 4  # of a sum in fp32
REDUCTIONS = "a limit on the formats in which slices of K are reduced"
PREFERENCE = f"this workspace and {REDUCTIONS}"


class FittedAnswer(NamedTuple):
    """cuBLASLt's numbers (id, stages, slices, reduction, custom option), the probability that they are right, and what
    in the call the library was not asked about.
    """

    order: tuple[int, ...]
    confidence: float
    unasked: Extrapolation


@dataclass(frozen=True, slots=True)
class FittedChoices:
    """The trees of a version, for one of the chips that it was asked on."""

    version: Version
    device: str

    @property
    def trees(self) -> Store:
        """The version's file of trees."""
        return store(self.version.path)

    def entries(
        self, call: CublasGemm, fast: bool | None, batched: bool, like: CublasGemm | None = None
    ) -> list[Entry]:
        """The models for calls with these operands, layouts and alignment, whatever the preference.

        like: the call whose alignment it is, where that has another layout.
        """
        if self.device not in self.version.devices:  # a version or chip that is known by a user's file alone
            return []
        aligned = (like or call).row_bytes == VECTOR_BYTES
        return [
            entry
            for entry in self.trees.entries
            if (entry.operand, entry.fast) == (call.operand, fast)
            and self.device in entry.devices
            and entry.aligned in (None, aligned)
            and (entry.a_layout, entry.b_layout, entry.batched) == (call.a_layout, call.b_layout, batched)
        ]

    def simple_entries(self, call: CublasGemm, fast: bool | None) -> list[Entry]:
        """The models for one product of a call, with A by rows."""
        return self.entries(call._replace(a_layout="rows"), fast, False, like=call)

    def answers(self, query: HeuristicQuery, sizes_m: NDArray[np.int64]) -> list[FittedAnswer]:
        """What the trees give for sizes m of one alignment.

        Where no model has the preference, the answers to the nearest ones stand in, the first that what is allowed
        admits; of none that does the kernel without slices. Raises UnsupportedError where there is no model.
        """
        models = _models_for(self._models(query), query.told)
        if not models:
            told, known = query.told, sorted({entry.workspace_bytes for entry in self._models(query)})
            raise UnsupportedError(
                f"no choices for {query.call.operand} with {told.workspace_bytes} bytes of workspace; known: "
                f"{', '.join(map(str, known)) or 'none'}"
            )
        if len(models) == 1 and query.told.mask:
            return self._of_model(models[0], query, sizes_m)
        each = [self._of_model(model, query, sizes_m) for model in models]
        return [
            _admitted(answers, query._replace(call=query.call._replace(m=int(m))))
            for m, answers in zip(sizes_m, zip(*each, strict=True), strict=True)
        ]

    def _of_model(self, entry: Entry, query: HeuristicQuery, sizes_m: NDArray[np.int64]) -> list[FittedAnswer]:
        """What one model gives: the choice of one product with A by rows, then what another layout or a batch makes of
        it.
        """
        trees, call = self.trees, query.call._replace(m=int(sizes_m[0]))
        sizes = sizes_m, np.full(len(sizes_m), call.n), np.full(len(sizes_m), call.k)
        values = features(*sizes)
        order = entry.order
        labels, sure = self._leaves(entry, values)
        for further in [] if entry.biased else self._further(call, query.fast, query.batch > 1):
            values_of_sizes = batch_features(*sizes, query.batch) if further.batched else values
            before = np.array(order, np.float64)[labels].T
            labels, sure = trees.tree(f"{further.name}.order").leaves(np.concatenate([values_of_sizes, before]))
            entry, order = further, further.order
        unasked = self._unasked(entry, query)
        return [
            FittedAnswer(tuple(order[label]), confidence, unasked)
            for label, confidence in zip(labels.tolist(), sure.tolist(), strict=True)
        ]

    def _leaves(self, entry: Entry, values: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Labels and confidences of a model of single products, by the sizes and the choice of its base."""
        if entry.base:
            base = self.trees.entry(entry.base)
            labels, _ = self._leaves(base, values)
            values = np.concatenate([values, np.array(base.order, np.float64)[labels].T])
        return self.trees.tree(f"{entry.name}.order").leaves(values)

    def vector_answer(self, query: HeuristicQuery) -> FittedAnswer | None:
        """What the trees give for a batch of matrix-vector products; None where they have none."""
        call = query.call
        fits = [entry for entry in self.trees.vectors if call.operand in entry.operands]
        if not fits or self.device not in self.version.devices:
            return None
        label, sure = self.trees.tree(f"{fits[0].name}.order").leaf(facts(call, query.batch)[:, 0])
        usual = pytorch_call((call.n, call.k), format=call.operand, output=call.output, has_bias=False)
        parts = (BIAS,) if query.bias else () if query.told == usual.told else (PREFERENCE,)
        unasked = Extrapolation(parts, self.version.chips_instead(self.device, "batched_vectors"))
        answer = FittedAnswer(tuple(fits[0].order[label]), sure, unasked)
        return answer if query.told.mask else _admitted([answer], query)

    def tile(self, query: HeuristicQuery, order: tuple[int, ...]) -> tuple[int, ...]:
        """cuBLASLt's numbers of tile, cluster, swizzle for a call that is answered so, by the model of another
        workspace if need be; () if not known. Of a batch by its own model, but where the tile says how K is shared.
        """
        call = query.call
        if query.batch > 1 and order[2] >= 0 and (of_batch := self._batch_tiles(call)) is not None:
            facts_of_batch = batch_features(call.m, call.n, call.k, query.batch)[:, 0]
            leaf, _ = self.trees.tree(f"{of_batch.name}.tile").leaf(np.append(facts_of_batch, [order[0], order[2]]))
            return tuple(of_batch.tile[leaf])
        fits = [entry for entry in self.simple_entries(call, query.fast) if entry.tile is not None]
        wanted = (query.told.workspace_bytes, query.told.mask)
        model = next(
            (entry for entry in fits if (entry.workspace_bytes, entry.reductions) == wanted),
            max(fits, key=lambda entry: entry.workspace_bytes, default=None),
        )
        if model is None or model.tile is None:
            return ()
        number, _, slices, *_ = order
        values: NDArray[Any] = np.append(features(call.m, call.n, call.k)[:, 0], [number, slices])
        return tuple(model.tile[self.trees.tree(f"{model.name}.tile").leaf(values)[0]])

    def _batch_tiles(self, call: CublasGemm) -> BatchTiles | None:
        """The model of tiles for batches of such calls; None where there is none."""
        kind = call.a_layout, call.b_layout
        models = self.trees.batch_tiles if self.device in self.version.devices else ()
        return next((x for x in models if call.operand in x.operands and (x.a_layout, x.b_layout) == kind), None)

    def _models(self, query: HeuristicQuery) -> list[Entry]:
        """The models for one product of a call, A by rows, whatever the preference; first those for 16-bit results.

        Models of A by columns and of batches start from the choice for wide results.
        """
        call = query.call
        is_narrow = call.output in NARROW and call.a_layout == "rows" and query.batch == 1
        fits = [
            entry
            for entry in self.simple_entries(call, query.fast)
            if (query.bias or not entry.biased) and (is_narrow or not entry.narrow)
        ]
        return sorted(fits, key=lambda entry: not entry.narrow)

    def _further(self, call: CublasGemm, fast: bool | None, batched: bool) -> list[Entry]:
        """The models that start from the choice of one product with A by rows: that of such calls, or where there is
        none, of A by columns, then of batches.
        """
        if not batched and call.a_layout != "columns":
            return []
        if models := self.entries(call, fast, batched)[:1]:
            return models
        models = self.entries(call, fast, False)[:1] if call.a_layout == "columns" else []
        by_rows = call._replace(a_layout="rows")
        return models + (self.entries(by_rows, fast, True, like=call)[:1] if batched else [])

    def _unasked(self, entry: Entry, query: HeuristicQuery) -> Extrapolation:
        """What in a call the model does not speak of."""
        call, told = query.call, query.told
        # of fewer ways to reduce the choice was asked where it is another one; of more ways, and of none, it was not
        parts = [] if told.mask and told.mask | entry.reductions == entry.reductions else [REDUCTIONS]
        parts = parts if told.workspace_bytes == entry.workspace_bytes else [PREFERENCE]
        # where a bias changes the choice, models of products without one say nothing of those with one
        is_changed = any(model.biased for model in self.trees.entries if model.operand == call.operand)
        if query.bias and (entry.biased != is_changed or not biased_outputs(call.operand)):
            parts.append(BIAS)
        parts += [COLUMNS] if entry.a_layout != call.a_layout else []
        parts += [BATCHES] if entry.batched != (query.batch > 1) else []
        chips: tuple[str, ...] = ()
        if self.device not in entry.asked_on:
            chips = entry.asked_on
        if entry.biased:  # a model of its own
            chips = self.version.chips_instead(self.device, "biased")
        if entry.batched and entry.a_layout == "columns":
            chips = chips or self.version.chips_instead(self.device, "batched_columns")
        return Extrapolation(tuple(parts), chips)


def _models_for(fits: list[Entry], told: Preference) -> list[Entry]:
    """The model of a preference; where there is none, models of the nearest preferences, the nearest first.

    A narrower set of reductions was fitted only where it changes the choice. Kernels without slices were not asked for:
    any model may give one.
    """
    if not told.mask:
        return sorted(fits, key=lambda entry: abs(entry.workspace_bytes - told.workspace_bytes))
    of_size = [entry for entry in fits if entry.workspace_bytes == told.workspace_bytes]
    of_mask = [entry for entry in of_size if entry.reductions == told.mask]
    changes = len({entry.reductions for entry in fits}) > 1 and any(entry.reductions == told.mask for entry in fits)
    wider = [entry for entry in of_size if told.mask | entry.reductions == entry.reductions]
    if of_mask or wider or (of_size and not changes):
        return [(of_mask or wider or of_size)[0]]
    more = [entry for entry in fits if entry.workspace_bytes >= told.workspace_bytes]
    same = [entry for entry in more if entry.reductions == told.mask]
    return sorted(same, key=lambda entry: entry.workspace_bytes) + sorted(
        (entry for entry in more if entry.reductions != told.mask), key=lambda entry: entry.workspace_bytes
    )


def _admitted(answers: Sequence[FittedAnswer], query: HeuristicQuery) -> FittedAnswer:
    """The first answer within the workspace and the reductions of a call; of none the first kernel without slices."""
    fits = [answer for answer in answers if _is_allowed(answer.order, query)]
    if fits:
        return fits[0]
    number, stages, _, _, custom = answers[0].order
    return answers[0]._replace(order=(number, stages, 1, 0, custom))


def _is_allowed(order: tuple[int, ...], query: HeuristicQuery) -> bool:
    """Whether slices of an answer are reduced as a call allows, in the workspace that it has."""
    _, _, slices, reduction, _ = order
    if slices < 2 or not reduction:
        return True
    elements = query.call.m * query.call.n * query.batch
    width = format_of(query.call.output).bits // 8 if reduction == REDUCTION_OUTPUT_TYPE else ACCUMULATOR_BYTES
    needed = 0 if reduction == REDUCTION_IN_PLACE else elements * slices * width
    return bool(reduction & query.told.mask) and needed <= query.told.workspace_bytes
