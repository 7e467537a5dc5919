"""The schedule: the order of summation over K and the epilogue of a GEMM, as far as they change bits.

A plan says which products are computed and how they are combined; a schedule says how each product is executed on a
real chip: by which instruction, with which split of K and reduction, and with which epilogue. It knows no device, no
scheme and no array; a device fills in what is left open (`instruction`, `slice_multiple`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from hwsim.errors import InputError, nearest
from hwsim.formats import WORD_BITS, Rounding, format_of
from hwsim.gemm import codec
from hwsim.gemm.summation import FORMATS, Chain, Range, Reduction, Region

MergeOrder = Literal["ascending", "descending", "pairwise"]
MergeInto = Literal["sum", "output"]
Contraction = Literal["none", "alpha", "beta"]
ScaleOrder = Literal["joined", "a", "b"]
KRange = tuple[int, int]
Run = tuple[KRange, ...]

ROUNDINGS: tuple[str, ...] = get_args(Rounding)
INTEGERS = ("int32", "int64")  # arithmetics of sums
MERGE_ORDERS: tuple[str, ...] = get_args(MergeOrder)
#: Fields whose tuples may be given as lists.
LISTS = ("slice_k", "merge_order", "k_permutation", "shape")
CONTRACTIONS: tuple[str, ...] = get_args(Contraction)
MERGE_FORMATS = FORMATS
SLICE_MULTIPLE = 64
SUMS = (Chain, Range, Reduction, Region)
#: How a schedule lists sums and regions in JSON, for messages.
FORM_OF_SUM = (
    'a chain {"is": "Chain", "ranges": [{"is": "Range", "start": 0, "stop": K}]}, or a sum of chains '
    '{"is": "Reduction", "parts": [CHAIN, ...], "order": "pairwise", "level": "workspace"}'
)
FORM_OF_REGIONS = (
    '[{"is": "Region", "rows": {"is": "Range", "start": 0, "stop": 128}, "cols": {"is": "Range", "start": 0, '
    '"stop": 128}, "sum": SUM}, ...], SUM being ' + FORM_OF_SUM
)


def epilogue_format(sums: str, output: str) -> str:
    """The format in which alpha, C and the bias are computed, of sums and an output in these formats.

    It is the sums' format. But integers become fp32, or fp64 for wider floats, if the output is a float; and fp32, from
    which the output saturates, if it is an integer of fewer bits than 32 (cuBLASLt, cuSPARSELt, CUTLASS).
    """
    result = format_of(output)
    if not format_of(sums).is_integer:
        return sums
    if not result.is_integer:
        return "fp64" if result.bits > WORD_BITS else "fp32"
    return "fp32" if result.bits < WORD_BITS else "int64" if "int64" in (sums, output) else "int32"


def has_integer_epilogue(arithmetic: str, output: str) -> bool:
    """Whether alpha, C and the bias are applied to integers. arithmetic: of a plan's sums."""
    return arithmetic in INTEGERS and epilogue_format(arithmetic, output) in INTEGERS


@dataclass(frozen=True, slots=True)
class Epilogue:
    """The epilogue, applied to the finished sum `acc`: D = round(alpha * acc + beta * C + bias), in this order.

    Each operation is one of the accumulator's type (fp32; fp64 and int32 where the unit gives those), nearest even:
    alpha * acc, then beta * C, then their sum, then + bias (one value per column). As in BLAS, alpha and beta may be
    infinite or NaN, and the operations named give what follows. int32 sums take whole numbers below 2^31 and wrap; into
    a float format or a narrower integer they become fp32 first (`epilogue_format`), and a narrower integer saturates.

    Fields:
        alpha: 1 changes nothing.
        beta: with 0 C is not read. None: 1 where a C is given, else 0.
        contraction: "alpha": alpha * acc + (beta * C rounded) is one fused multiply-add. "beta": (alpha * acc rounded)
            + beta * C is. "none": every operation is rounded. None: "alpha" for one slice, "beta" for merged ones, as
            cuBLAS 13 on an H200 did for alpha and beta other than 1 and 0. (Seen for tf32, fp16 and bf16, fp32 and fp16
            outputs. With alpha or beta 0, or both 1, they give the same bits. fp16 and bf16 with beta = 1 and a C of
            fp32: "none".)
        product_format: alpha * acc is rounded to it, nearest even, before beta * C or the bias is added (cuBLAS's
            kernels for fp16 whose names end in "badd"; its matrix-vector products with a bias). It excludes
            contraction. None: the accumulator's type.
        output_format: of D. None: what the unit gives.
        output_rounding: into a narrower output format. Beyond its range as the device's own conversions do (IEEE, or
            saturating where its file says so).
    """

    alpha: float = 1.0
    beta: float | None = None
    contraction: Contraction | None = None
    product_format: str | None = None
    output_format: str | None = None
    output_rounding: Rounding = "RNE"

    def __post_init__(self) -> None:
        _number("epilogue.alpha", self.alpha)
        if self.beta is not None:
            _number("epilogue.beta", self.beta)
        if self.contraction is not None:
            _choice("epilogue.contraction", self.contraction, CONTRACTIONS)
        if self.product_format is not None:
            _choice("epilogue.product_format", self.product_format, MERGE_FORMATS)
            if self.contraction not in (None, "none"):
                raise InputError("epilogue: product_format rounds alpha * acc, a contraction of it does not; give one")
        _choice("epilogue.output_rounding", self.output_rounding, ROUNDINGS)
        if self.output_format is not None:
            format_of(_text("epilogue.output_format", self.output_format))

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON; `from_dict` takes it back."""
        return {entry.name: getattr(self, entry.name) for entry in codec.fields_of(Epilogue)}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Epilogue:
        """The epilogue that `to_dict` wrote. Raises InputError for unknown keys and values that are not allowed."""
        return Epilogue(**_known("epilogue", data, Epilogue))


@dataclass(frozen=True, slots=True)
class Schedule:
    """The order of summation over K of each product, and the epilogue.

    The default is one chain in order of K by the device's widest instruction.

    Fields:
        instruction: name of the matrix instruction. None: the device's for the operands' format. Each chain fills up
            its last instruction with zeros.
        split_k: number of slices of K, each accumulated from zero and merged afterwards. Each slice is ceil(K /
            slice_multiple / split_k) * slice_multiple long, the last one shorter.
        slice_k: length of the slices instead, or all lengths.
        slice_multiple: None: the device file's, or 64 (cuBLAS on an H200).
        merge_order: order in which slices are added. "ascending": (s0 + s1) + s2, as cuBLAS. "descending". "pairwise":
            a balanced tree of neighbours. Or the slices' indices in the order in which they are added.
        partial_format: format in which a slice's sum is stored before the merge, nearest even. None: what the unit
            gives.
        merge_format: format in which the merge adds: operands and sums are rounded to it, nearest even. None: what the
            unit gives. Both formats count only where there is more than one slice.
        merge_into: "sum": slices are merged, then the epilogue follows. "output": the epilogue of the first slice (of
            the merge order) gives D, to which alpha times each later slice, rounded, is added in turn (CUTLASS's serial
            split-K; cuBLAS where it starts no reduction). Only for the unit's own fp32 and fp64 outputs.
        promotion_k: promotion interval. The partial sum of every so many k (from the slice's start) starts from zero in
            the unit and is added outside it to a sum that starts at +0, nearest even, in order of K. None: one chain.
        k_permutation: within each block of len(k_permutation) of K, position i of the chain takes element
            k_permutation[i]; incomplete blocks are filled up with zeros. Blocks are counted from where a run of K
            begins. With remainder "first" the K mod tile_k elements and the whole tiles behind them are two runs.
        remainder: "first": a chain takes the K mod tile_k elements of its slice before the whole tiles of tile_k
            (CUTLASS's main loop for Ampere), filled up with zeros to whole instructions. "last": in order.
        tile_k: length of a whole tile, for remainder "first".
        operand_rounding: of the operands to the unit's format, for plans with one piece each. None: the plan's.
        start: "zero", or "c": C starts in the accumulator of the first slice (then alpha and beta must be 1).
        epilogue: what is done with the finished sum.
        scale_order: of the factors of A and B outside the unit. "joined": the product of both, rounded, multiplies the
            sum. "a": A's factor multiplies the sum first, then B's. "b": B's first. Of blocks along K the last
            multiplication is fused with the addition.
        sum: the order of summation written out, for kernels that follow none of the rules above but promotion_k, which
            then counts from the start of each chain.
        regions: the same for parts of C, where it differs from tile to tile. What lies in no region follows `sum`, or
            the rules.
        shape: (m, n) of the product that regions count in, where it is known; a library's choice holds it.

    Raises InputError for a value that is not allowed or two that exclude each other.
    """

    instruction: str | None = None
    split_k: int = 1
    slice_k: int | tuple[int, ...] | None = None
    slice_multiple: int | None = None
    merge_order: MergeOrder | tuple[int, ...] = "ascending"
    partial_format: str | None = None
    merge_format: str | None = None
    merge_into: MergeInto = "sum"
    promotion_k: int | None = None
    k_permutation: tuple[int, ...] | None = None
    remainder: Literal["last", "first"] = "last"
    tile_k: int | None = None
    operand_rounding: Rounding | None = None
    start: Literal["zero", "c"] = "zero"
    epilogue: Epilogue = field(default_factory=Epilogue)
    scale_order: ScaleOrder = "joined"
    sum: Chain | Reduction | None = None
    regions: tuple[Region, ...] = ()
    shape: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        for name in LISTS:
            if isinstance(getattr(self, name), list):
                object.__setattr__(self, name, tuple(getattr(self, name)))
        if self.instruction is not None:
            _text("instruction", self.instruction)
        _count("split_k", self.split_k)
        if isinstance(self.slice_k, tuple):
            if not self.slice_k:
                raise InputError("schedule: slice_k = (); allowed: a length, or at least one of them")
            for length in self.slice_k:
                _count("slice_k", length)
        elif self.slice_k is not None:
            _count("slice_k", self.slice_k)
        for name in ("slice_multiple", "promotion_k", "tile_k"):
            if getattr(self, name) is not None:
                _count(name, getattr(self, name))
        for name in ("partial_format", "merge_format"):
            if getattr(self, name) is not None:
                _choice(name, getattr(self, name), MERGE_FORMATS)
        _choice("merge_into", self.merge_into, get_args(MergeInto))
        if self.merge_into == "output" and (
            self.merge_order == "pairwise" or self.partial_format is not None or self.merge_format is not None
        ):
            raise InputError(
                "schedule: merge_into='output' adds slice after slice to D; leave out merge_order='pairwise', "
                "partial_format and merge_format"
            )
        for name, order in (("merge_order", self.merge_order), ("k_permutation", self.k_permutation)):
            if isinstance(order, tuple) and sorted(order, key=repr) != sorted(range(len(order)), key=repr):
                raise InputError(f"schedule: {name} = {order}; allowed: each of 0 to {len(order) - 1} once")
        if not isinstance(self.merge_order, tuple):
            _choice("merge_order", self.merge_order, MERGE_ORDERS)
        if self.k_permutation is not None and (not isinstance(self.k_permutation, tuple) or not self.k_permutation):
            raise InputError(f"schedule: k_permutation = {self.k_permutation!r}; allowed: a tuple of positions")
        _choice("remainder", self.remainder, ("last", "first"))
        if (self.remainder == "first") != (self.tile_k is not None):
            raise InputError("schedule: remainder='first' and tile_k belong together; give both or neither")
        if self.tile_k is not None and self.promotion_k is not None:
            raise InputError("schedule: remainder='first' and promotion_k exclude each other")
        if self.operand_rounding is not None:
            _choice("operand_rounding", self.operand_rounding, ROUNDINGS)
        _choice("start", self.start, ("zero", "c"))
        _choice("scale_order", self.scale_order, get_args(ScaleOrder))
        if self.shape is not None:
            if not isinstance(self.shape, tuple) or len(self.shape) != 2:
                raise InputError(f"schedule: shape = {self.shape!r}; allowed: (m, n)")
            for extent in self.shape:
                _count("shape", extent)
        if self.sum is not None and not isinstance(self.sum, Chain | Reduction):
            raise InputError(f"schedule: sum = {codec.shortened(self.sum)}; allowed: {FORM_OF_SUM} (docs/schemes.md)")
        if not isinstance(self.regions, tuple) or not all(isinstance(region, Region) for region in self.regions):
            raise InputError(
                f"schedule: regions = {codec.shortened(self.regions)}; allowed: {FORM_OF_REGIONS} (docs/schemes.md)"
            )
        if self.sum is not None and (self.split_k != 1 or self.slice_k is not None or self.remainder == "first"):
            raise InputError("schedule: `sum` says how K is cut; leave out split_k, slice_k and remainder")
        if not isinstance(self.epilogue, Epilogue):
            raise InputError(f"schedule: epilogue = {self.epilogue!r}; allowed: an Epilogue")
        if self.start == "c" and (self.epilogue.alpha != 1 or self.epilogue.beta not in (None, 1)):
            raise InputError("schedule: start='c' puts C into the accumulator: alpha and beta must be 1")

    @property
    def m(self) -> int | None:
        """Rows of the product that the schedule is of, where it is of one."""
        return None if self.shape is None else self.shape[0]

    @property
    def n(self) -> int | None:
        """Columns of the product that the schedule is of, where it is of one."""
        return None if self.shape is None else self.shape[1]

    def slice_lengths(self, k: int) -> tuple[int, ...]:
        """Lengths of the split-K slices for K = k, in order. Raises InputError where they do not fit k."""
        if isinstance(self.slice_k, tuple):
            if sum(self.slice_k) != k or self.split_k not in (1, len(self.slice_k)):
                raise InputError(
                    f"schedule: slice_k = {self.slice_k} adds up to {sum(self.slice_k)}, with split_k = "
                    f"{self.split_k}; allowed: lengths that add up to K = {k}, split_k 1 or their number"
                )
            return self.slice_k
        length = self.slice_k
        if length is None:
            multiple = self.slice_multiple or SLICE_MULTIPLE
            length = k if self.split_k == 1 else math.ceil(math.ceil(k / multiple) / self.split_k) * multiple
        elif self.split_k not in (1, -(-k // length)):
            raise InputError(
                f"schedule: slices of slice_k = {length} cut K = {k} into {-(-k // length)}, not split_k = "
                f"{self.split_k}; leave one of them out"
            )
        return tuple([min(length, k - start) for start in range(0, k, length)])

    def with_slices_of(self, k: int, count: int | None = None) -> Schedule:
        """The same order with the number of slices that run: rounding their length up may leave the last ones empty.

        count: slices to cut K = k into, instead of `split_k`. Where lengths or a written-out sum say how K is cut,
        nothing changes.
        """
        if self.slice_k is not None or self.sum is not None:
            return self
        wanted = self if count is None else dataclasses.replace(self, split_k=count)
        return dataclasses.replace(wanted, split_k=len(wanted.slice_lengths(k)))

    def k_partition(self, k: int) -> KPartition:
        """The slices, runs and spans of K = k. Raises InputError where the slices, or their merge order, do not fit."""
        slices: list[tuple[Run, ...]] = []
        start = 0
        for length in self.slice_lengths(k):
            stop = start + length
            step = self.promotion_k or length
            if self.tile_k is not None and 0 < length % self.tile_k < length:
                middle = start + length % self.tile_k
                slices.append((((start, middle), (middle, stop)),))
            else:
                slices.append(tuple([((at, min(at + step, stop)),) for at in range(start, stop, step)]))
            start = stop
        if isinstance(self.merge_order, tuple) and len(self.merge_order) != len(slices):
            raise InputError(
                f"schedule: merge_order names {len(self.merge_order)} slices, but K = {k} is cut into {len(slices)}"
            )
        return KPartition(tuple(slices))

    def to_dict(self) -> dict[str, Any]:
        """The schedule as plain data, ready for JSON; `from_dict` reads it."""
        plain = {entry.name: getattr(self, entry.name) for entry in codec.fields_of(Schedule)}
        written = {name: codec.encode(plain.pop(name)) for name in ("sum", "regions", "shape")}
        listed = {name: list(value) for name, value in plain.items() if isinstance(value, tuple)}
        return plain | listed | {"epilogue": self.epilogue.to_dict()} | {x: y for x, y in written.items() if y}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Schedule:
        """The schedule that `to_dict` wrote; missing keys take their defaults.

        Raises InputError for unknown keys and values that are not allowed.
        """
        entries = _known("schedule", data, Schedule)
        written = {
            name: _decoded(name, entries.pop(name), form)
            for name, form in (("sum", FORM_OF_SUM), ("regions", FORM_OF_REGIONS))
            if name in entries
        }
        entries = {
            name: tuple(value) if isinstance(value, list) else value for name, value in entries.items()
        } | written
        if isinstance(entries.get("epilogue"), Mapping):
            entries["epilogue"] = Epilogue.from_dict(entries["epilogue"])
        return Schedule(**entries)


@dataclass(frozen=True, slots=True)
class KPartition:
    """A partition of K: slices (split-K, merged) of runs (promoted) of spans (each one chain that begins a new
    instruction).

    Spans of a run are in the order of the chain.
    """

    slices: tuple[tuple[Run, ...], ...]

    def prefix(self, k: int) -> KPartition:
        """The same partition, limited to the first k elements of K (empty slices are dropped)."""
        prefixes = []
        for runs in self.slices:
            cut = tuple(tuple((start, min(stop, k)) for start, stop in run if start < k) for run in runs)
            if any(cut):
                prefixes.append(tuple(run for run in cut if run))
        return KPartition(tuple(prefixes))


def schedule_of(value: Schedule | Mapping[str, Any] | None) -> Schedule:
    """A Schedule from a schedule, its mapping form, or None (the default). Raises InputError for anything else."""
    if value is None:
        return Schedule()
    if isinstance(value, Schedule):
        return value
    if isinstance(value, Mapping):
        return Schedule.from_dict(value)
    raise InputError(f"schedule: got {type(value).__name__}; allowed: a Schedule, or a mapping with its fields")


def _decoded(name: str, data: Any, form: str) -> Any:
    """Sums or regions of plain data. Raises InputError, which says what form they have."""
    try:
        return codec.decode(data, SUMS, f"schedule.{name}")
    except InputError as error:
        raise InputError(f"{error}\nform of {name}: {form} (docs/schemes.md)") from None


def _known(what: str, values: Mapping[str, Any], record: type[Any]) -> dict[str, Any]:
    allowed = [entry.name for entry in dataclasses.fields(record)]
    for key in values:
        if key not in allowed:
            raise InputError(f"{what}: unknown key {key!r}; allowed: {', '.join(allowed)}{nearest(str(key), allowed)}")
    return dict(values)


def _choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        near = nearest(value, allowed) if isinstance(value, str) else ""
        raise InputError(f"schedule: {name} = {value!r}; allowed: {', '.join(allowed)}{near}")


def _count(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"schedule: {name} = {value!r}; allowed: an integer of at least 1")


def _number(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"schedule: {name} = {value!r}; allowed: a number")


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise InputError(f"schedule: {name} = {value!r}; allowed: a name")
    return value
