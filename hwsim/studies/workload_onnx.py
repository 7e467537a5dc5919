"""The matrix products of an ONNX model: name, m, n, k, count of each node that is one."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from hwsim.errors import InputError, UnsupportedError

Product = tuple[str, int, int, int, int]

#: Operators that are a product of matrices: the positions of A and B among their inputs.
MATMULS = {"MatMul": (0, 1), "MatMulInteger": (0, 1), "QLinearMatMul": (0, 3), "Gemm": (0, 1)}
#: Convolutions: the position of the weights.
CONVOLUTIONS = {"Conv": 1, "ConvInteger": 1, "QLinearConv": 3}
_NESTED = "its products are in an inner graph, run a number of times that the file does not say"
_OTHER = "an operator with products of its own; export the model with MatMul, Gemm or Conv instead"
REFUSED = {"If": _NESTED, "Loop": _NESTED, "Scan": _NESTED} | dict.fromkeys(
    ("Attention", "ConvTranspose", "DeformConv", "Einsum", "GRU", "LSTM", "MultiHeadAttention", "RNN"), _OTHER
)


def onnx_products(path: Path, dimensions: Mapping[str, int]) -> tuple[list[Product], list[tuple[str, str]]]:
    """(name, m, n, k, count) of each product in the order of the graph, and (name, reason) of each node refused."""
    try:
        import onnx  # optional
        import onnx.shape_inference  # optional
    except ImportError as error:
        raise UnsupportedError(f"workload {path}: needs onnx: pip install 'hwsim[sweep]'") from error
    try:
        model = onnx.load(path, load_external_data=False)
    except OSError as error:
        raise InputError(f"cannot read the workload {path}: {error.strerror}") from error
    except Exception as error:  # protobuf's DecodeError, a class of an optional package
        raise InputError(f"workload {path}: it is not an ONNX model: {error}") from error
    _set_dimensions(path, model.graph, dimensions)
    try:
        graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    except Exception as error:  # onnx's InferenceError
        raise InputError(f"workload {path}: shapes that do not fit: {error}") from error
    shapes = {initializer.name: tuple(initializer.dims) for initializer in graph.initializer}
    for tensor in (*graph.input, *graph.value_info, *graph.output):
        if tensor.type.tensor_type.HasField("shape"):
            shapes.setdefault(
                tensor.name, tuple(dimension.dim_value for dimension in tensor.type.tensor_type.shape.dim)
            )
    products: list[Product] = []
    refused = []
    for number, node in enumerate(graph.node):
        name = node.name or f"{node.op_type}_{number}"
        if node.op_type in REFUSED:
            refused.append((name, f"{node.op_type}: {REFUSED[node.op_type]}"))
        elif node.op_type in MATMULS or node.op_type in CONVOLUTIONS:
            try:
                products.append((name, *_sizes(node, shapes)))
            except _NoSizesError as error:
                refused.append((name, f"{node.op_type}: {error}"))
    return products, refused


class _NoSizesError(Exception):
    """A node's sizes are not known; the message says of which tensor."""


def _set_dimensions(path: Path, graph: Any, dimensions: Mapping[str, int]) -> None:
    """Give the symbolic dimensions of the graph's inputs, outputs and values their sizes."""
    for name, size in dimensions.items():
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise InputError(f"workload {path}: dimension {name!r} is {size!r}; needs an integer of at least 1")
    inputs = [dimension for tensor in graph.input for dimension in tensor.type.tensor_type.shape.dim]
    others = [
        dimension for tensor in (*graph.value_info, *graph.output) for dimension in tensor.type.tensor_type.shape.dim
    ]
    names = sorted({dimension.dim_param for dimension in inputs if dimension.dim_param})
    missing = [name for name in names if name not in dimensions]
    if missing:
        example = ", ".join(f'"{name}": 1' for name in missing)
        raise InputError(
            f"workload {path}: no size for the symbolic dimensions {', '.join(missing)}; give dimensions={{{example}}}"
        )
    unknown = [name for name in dimensions if name not in names]
    if unknown:
        raise InputError(
            f"workload {path}: the model's inputs have no dimension {', '.join(unknown)}; "
            f"they have {', '.join(names) or 'no symbolic ones'}"
        )
    for dimension in (*inputs, *others):
        if dimension.dim_param in dimensions:
            dimension.dim_value = dimensions[dimension.dim_param]
        elif dimension.dim_param:
            dimension.ClearField("dim_param")


def _sizes(node: Any, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, int, int, int]:
    """m, n, k, count."""
    attributes = {attribute.name: attribute.i for attribute in node.attribute}
    if node.op_type in CONVOLUTIONS:
        weights, out = _shape(node.input[CONVOLUTIONS[node.op_type]], shapes), _shape(node.output[0], shapes)
        groups = attributes.get("group", 1)
        return out[0] * prod(out[2:]), weights[0] // groups, prod(weights[1:]), groups
    a, b = (_shape(node.input[position], shapes) for position in MATMULS[node.op_type])
    if node.op_type == "Gemm":
        m, k = reversed(a) if attributes.get("transA") else a
        return m, b[0] if attributes.get("transB") else b[1], k, 1
    a = a if len(a) > 1 else (1, *a)
    b = b if len(b) > 1 else (*b, 1)
    batch_a, batch_b = a[:-2], b[:-2]
    if prod(batch_b) == 1:
        return prod(batch_a) * a[-2], b[-1], a[-1], 1
    rank = max(len(batch_a), len(batch_b))
    pairs = zip((1,) * (rank - len(batch_a)) + batch_a, (1,) * (rank - len(batch_b)) + batch_b, strict=True)
    return a[-2], b[-1], a[-1], prod(max(pair) for pair in pairs)


def _shape(name: str, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    sizes = shapes.get(name)
    if not sizes or 0 in sizes:
        raise _NoSizesError(f"the shape of {name!r} is not known from the file; give the model's inputs fixed shapes")
    return sizes
