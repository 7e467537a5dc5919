"""The program of attention in PyTorch's math form: its kernels one after another, as PyTorch launches them.

Conversions, scaling, copies of shared heads and the mask are kernels of their own, and so are the products, the softmax
and what makes hidden rows 0. The module knows the record and the programs of both products; it chooses nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hwsim.dataflows.attention.row_softmax import softmax_kernel
from hwsim.dataflows.elementwise import Pass
from hwsim.dataflows.program_sequence import JoinedKernels
from hwsim.dataflows.reductions import LineReduction
from hwsim.dataflows.vector_ops import VectorOps
from hwsim.gemm.attention_record import MathAttention
from hwsim.gemm.layouts import K_MAJOR
from hwsim.gemm.math_form import roots
from hwsim.program.ir import GlobalArray, LocalTile, Program

if TYPE_CHECKING:
    from hwsim.devices.device import Device

INFINITY = float("inf")
BOOL = "uint8"
PassTiles = list[LocalTile]


def refuses(device: Device) -> str:
    """Why the form has no program on a device, in words; empty where it has one, if both products have."""
    if device.special is None:
        return f"device {device.name} has no special-function unit (special, in its file)"
    if device.vector is None or not device.links or not device.engines:
        return f"device {device.name} has no timing data"
    return ""


def math_program(record: MathAttention, device: Device, scores: Program, values: Program) -> Program:
    """The program. scores, values: of the products of all heads.

    Its inputs are Q (heads x queries, width), K (key heads x width, keys) stored by columns, V (key heads x keys, width
    of the value); under a causal mask `limit` (queries, 1), the number of keys that a row sees, and `index` (1, keys),
    the keys' numbers; a mask of one's own is `mask` (queries of one or all heads, keys). Its output is O (heads x
    queries, width of the value).
    """
    return _MathProgram(record, device).program(scores, values)


class _MathProgram:
    """Appends the kernels in order."""

    def __init__(self, record: MathAttention, device: Device) -> None:
        self.record, self.device = record, device
        self.rows, self.columns = record.heads * record.queries, K_MAJOR[1]
        query = GlobalArray("Q", self.rows, record.width, record.format)
        key = GlobalArray("K", record.key_heads * record.width, record.keys, record.format, self.columns)
        value = GlobalArray("V", record.key_heads * record.keys, record.value_width, record.format)
        self.operands = [query, key, value]
        self.inputs = [array.name for array in self.operands]
        self.joined = JoinedKernels(*self.operands)

    def program(self, scores: Program, values: Program) -> Program:
        record, joined = self.record, self.joined
        of_query, of_key = (float(np.float32(root)) for root in roots(record.factor))
        query, key, value = (self._wide(array) for array in self.operands)
        query = self._scaled("scale_query", query, of_query)
        mask = self._mask()
        if record.groups > 1:
            key, value = self._expanded("repeat_key", key), self._expanded("repeat_value", value)
        key = self._scaled("scale_key", key, of_key)
        products = self._array("scores", record.keys)
        self._product("scores", scores, query, key, products)
        if mask is not None:
            products = self._masked(products, mask)
        weights = self._array("weights", record.keys)
        joined.add_kernel(softmax_kernel(products, weights, record.order.softmax, self.device), weights)
        weights = self._safe(products, weights)
        is_wide = record.format == "fp32"
        sums = GlobalArray("O" if is_wide else "sums", self.rows, record.value_width, "fp32")
        self._product("values", values, weights, value, sums)
        if not is_wide:
            self._cast("round", sums, replace(sums, name="O", format=record.format))
            self._cast("round_weights", weights, replace(weights, name="narrow_weights", format=record.format))
        return joined.program(self.inputs, "O")

    def _array(self, name: str, cols: int) -> GlobalArray:
        """An array with a row for each query of each head."""
        return GlobalArray(name, self.rows, cols, "fp32")

    def _product(self, name: str, part: Program, a: GlobalArray, b: GlobalArray, c: GlobalArray) -> None:
        self.joined.arrays[c.name] = c
        first, second = part.inputs
        self.joined.add_program(name, part, {first: a.name, second: b.name, part.output: c.name})

    def _wide(self, array: GlobalArray) -> GlobalArray:
        """The array in fp32."""
        if array.format == "fp32":
            return array
        wide = replace(array, name=f"{array.name}.wide", format="fp32")
        self._cast(f"widen_{array.name}", array, wide)
        return wide

    def _cast(self, name: str, source: GlobalArray, target: GlobalArray) -> None:
        def body(ops: VectorOps, inputs: PassTiles, outputs: PassTiles, temps: PassTiles) -> None:
            ops.op("cast", outputs[0], inputs[0])

        self._pass(Pass(name, (source,), (target,), (), body))

    def _scaled(self, name: str, source: GlobalArray, factor: float) -> GlobalArray:
        def body(ops: VectorOps, inputs: PassTiles, outputs: PassTiles, temps: PassTiles) -> None:
            ops.op("scale", outputs[0], inputs[0], scalar=factor)

        target = replace(source, name=f"{source.name}.scaled")
        self._pass(Pass(name, (source,), (target,), (), body))
        return target

    def _expanded(self, name: str, source: GlobalArray) -> GlobalArray:
        """Each head as often as heads of the query share it."""

        def body(ops: VectorOps, inputs: PassTiles, outputs: PassTiles, temps: PassTiles) -> None:
            ops.op("copy", outputs[0], inputs[0])

        heads, groups = self.record.heads, self.record.groups
        target = replace(source, name=f"{source.name}.repeated", rows=source.rows * groups)
        self._pass(Pass(name, (source,), (target,), (), body, matrices=heads, shares=(groups,)))
        return target

    def _mask(self) -> GlobalArray | None:
        """The mask that is added to the scores: one that hides what is behind the diagonal, or one's own."""
        record = self.record
        if record.mask != "none":
            matrices = record.heads if record.mask == "own" else 1
            mask = GlobalArray("mask", matrices * record.queries, record.keys, record.format)
            self._input(mask)
            return mask
        if not record.is_causal:
            return None
        limit = self._input(GlobalArray("limit", record.queries, 1, "int32"))
        index = self._input(GlobalArray("index", 1, record.keys, "int32"))

        def body(ops: VectorOps, inputs: Any, outputs: PassTiles, temps: PassTiles) -> None:
            limits, numbers = inputs
            ops.op("fill", outputs[0])
            ops.op("mask", outputs[0], outputs[0], numbers, limits, scalar=-INFINITY)

        target = GlobalArray("mask", record.queries, record.keys, "fp32")
        self._pass(Pass("causal_mask", (), (target,), (), body, of_rows=(limit,), of_columns=(index,)))
        return target

    def _input(self, array: GlobalArray) -> GlobalArray:
        self.joined.arrays[array.name] = array
        self.inputs.append(array.name)
        return array

    def _masked(self, scores: GlobalArray, mask: GlobalArray) -> GlobalArray:
        """The sum of scores and a mask, which heads may share."""
        is_wide = mask.format == "fp32"

        def body(ops: VectorOps, inputs: PassTiles, outputs: PassTiles, temps: PassTiles) -> None:
            values, added = inputs
            if not is_wide:
                ops.op("cast", temps[0], added)
                added = temps[0]
            ops.op("add", outputs[0], values, added)

        target, heads = self._array("masked", self.record.keys), self.record.heads
        shares = (1, 1 if mask.rows == scores.rows else heads)
        temporaries = () if is_wide else ("fp32",)
        self._pass(Pass("add_mask", (scores, mask), (target,), temporaries, body, matrices=heads, shares=shares))
        return target

    def _safe(self, scores: GlobalArray, weights: GlobalArray) -> GlobalArray:
        """The weights, with 0 in rows whose scores are all -infinity: three kernels, as of _safe_softmax."""
        seen = GlobalArray("seen", scores.rows, scores.cols, BOOL)
        flags = GlobalArray("seen_rows", scores.rows, 1, "int32")
        target = self._array("safe_weights", scores.cols)

        def compare(ops: VectorOps, inputs: PassTiles, outputs: PassTiles, temps: PassTiles) -> None:
            number, hidden, shown = temps
            ops.op("scale", number, inputs[0], scalar=-1.0)
            ops.op("fill", hidden)
            ops.op("fill", shown, scalar=1.0)
            ops.op("choose_above", number, number, hidden, shown, scalar=INFINITY)
            ops.op("cast", outputs[0], number)

        def choose(ops: VectorOps, inputs: Any, outputs: PassTiles, temps: PassTiles) -> None:
            values, flag = inputs
            zero = temps[0]
            ops.op("fill", zero)
            ops.op("select", _bits(outputs[0]), flag, _bits(values), zero)

        self._pass(Pass("is_seen", (scores,), (seen,), ("fp32",) * 3, compare))
        self._pass(
            LineReduction(
                name="any_seen",
                source=seen,
                target=flags,
                by_rows=True,
                opcode="reduce_max",
                format="fp32",
                finish="exponent",
            )
        )
        self._pass(Pass("hide_rows", (weights,), (target,), ("int32",), choose, of_rows=(flags,)))
        return target

    def _pass(self, work: Pass | LineReduction) -> None:
        self.joined.add_pass(work, self.device)


def _bits(tile: LocalTile) -> LocalTile:
    """A tile of fp32 as integers of its bits."""
    return replace(tile, format="int32")
