"""The GEMMs of a network, as shapes for a sweep: from SCALE-Sim's topology CSV, or from an ONNX file."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from hwsim.errors import InputError
from hwsim.host.input_files import MOST_TABLE_BYTES, read_text
from hwsim.studies.workload_onnx import onnx_products

CONV_COLUMNS = ("IFMAP height", "IFMAP width", "filter height", "filter width", "channels", "num filter", "strides")
GEMM_COLUMNS = ("M", "N", "K")


@dataclass(frozen=True, slots=True)
class Layer:
    """One GEMM of a network: C (m, n) = A (m, k) B (k, n), run count times."""

    name: str
    m: int
    n: int
    k: int
    count: int = 1

    @property
    def multiply_adds(self) -> int:
        """m n k count."""
        return self.m * self.n * self.k * self.count


@dataclass(frozen=True, slots=True)
class Workload:
    """The layers of a network in the order of its file, and what has products but is not among them.

    refused: (name of the node, reason). Iterates over its layers.
    """

    layers: tuple[Layer, ...]
    refused: tuple[tuple[str, str], ...] = ()

    def __iter__(self) -> Iterator[Layer]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, index: int) -> Layer:
        return self.layers[index]

    @property
    def multiply_adds(self) -> int:
        """The sum over all layers."""
        return sum(layer.multiply_adds for layer in self.layers)


def workload(path: str | Path, *, dimensions: Mapping[str, int] | None = None, merge: bool = False) -> Workload:
    """The layers (name, m, n, k, count) of the network in a file.

    A convolution is its implicit GEMM: m output pixels, n filters, k filter height x width x channels.

    Args:
        path: `.csv`, a topology of SCALE-Sim (convolutions or GEMMs), or `.onnx` (needs `pip install 'hwsim[sweep]'`).
        dimensions: sizes of the ONNX model's symbolic dimensions by name, {"batch": 8}.
        merge: layers of equal m, n and k become one with the name of the first; their counts are added.

    Raises:
        InputError: a file, line or dimension that is wrong.
        UnsupportedError: onnx is not installed.
    """
    path = Path(path)
    if path.suffix.lower() not in (".csv", ".onnx"):
        raise InputError(f"workload {path}: got the ending {path.suffix!r}; needs .csv (SCALE-Sim) or .onnx")
    if path.suffix.lower() == ".onnx":
        products_read = onnx_workload(path, dimensions or {})
    elif dimensions:
        raise InputError(f"workload {path}: a topology CSV has no symbolic dimensions; leave 'dimensions' out")
    else:
        products_read = scalesim_workload(path)
    return replace(products_read, layers=merged(products_read.layers)) if merge else products_read


def merged(layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """Layers of equal sizes as one: the name of the first, the sum of the counts, the order of the first ones."""
    by_sizes: dict[tuple[int, int, int], Layer] = {}
    for layer in layers:
        sizes = (layer.m, layer.n, layer.k)
        first = by_sizes.get(sizes)
        by_sizes[sizes] = layer if first is None else replace(first, count=first.count + layer.count)
    return tuple(by_sizes.values())


def onnx_workload(path: Path, dimensions: Mapping[str, int]) -> Workload:
    """The products of an ONNX model."""
    products, refused = onnx_products(path, dimensions)
    return Workload(tuple(Layer(*product) for product in products), tuple(refused))


def scalesim_workload(path: Path) -> Workload:
    """The layers of a topology CSV. The number of columns in its header says which kind it is."""
    text = read_text(path, "workload", MOST_TABLE_BYTES)
    try:
        rows = [(number, _cells(row)) for number, row in enumerate(csv.reader(text.splitlines()), 1)]
    except csv.Error as error:
        raise InputError(f"cannot read the workload {path}: it is not text in columns") from error
    rows = [(number, cells) for number, cells in rows if cells]
    kinds = {1 + len(CONV_COLUMNS): CONV_COLUMNS, 1 + len(GEMM_COLUMNS): GEMM_COLUMNS}
    if not rows or len(rows[0][1]) not in kinds:
        raise InputError(
            f"workload {path}: needs a header of 'Layer, {', '.join(GEMM_COLUMNS)},' or "
            f"'Layer name, {', '.join(CONV_COLUMNS)},'; got {', '.join(rows[0][1]) if rows else 'no line'}"
        )
    columns = kinds[len(rows[0][1])]
    if len(rows) == 1:
        raise InputError(f"workload {path}: has a header and no layer; give one line per layer")
    return Workload(tuple(_layer(f"workload {path}, line {number}", cells, columns) for number, cells in rows[1:]))


def _cells(row: list[str]) -> list[str]:
    """The cells of a line without those that are empty at its end."""
    cells = [cell.strip() for cell in row]
    while cells and not cells[-1]:
        cells.pop()
    return cells


def _layer(where: str, cells: list[str], columns: tuple[str, ...]) -> Layer:
    if len(cells) != 1 + len(columns):
        raise InputError(f"{where}: got {len(cells)} columns; needs {1 + len(columns)}: name, {', '.join(columns)}")
    name, sizes = cells[0], []
    for column, cell in zip(columns, cells[1:], strict=True):
        if not (cell.isascii() and cell.isdigit() and int(cell) >= 1):
            raise InputError(f"{where}: {column} is {cell!r}; needs an integer of at least 1")
        sizes.append(int(cell))
    if columns is GEMM_COLUMNS:
        return Layer(name, *sizes)
    height, width, filter_height, filter_width, channels, filters, stride = sizes
    if filter_height > height or filter_width > width:
        raise InputError(
            f"{where}: a filter of {filter_height} x {filter_width} on an input of {height} x {width}; the input "
            "includes its padding and cannot be the smaller"
        )
    # As SCALE-Sim counts: a last step that leaves the input partly is one more output pixel.
    pixels = (-(-(height - filter_height) // stride) + 1) * (-(-(width - filter_width) // stride) + 1)
    return Layer(name, pixels, filters, filter_height * filter_width * channels)
