"""The `self` sets: hwsim's own results for every instruction of every device, kept as a regression test.

They are no evidence about hardware: origin "self". Tiles are small (EDGE x EDGE of the instruction's M x N): one per
distribution, then tiles of ones and zeros with scattered special values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hwsim._version import __version__
from hwsim.devices import choices, example, instruction
from hwsim.errors import InputError
from hwsim.formats import Exact, Format, code_dtype, encode, format_of
from hwsim.golden.format import GoldenSet, Meta, UnsignedCodes, read_sets, write_sets
from hwsim.golden.recording import stream
from hwsim.golden.verify import Mma, compute
from hwsim.numerics.sparsity import group_of
from hwsim.operands.code_draws import DISTRIBUTIONS, draw
from hwsim.operands.matrix_product import MatrixProduct

if TYPE_CHECKING:
    from hwsim.devices.device import Device

EDGE = 4  # rows and columns of a tile
STREWN = 2  # tiles with special values
SEED = 1
COMMAND = "hwsim golden self"
#: Exponents of scale-input-d that are kept, where an instruction has it.
SCALE_D = (1, 15)
SCALED = 3  # of every so many tiles one is run with them


@dataclass(frozen=True, slots=True)
class SetComparison:
    """Comparison of a device's computed sets with those in a file. differing: results of common sets whose d
    differs.
    """

    device: str
    path: Path
    sets: int
    results: int
    differing: int
    added: tuple[str, ...]
    removed: tuple[str, ...]
    operands_changed: tuple[str, ...]
    first: str
    was_there: bool

    @property
    def same(self) -> bool:
        """Whether the file holds exactly these sets."""
        return not (self.differing or self.added or self.removed or self.operands_changed)

    def to_json(self) -> dict[str, Any]:
        """Plain data for json.dumps."""
        return asdict(self) | {"path": str(self.path), "same": self.same}

    def to_text(self, *, replaced: bool) -> str:
        """One line of summary, and one for the first result that differs."""
        head = f"{self.device:12}  {self.results:>6} results of {self.sets:>3} sets"
        if not self.was_there:
            return f"{head}  new, written"
        if self.same:
            return f"{head}  the same"
        counts = [
            (self.differing, "results differ"),
            (len(self.added), "sets new"),
            (len(self.removed), "sets gone"),
            (len(self.operands_changed), "sets with other operands"),
        ]
        changes = ", ".join(f"{count} {what}" for count, what in counts if count)
        return (
            f"{head}  {changes}{'; replaced' if replaced else ''}{f'{chr(10)}    {self.first}' if self.first else ''}"
        )


def special_codes(fmt: Format) -> UnsignedCodes:
    """Special codes of a format: zeros, ends of the subnormal and normal ranges, infinities, NaNs, one."""
    if fmt.is_integer:
        top = (1 << fmt.fraction_bits) - 1
        codes = [0, 1, 2, top, top + 1 & ((1 << fmt.bits) - 1), (1 << fmt.bits) - 1]
        return np.array(codes, code_dtype(fmt))
    least_normal = 1 << fmt.fraction_bits
    magnitudes = {
        0,
        1,
        least_normal - 1,
        least_normal,
        least_normal + 1,
        fmt.largest_magnitude - 1,
        fmt.largest_magnitude,
    }
    magnitudes |= {encode(fmt, Exact("finite", 0, 1, 0)) >> fmt.ignored_bits}
    highest = (1 << fmt.magnitude_bits) - 1
    magnitudes |= {min(fmt.largest_magnitude + 1, highest), highest}
    magnitudes |= {min(fmt.largest_magnitude + 2, highest)}  # a signalling NaN, where there is one
    return np.array([fmt.word(sign, magnitude) for sign in (0, 1) for magnitude in sorted(magnitudes)], code_dtype(fmt))


def _scattered(rng: np.random.Generator, fmt: Format, shape: tuple[int, ...], share: float) -> UnsignedCodes:
    """Zeros and ones of both signs, with a share of random special codes."""
    if fmt.is_integer:
        plain = np.array([0, 1, (1 << fmt.bits) - 1 if fmt.signed else 2], code_dtype(fmt))
    else:
        plain = np.array([0, *(encode(fmt, Exact("finite", sign, 1, 0)) for sign in (0, 1))], code_dtype(fmt))
    codes = rng.choice(plain, shape)
    return np.where(rng.random(shape) < share, rng.choice(special_codes(fmt), shape), codes)


def _storable(rng: np.random.Generator, codes: UnsignedCodes, format: str) -> UnsignedCodes:
    """Codes of a 2:4 sparse A: of each group along K as many stay as are stored, at random places; others are +0."""
    stored, elements = group_of(format)
    groups = codes.reshape(*codes.shape[:-1], -1, elements)
    rank = rng.random(groups.shape).argsort(axis=-1).argsort(axis=-1)
    return np.where(rank < stored, groups, 0).astype(codes.dtype).reshape(codes.shape)


def _scales(rng: np.random.Generator, fmt: Format, shape: tuple[int, ...]) -> UnsignedCodes:
    """Scales within some binades of one, and a few from the whole format."""
    code = encode(fmt, Exact("finite", 0, 1, 0))
    reach = 6 << fmt.fraction_bits
    near = rng.integers(code - reach, code + reach, shape, endpoint=True).astype(code_dtype(fmt))
    anything = rng.integers(0, (1 << fmt.bits) - 1, shape, endpoint=True).astype(code_dtype(fmt))
    allowed = anything & np.uint8((1 << fmt.magnitude_bits) - 1) if not fmt.signed else anything
    return np.where(rng.random(shape) < 0.1, allowed, near)


def names(device: Device) -> Iterator[str]:
    """All instructions of a device by full name: the smallest N, and the entry's own formats where formats are free.

    Of entries that share a dot unit and differ in shape, the first has more pairs of formats: each format occurs on
    either side, equal and mixed.
    """
    paired = set()
    for key, model in device.matrix_instructions.items():
        formats = choices(device, key).formats
        yield example(device, key)
        if (model.unit, model.d, model.scale_format) not in paired:
            for i, fmt in enumerate(formats):
                yield example(device, key, a=fmt, b=formats[(i + 1) % len(formats)])
        paired.add((model.unit, model.d, model.scale_format))


def drawn(device: Device, name: str) -> Iterator[GoldenSet]:
    """The operand sets of one instruction; they depend on its name, shape and formats only."""
    model = instruction(device, name)
    tile = MatrixProduct(
        name=name, m=min(model.m, EDGE), n=min(model.n, EDGE), k=model.k, a=model.a, b=model.b, c=model.c, d=model.d
    )
    parts = [draw(each, stream(SEED, tile, each), tile, 1) for each in DISTRIBUTIONS]
    rng = stream(SEED, tile, "special")
    for index in range(STREWN):
        share = 0.3 if index else 1 / model.k
        a, b, c = (
            _scattered(rng, format_of(getattr(tile, operand)), tile.shape(operand, 1), share if operand != "c" else 0.3)
            for operand in "abc"
        )
        parts.append((a, b, c))
    arrays = [np.concatenate([part[i] for part in parts]) for i in range(3)]
    a, b, c = (_clean(array, format_of(fmt)) for array, fmt in zip(arrays, (tile.a, tile.b, tile.c), strict=True))
    if model.sparsity is not None:
        a = _storable(rng, a, tile.a)
    scales: dict[str, UnsignedCodes] = {}
    if model.scale_format is not None and model.scale_block is not None:
        fmt, blocks = format_of(model.scale_format), model.k // model.scale_block
        scales = {
            "scale_a": _scales(rng, fmt, (len(a), tile.m, blocks)),
            "scale_b": _scales(rng, fmt, (len(b), tile.n, blocks)),
        }
    golden = GoldenSet(instruction=name, name="structured", a=a, b=b, c=c, d=None, scales=scales)
    yield golden
    for exponent in SCALE_D if model.scale_input_d else ():
        scale = {"scale_d": np.array(min(exponent, model.scale_input_d or 0), np.uint8)}
        yield GoldenSet(
            instruction=name,
            name=f"scale_d{exponent}",
            a=a[::SCALED],
            b=b[::SCALED],
            c=c[::SCALED],
            d=None,
            scales=scale,
        )


def _clean(codes: UnsignedCodes, fmt: Format) -> UnsignedCodes:
    """The codes with the bits above the format's width cleared."""
    return codes & codes.dtype.type((1 << fmt.bits) - 1)


def computed(device: Device, mma: Mma) -> list[GoldenSet]:
    """All sets of a device, with results computed by `mma`, in order of their keys."""
    sets = [
        replace(golden, d=compute(mma, device.name, golden))
        for name in dict.fromkeys(names(device))
        for golden in drawn(device, name)
    ]
    return sorted(sets, key=lambda golden: golden.key)


def compare(device: Device, sets: list[GoldenSet], path: Path) -> SetComparison:
    """Compare the sets with the file `path`, which need not exist."""
    old = {golden.key: golden for golden in read_sets(path)} if path.exists() else {}
    new = {golden.key: golden for golden in sets}
    differing, moved, first = 0, [], ""
    for key in sorted(set(old) & set(new)):
        before, after = old[key], new[key]
        if not _same_operands(before, after):
            moved.append(key)
            continue
        if before.d is None or after.d is None:
            raise InputError(f"{path}: set {key} has no results")
        wrong = np.argwhere(before.d != after.d)
        differing += len(wrong)
        if len(wrong) and not first:
            case, row, column = (int(i) for i in wrong[0])
            first = (
                f"{key} case {case} row {row} column {column}: was 0x{int(before.d[case, row, column]):x}, is "
                f"0x{int(after.d[case, row, column]):x}; hwsim explain --from {path} {key} {case} {row} {column}"
            )
    return SetComparison(
        device=device.name,
        path=path,
        sets=len(sets),
        results=sum(golden.results for golden in sets),
        differing=differing,
        added=tuple(sorted(set(new) - set(old))),
        removed=tuple(sorted(set(old) - set(new))),
        operands_changed=tuple(moved),
        first=first,
        was_there=path.exists(),
    )


def _same_operands(recorded: GoldenSet, shipped_set: GoldenSet) -> bool:
    def arrays(golden: GoldenSet) -> dict[str, Any]:
        return {"a": golden.a, "b": golden.b, "c": golden.c, **golden.scales}

    left, right = arrays(recorded), arrays(shipped_set)
    return left.keys() == right.keys() and all(np.array_equal(left[name], right[name]) for name in left)


def write(device: Device, sets: list[GoldenSet], path: Path) -> int:
    """Write a device's sets. Returns the number of results."""
    meta = Meta("self", device.name, command=COMMAND, device_sha256=device.sha256, note=f"hwsim {__version__}")
    return write_sets(path, sets, meta)


def renew(
    devices: list[Device],
    folder: Path,
    mma: Mma,
    *,
    replace_files: bool = False,
    progress: Callable[[float], None] | None = None,
) -> list[SetComparison]:
    """Compute the sets of devices and compare them with DEVICE.npz in a folder.

    A file that is not there is written; one that differs only with `replace_files`.
    """
    changes = []
    for index, device in enumerate(devices):
        path = folder / f"{device.name}.npz"
        sets = computed(device, mma)
        change = compare(device, sets, path)
        if not path.exists() or (replace_files and not change.same):
            write(device, sets, path)
        changes.append(change)
        if progress is not None:
            progress((index + 1) / len(devices))
    return changes
