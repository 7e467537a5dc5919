"""The dataflow of a separated DaVinci core: cube cores and vector cores that meet in global memory.

Each term of a plan is a GEMM kernel of the cube cores (hwsim.dataflows.davinci.cube), whose FixPipe writes the sums to
global memory. What is elementwise (splits, sums of runs of K, joining the terms, alpha and C) are kernels of the vector
cores, since there is no path from UB to L1 and none from L0C to UB. It knows plans and devices, not a scheme's split.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hwsim.dataflows.davinci.cube import Blocking, Grid, Shapes, Work, cube_kernel
from hwsim.dataflows.elementwise import (
    Pass,
    VectorOps,
    depth,
    evaluate,
    lower_pass,
    split_pass,
    stand_in_pass,
)
from hwsim.dataflows.expressions import has_integer_parts, operations, parts_of
from hwsim.dataflows.layouts import OPTIONS as ORDERS
from hwsim.dataflows.layouts import facts, layout_of
from hwsim.dataflows.tiles import fields, slices_of
from hwsim.errors import InputError, UnsupportedError, nearest
from hwsim.formats import format_of
from hwsim.gemm.plan import OperandSum, Piece, Plan, TermValue
from hwsim.program.ir import GlobalArray, Kernel, LocalTile, Program

if TYPE_CHECKING:
    from hwsim.devices.model import Device

EPILOGUE = True
TILE_KEYS = ("m", "n", "k")  # baseM, baseN, baseK
OPTIONS = ("tile", "buffering", "swizzle", "step_ka", "step_kb", "deal", "grid", "unit_flag", *ORDERS)
DEALS = ("tiles", "blocks")
BUFFERS = {"single": 1, "double": 2}
WORDS = {"fp32": 1, "int32": 1, "int64": 2}  # 32-bit words of the vector cores' arithmetic
PER_PASS = 8  # sums of runs of K that one vector kernel adds


def lower(plan: Plan, device: Device, m: int, n: int, k: int, options: Mapping[str, Any]) -> Program:
    """Return the program that computes C[m, n] = A[m, k] B[k, n] by `plan` on `device`.

    options: tile {"m", "n", "k"}: C in L0C, and K of one load to L0A and L0B; step_ka, step_kb: that many K in a packet
    from global memory to L1, of A and of B; buffering "single" or "double"; deal: "tiles" to the cores in turn, or
    "blocks" of C, one to each, as Huawei's samples do (grid: their rows and columns; default: the evenest); swizzle:
    tiles in a band of columns gone through together (of tiles dealt in turn); unit_flag (True): the FixPipe begins with
    a tile while the cube still works on it, on devices with `flags.unit_bytes`; a_layout, b_layout: "rows", "columns",
    what follows one another in memory of A and B and of their pieces. Epilogue: alpha, beta, c (True: C is read), bias
    (True), output (format of the result). Absent or None: chosen, or none.
    Raises InputError for a blocking that the device cannot hold, UnsupportedError for a plan that it cannot carry.
    `facts`: tile, step_ka, step_kb, buffering, swizzle, k_group (K accumulated in the unit from zero), unit, kernels.
    """
    return _Lowering(plan, device, m, n, k, options).program()


class _Lowering:
    def __init__(self, plan: Plan, device: Device, m: int, n: int, k: int, options: Mapping[str, Any]) -> None:
        self.plan, self.device, self.m, self.n, self.k, self.options = plan, device, m, n, k, options
        if plan.arithmetic not in WORDS or format_of(plan.input_format).bits > 32:
            what = "exact sums" if plan.arithmetic == "exact" else "fp64"
            raise UnsupportedError(
                f"device {device.name}: its vector cores have no {what}; scheme {plan.scheme} needs it outside the cube"
            )
        if any(stage.scale_exponent for term in plan.terms for stage in term.stages):
            raise UnsupportedError(f"device {device.name}: the cube does not scale its accumulator (scale-input-d)")
        self.alpha = 1.0 if options.get("alpha") is None else float(options["alpha"])
        self.reads_c, self.bias = bool(options.get("c")), bool(options.get("bias"))
        self.beta = float(self.reads_c) if options.get("beta") is None else float(options["beta"])
        self.order = {side: layout_of(options, side) for side in ("A", "B")}
        self.arrays: dict[str, GlobalArray] = {}
        self.inputs: list[str] = []
        self.splits: list[Kernel] = []
        self.kernels: list[Kernel] = []
        sides = [self._operand(*side) for side in (("A", plan.a_pieces, m, k), ("B", plan.b_pieces, k, n))]
        self.formats = tuple({p: f for p, (_, f) in side.items()} for side in sides)
        self.sources = tuple({p: array for p, (array, _) in side.items()} for side in sides)
        self.works = [self._work(t) for t in range(len(plan.terms))]
        self.shapes = Shapes(device, self.works, (m, n, k))
        self.d = self.shapes.unit.d
        single = len(plan.terms) == 1 and isinstance(plan.combine, TermValue)
        own = self.d if single and plan.arithmetic == "fp32" else plan.output_format
        self.output = GlobalArray("C", m, n, options.get("output") or own)
        self.arrays["C"] = self.output
        plain = single and not self._promoted(0) and self.alpha == 1 and not self.reads_c and not self.bias
        self.direct = plain and (self.output.format == self.d or self._casts("L0C", "GM", self.d, self.output.format))
        on_lanes = self.d == "fp32" and plan.arithmetic == "fp32" and not has_integer_parts(plan.combine)
        bare = single and self.alpha == 1 and not self.reads_c and not self.bias
        whole = self.d == "int32" and bare and self.output.format == "int32"  # sums of runs alone
        self.stand_ins = 0 if self.direct or on_lanes or whole else max(1, operations(plan.combine))

    # --- operands ----------------------------------------------------------------------------------------------

    def _casts(self, source: str, target: str, a: str, b: str) -> bool:
        """Whether a link rounds from format a to b on its way."""
        links = self.device.links.values()
        return any((x.source, x.target) == (source, target) and f"{a}.{b}" in x.casts for x in links)

    def _operand(self, side: str, pieces: Sequence[Piece], rows: int, cols: int) -> dict[int, tuple[GlobalArray, str]]:
        """Arrays of an operand's pieces, with the format that the cube takes; the pass that makes them."""
        plan, fmt = self.plan, self.plan.input_format
        at = "AB".index(side)
        used = sorted({pair[at] for term in plan.terms for pair in term.products})
        if len(pieces) == 1 and not pieces[0].scale_exponent:
            own = pieces[0]
            if own.format == fmt or (own.rounding == "RNE" and self._casts("GM", "L1", fmt, own.format)):
                self.arrays[side] = GlobalArray(side, rows, cols, fmt, self.order[side])
                self.inputs.append(side)
                return {0: (self.arrays[side], own.format)}
        names = {p: side if len(pieces) == 1 else f"{side}{p + 1}" for p in used}
        made = {p: GlobalArray(names[p], rows, cols, pieces[p].format, self.order[side]) for p in used}
        source = GlobalArray(f"{side}.in", rows, cols, fmt, self.order[side])
        self.arrays[source.name] = source
        self.arrays.update({array.name: array for array in made.values()})
        self.inputs.append(source.name)
        name = f"split_{side.lower()}"
        if plan.split == "slices":
            self._split(stand_in_pass(f"largest_{side.lower()}", [source], [], 1, 1))
        if any(isinstance(x, OperandSum) and x.side == side.lower() for x in parts_of(plan.combine)):
            self._split(stand_in_pass(f"sum_{side.lower()}", [source], [], 1, 1))
        if plan.split != "round":
            per_piece = {"bytes": 1, "slices": 4}[plan.split]
            self._split(stand_in_pass(name, [source], list(made.values()), per_piece * len(pieces), 1))
        else:
            self._split(split_pass(name, source, [(piece, made.get(p)) for p, piece in enumerate(pieces)]))
        return {p: (made[p], pieces[p].format) for p in used}

    def _split(self, work: Pass) -> None:
        self.splits.append(lower_pass(work, self.device))

    # --- terms -------------------------------------------------------------------------------------------------

    def _run(self, t: int) -> int | None:
        """K that term t accumulates in the cube from zero; None: all of it."""
        term = self.plan.terms[t]
        run = self.plan.k_group if term.k_group is None else term.k_group
        if run == "instruction":
            run = self.shapes.unit.k
        return run if isinstance(run, int) and run < self.k else None

    def _promoted(self, t: int) -> bool:
        """Whether sums of runs are added outside, to a sum that starts at +0 (also where there is one run)."""
        return self.plan.terms[t].k_group is not None or self.plan.k_group is not None

    def _runs(self, t: int) -> int:
        run = self._run(t)
        return 1 if run is None else -(-self.k // run)

    def _work(self, t: int) -> Work:
        """The kernel of a term, but for its runs of K and its result."""
        term = self.plan.terms[t]
        name = "gemm" if len(self.plan.terms) == 1 else f"gemm_{t + 1}"
        used = [{pair[i] for pair in term.products} for i in range(2)]
        left, right = ({p: self.sources[i][p] for p in used[i]} for i in range(2))
        forms = tuple({p: self.formats[i][p] for p in used[i]} for i in range(2))
        target = GlobalArray(f"T{t + 1}", self.m, self.n, "fp32")
        return Work(name, term, (left, right), (forms[0], forms[1]), target)

    # --- the program -------------------------------------------------------------------------------------------

    @property
    def computes(self) -> bool:
        """Whether the functional machine forms the plan's values from the program."""
        plan = self.plan
        if self.stand_ins or plan.clamp or plan.specials != "unit" or plan.split != "round" or self.bias:
            return False
        return not self.reads_c and (self.alpha == 1 or self.d == "fp32")

    def program(self) -> Program:
        """All kernels: splits, GEMMs, vector passes."""
        buffering = self.options.get("buffering") or "double"
        if buffering not in BUFFERS:
            raise InputError(
                f"buffering: got {buffering!r}; allowed: single, double{nearest(str(buffering), list(BUFFERS))}"
            )
        steps = (self.options.get("step_ka"), self.options.get("step_kb"))
        blocking = self.shapes.choose(self.options.get("tile"), BUFFERS[buffering], steps)
        blocking = replace(blocking, unit_flag=self._unit_flag())
        swizzle = self.options.get("swizzle")
        if swizzle is not None and (isinstance(swizzle, bool) or not isinstance(swizzle, int) or swizzle < 1):
            raise InputError(f"swizzle = {swizzle!r}; allowed: an integer of at least 1")
        deal = self.options.get("deal") or "tiles"
        if deal not in DEALS:
            raise InputError(f"deal: got {deal!r}; allowed: {', '.join(DEALS)}{nearest(str(deal), list(DEALS))}")
        tile, cores = (blocking.m, blocking.n), self.device.cores
        dealt = fields(self.m, self.n, slices_of([self.k]), 1, tile, swizzle or 0, cores)
        found = Grid.of(self.m, self.n, tile, cores, self.options.get("grid")) if deal == "blocks" else dealt
        self.kernels += self.splits
        for t in range(len(self.plan.terms)):
            target = self.output
            if not self.direct:
                target = GlobalArray(f"T{t + 1}", self._runs(t) * self.m, self.n, self.d)
                self.arrays[target.name] = target
            work = replace(self.works[t], target=target, run=self._run(t))
            self.kernels.append(cube_kernel(self.shapes, work, blocking, found))
        if not self.direct:
            self._finish()
        facts = self._facts(blocking, buffering) | {"deal": deal, "unit_flag": blocking.unit_flag}
        if deal == "tiles":
            facts["swizzle"] = max(field.band for field in dealt)
        return Program(
            tuple(self.arrays.values()), tuple(self.kernels), tuple(self.inputs), "C", facts, computes=self.computes
        )

    def _unit_flag(self) -> bool:
        given = self.options.get("unit_flag") or False
        if not isinstance(given, bool):
            raise InputError(f"unit_flag: got {given!r}; allowed: True, False")
        if given and (self.device.flags is None or self.device.flags.unit_bytes is None):
            raise UnsupportedError(f"device {self.device.name} has no UnitFlag: its file has no flags.unit_bytes")
        return given

    def _facts(self, blocking: Blocking, buffering: str) -> dict[str, object]:
        first = self.plan.terms[0].products[0]
        runs = [run for t in range(len(self.plan.terms)) if (run := self._run(t)) is not None]
        return {
            "tile": {"m": blocking.m, "n": blocking.n, "k": blocking.k},
            "step_ka": blocking.step_a,
            "step_kb": blocking.step_b,
            "buffering": buffering,
            "k_group": runs[0] if runs else self.k,
            "unit": self._unit(first),
            "kernels": len(self.kernels),
            **facts(self.order),
        }

    def _unit(self, pair: tuple[int, int]) -> str:
        from hwsim.evaluate.evaluator import instruction_for

        return instruction_for(self.device, self.formats[0][pair[0]], self.formats[1][pair[1]])

    def _pass(self, work: Pass) -> None:
        self.kernels.append(lower_pass(work, self.device))

    # --- after the GEMMs ---------------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Sums of runs, then the terms joined, alpha, C, and the result's format."""
        terms = range(len(self.plan.terms))
        names = [f"T{t + 1}" for t in terms]
        if self.stand_ins:
            self._stand_in(
                [(self.arrays[name], r * self.m) for t, name in enumerate(names) for r in range(self._runs(t))]
            )
            return
        bare = self.alpha == 1 and not self.reads_c and not self.bias and self.output.format == self.d
        if self.plan.join == "group" or (bare and len(names) == 1 and isinstance(self.plan.combine, TermValue)):
            total = self.output if bare else GlobalArray("T.sum", self.m, self.n, self.d)
            self._fold("join" if len(names) > 1 else "sum", names, total, self._runs(0))
            if not bare:
                self._combine([total], joined=True)
            return
        sums = []
        for t, name in enumerate(names):
            if self._promoted(t):
                total = GlobalArray(f"{name}.sum", self.m, self.n, self.d)
                self._fold(f"sum_{t + 1}", [name], total, self._runs(t))
                sums.append(total)
            else:
                sums.append(self.arrays[name])
        self._combine(sums, joined=False)

    def _stand_in(self, values: list[tuple[GlobalArray, int]]) -> None:
        """Passes that read the terms' runs (arrays, first rows) and work as long as their sum would take."""
        words = WORDS[self.plan.arithmetic]
        for first in range(0, len(values), PER_PASS):
            chosen = values[first : first + PER_PASS]
            last = first + PER_PASS >= len(values)
            count = len(chosen) - 1 + (self.stand_ins + self.reads_c + self.bias if last else 0)

            def body(
                ops: VectorOps, ins: list[LocalTile], outs: list[LocalTile], temps: list[LocalTile], count: int = count
            ) -> None:
                wide = replace(temps[0], cols=temps[0].cols * words, format="fp32")
                for _ in range(max(count, 1)):
                    ops.op("add", wide, wide, wide)

            inputs = [array for array, _ in chosen] + ([self.output] if first else [])
            offsets = [row for _, row in chosen] + ([0] if first else [])
            name = "combine" if len(values) <= PER_PASS else f"combine.{first // PER_PASS + 1}"
            scratch = ("fp64" if words > 1 else "fp32",)
            self._pass(Pass(name, tuple(inputs), (self.output,), scratch, body, None, tuple(offsets)))

    def _fold(self, label: str, names: list[str], total: GlobalArray, runs: int) -> None:
        """total = (+0 + value of run 0) + value of run 1 ..., of one term, or of the terms joined."""
        self.arrays[total.name] = total
        expression = self.plan.combine if len(names) > 1 else TermValue(0)
        sources = [self.arrays[name] for name in names]
        per_pass = max(1, PER_PASS // len(names))
        for first in range(0, runs, per_pass):
            count = min(per_pass, runs - first)

            def body(
                ops: VectorOps,
                ins: list[LocalTile],
                outs: list[LocalTile],
                temps: list[LocalTile],
                first: int = first,
                count: int = count,
            ) -> None:
                so_far = temps[0] if first == 0 else ins[-1]
                if first == 0:
                    ops.op("fill", so_far, scalar=0.0)
                for i in range(count):
                    values = dict(enumerate(ins[i * len(names) : (i + 1) * len(names)]))
                    value = values[0]
                    if not isinstance(expression, TermValue):
                        value = temps[1]
                        evaluate(ops, expression, values, value, temps[2:])
                    ops.op("add", outs[0], so_far, value)
                    so_far = outs[0]

            inputs = [array for _ in range(count) for array in sources]
            offsets = [(first + i) * self.m for i in range(count) for _ in sources]
            if first:
                inputs, offsets = [*inputs, total], [*offsets, 0]
            temporaries = (self.d,) * (2 + depth(expression))
            name = label if runs <= per_pass else f"{label}.{first // per_pass + 1}"
            self._pass(Pass(name, tuple(inputs), (total,), temporaries, body, None, tuple(offsets)))

    def _combine(self, arrays: list[GlobalArray], joined: bool) -> None:
        """The result from the terms' arrays (joined: from the joined sum)."""
        expression = TermValue(0) if joined else self.plan.combine
        reads = list(arrays)
        if self.reads_c:
            self.arrays["C.in"] = GlobalArray("C.in", self.m, self.n, self.output.format)
            reads.append(self.arrays["C.in"])

        def body(ops: VectorOps, ins: list[LocalTile], outs: list[LocalTile], temps: list[LocalTile]) -> None:
            value = ins[expression.term] if isinstance(expression, TermValue) else temps[0]
            if value is temps[0]:
                evaluate(ops, expression, dict(enumerate(ins[: len(arrays)])), value, temps[2:])
            if self.alpha != 1:
                ops.op("scale", temps[0], value, scalar=self.alpha)
                value = temps[0]
            if self.reads_c:
                other = ins[-1]
                if other.format != "fp32":
                    ops.op("cast", temps[1], other)
                    other = temps[1]
                if self.beta != 1:
                    ops.op("scale", temps[1], other, scalar=self.beta)
                    other = temps[1]
                ops.op("add", temps[0], value, other)
                value = temps[0]
            if self.bias:
                ops.op("add", temps[0], value, value)
                value = temps[0]
            ops.op("copy" if outs[0].format == value.format else "cast", outs[0], value)

        self._pass(Pass("combine", tuple(reads), (self.output,), ("fp32",) * (2 + depth(expression)), body))


__all__ = ["EPILOGUE", "OPTIONS", "TILE_KEYS", "lower"]
