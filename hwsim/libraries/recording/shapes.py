"""Which GEMMs a user wants recorded: from the command line's words and from a CSV file.

It knows what hwsim's library calls take; neither GPUs nor answers.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from hwsim.errors import InputError, UnsupportedError, nearest
from hwsim.host.input_files import MOST_TABLE_BYTES, read_text
from hwsim.libraries.cublas.answers.sweeps import CallKind
from hwsim.libraries.cublas.calls import ACCUMULATES, LAYOUTS, checked_call
from hwsim.libraries.cublas.pytorch import biased_outputs, pytorch_call, pytorch_output
from hwsim.libraries.cublas.versions import calls_taken
from hwsim.libraries.gemm_call import GemmCall
from hwsim.libraries.recording.cublaslt import Kind

MOST_SWEPT = 1 << 20  # m of a sweep
SIZES = ("m", "n", "k")
TRUTHS = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}


@dataclass(frozen=True, slots=True)
class GemmForm:
    """All of a GEMM C[m, n] = A[m, k] B[k, n] but m, as PyTorch calls it.

    format, output: hwsim's names. accumulate: of e4m3, else None. bias: one value per column. Layouts: "rows",
    "columns".
    """

    n: int
    k: int
    format: str
    output: str
    accumulate: str | None
    bias: bool
    a_layout: str
    b_layout: str

    @property
    def fast(self) -> bool | None:
        """Accumulation of 8-bit floats in the unit alone; None for other operands."""
        return None if self.accumulate is None else self.accumulate == "fast"

    @property
    def call_kind(self) -> CallKind:
        """As files of answers key it."""
        call = pytorch_call((self.n, self.k), format=self.format, output=self.output, has_bias=self.bias)
        return CallKind(
            operand=self.format,
            output=self.output,
            bias=self.bias,
            fast=self.fast,
            a_layout=self.a_layout,
            b_layout=self.b_layout,
            workspace_bytes=call.told.workspace_bytes,
            reductions=call.told.mask,
        )

    @property
    def asked(self) -> Kind:
        """As cuBLASLt is asked for it: a bias that is not an epilogue is the C of a plain product."""
        call = pytorch_call((self.n, self.k), format=self.format, output=self.output, has_bias=self.bias)
        return Kind(self.format, self.output, self.fast, self.bias and call.is_lt)

    @property
    def options(self) -> dict[str, Any]:
        """As keywords of `hwsim.run`, the bias left out."""
        options = {name: getattr(self, name) for name in ("format", "output", "a_layout", "b_layout")}
        return options if self.accumulate is None else options | {"accumulate": self.accumulate}

    @property
    def text(self) -> str:
        """The kind in words."""
        return self.call_kind.text


class GemmShape(NamedTuple):
    """One GEMM."""

    m: int
    form: GemmForm

    @property
    def sizes(self) -> tuple[int, int, int]:
        """(m, n, k)."""
        return self.m, self.form.n, self.form.k


class WeightSweep(NamedTuple):
    """A weight over m: first to last, both among them."""

    form: GemmForm
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to record: single GEMMs, and weights over m."""

    shapes: tuple[GemmShape, ...]
    sweeps: tuple[WeightSweep, ...] = ()


def form_of(
    m: int,
    n: int,
    k: int,
    *,
    format: str,
    output: str | None = None,
    accumulate: str | None = None,
    bias: bool = False,
    a_layout: str = "rows",
    b_layout: str = "columns",
) -> GemmForm:
    """A checked form. output None: that of PyTorch's call. accumulate None: fast, of e4m3. Raises InputError for values
    that are not allowed, UnsupportedError for what cuBLASLt refuses and for a bias that PyTorch's call does not take.
    """
    own_output = pytorch_output(format) if output is None else output
    gemm_call = GemmCall(
        m=m,
        n=n,
        k=k,
        format=format,
        output=own_output,
        accumulate=accumulate,
        a_layout=a_layout,
        b_layout=b_layout,
    )
    call = checked_call(calls_taken(), gemm_call)
    pytorch_call((n, k), format=format, output=call.output, has_bias=bias)
    if bias and call.output not in (allowed := biased_outputs(format)):
        raise UnsupportedError(
            f"output {call.output}: with a bias PyTorch's products of {format} give {' or '.join(allowed)}; take that, "
            "or leave the bias out"
        )
    return GemmForm(
        n=call.n,
        k=call.k,
        format=format,
        output=call.output,
        accumulate=(accumulate or "fast") if format == "e4m3" else None,
        bias=bias,
        a_layout=a_layout,
        b_layout=b_layout,
    )


COLUMNS = (*SIZES, *(field.name for field in fields(GemmForm) if field.name not in SIZES))
NEEDED = (*SIZES, "format")


def read_shapes(path: Path) -> tuple[GemmShape, ...]:
    """The GEMMs of a CSV file with columns m, n, k, format and any of output, accumulate, bias, a_layout, b_layout.

    Empty cells are as in `form_of`. Raises InputError with file, line, column, what was got and what is allowed.
    """
    text = read_text(path, "table of shapes", MOST_TABLE_BYTES)
    try:
        reader = csv.reader(text.splitlines(), strict=True)
        lines = [(reader.line_num, [cell.strip() for cell in row]) for row in reader]
    except csv.Error as error:
        raise InputError(f"{path}: no CSV file: {error}") from None
    filled = [(number, row) for number, row in lines if any(row)]
    if not filled:
        raise InputError(f"{path}: empty; the first line names the columns: {','.join(COLUMNS)}")
    (number, head), *rows = filled
    for name in head:
        if name not in COLUMNS:
            raise InputError(
                f"{path}:{number}: column {name!r}; allowed: {', '.join(COLUMNS)}{nearest(name, list(COLUMNS))}"
            )
    missing = [name for name in NEEDED if name not in head]
    if missing or len(set(head)) < len(head):
        problem = f"no column {', '.join(missing)}" if missing else "a column stands twice"
        raise InputError(f"{path}:{number}: {problem}; needed, each once: {', '.join(NEEDED)}")
    if not rows:
        raise InputError(f"{path}: no GEMM below the names of the columns")
    return tuple(dict.fromkeys(_shape(f"{path}:{line}", head, row) for line, row in rows))


def _shape(where: str, head: list[str], row: list[str]) -> GemmShape:
    if len(row) != len(head):
        raise InputError(f"{where}: {len(row)} cells; allowed: {len(head)}, one per column ({','.join(head)})")
    cells = dict(zip(head, row, strict=True))
    sizes = []
    for name in SIZES:
        if not re.fullmatch(r"[0-9]{1,10}", cells[name]):
            raise InputError(f"{where}: {name} = {cells[name]!r}; allowed: an integer of at least 1")
        sizes.append(int(cells[name]))
    formats = calls_taken().outputs
    allowed: dict[str, tuple[str, ...]] = {
        "format": tuple(formats),
        "output": tuple(sorted({name for some in formats.values() for name in some})),
        "accumulate": ACCUMULATES,
        "bias": tuple(TRUTHS),
        "a_layout": LAYOUTS,
        "b_layout": LAYOUTS,
    }
    form: dict[str, Any] = {}
    for name, words in allowed.items():
        cell = cells.get(name, "")
        if cell or name in NEEDED:
            if cell not in words:
                raise InputError(f"{where}: {name} = {cell!r}; allowed: {', '.join(words)}{nearest(cell, words)}")
            form[name] = TRUTHS[cell] if name == "bias" else cell
    with _said_of(where):
        return GemmShape(sizes[0], form_of(*sizes, **form))


def sizes_in(option: str, text: str, form: str) -> tuple[int, ...]:
    """The sizes in "4096x14336" (form "NxK") or "1x4096x4096" ("MxNxK"). Raises InputError."""
    count = form.count("x") + 1
    match = re.fullmatch("x".join([r"([0-9]{1,10})"] * count), text)
    if match is None or min(map(int, match.groups())) < 1:
        raise InputError(f"{option} {text}: allowed: {form}, integers of at least 1, as {'x'.join(['4096'] * count)}")
    return tuple(map(int, match.groups()))


def swept(text: str) -> tuple[int, int]:
    """First and last m of "1:8192". Raises InputError."""
    match = re.fullmatch(r"([0-9]{1,10}):([0-9]{1,10})", text)
    first, last = map(int, match.groups()) if match else (0, 0)
    if not 1 <= first <= last <= MOST_SWEPT:
        raise InputError(f"--m {text}: allowed: A:B with 1 <= A <= B <= {MOST_SWEPT:,}, as 1:8192")
    return first, last


def wanted(
    *,
    file: Path | None,
    gemms: Iterable[str],
    weights: Iterable[str],
    m: str,
    forms: Iterable[Mapping[str, Any]],
) -> Wanted:
    """What the command line asks for. forms: keywords of `form_of`, each for all gemms and weights.

    Raises InputError where nothing is asked for, and as `read_shapes` and `form_of`.
    """
    each = list(forms)
    shapes = list(read_shapes(file)) if file is not None else []
    for text in gemms:
        sizes = sizes_in("--gemm", text, "MxNxK")
        with _said_of(f"--gemm {text}"):
            shapes += [GemmShape(sizes[0], form_of(*sizes, **form)) for form in each]
    sweeps: list[WeightSweep] = []
    for text in weights:
        n, k = sizes_in("--weight", text, "NxK")
        first, last = swept(m)
        with _said_of(f"--weight {text}"):
            sweeps += [WeightSweep(form_of(first, n, k, **form), first, last) for form in each]
    if not (shapes or sweeps):
        raise InputError("nothing to record; give --shapes FILE.csv, --gemm MxNxK or --weight NxK")
    return Wanted(tuple(dict.fromkeys(shapes)), tuple(dict.fromkeys(sweeps)))


@contextmanager
def _said_of(where: str) -> Iterator[None]:
    """Errors name where they come from."""
    try:
        yield
    except (InputError, UnsupportedError) as error:
        raise type(error)(f"{where}: {error}") from None
