"""PyTorch's functions with matrix products, as calls of hwsim's operators: what `emulate` puts in their place.

Each takes a `Caller` and the function's own arguments, and returns None for operands that it leaves to PyTorch. The
module knows PyTorch's signatures and shapes; it knows no device and no setting.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812  its usual name
from torch import Tensor
from torch._subclasses import FakeTensor

from hwsim.errors import UnsupportedError
from hwsim.frameworks.numpy import contraction
from hwsim.frameworks.settings import STAGES
from hwsim.frameworks.torch import operators
from hwsim.frameworks.torch.attention import attention, fused_attention
from hwsim.frameworks.torch.caller import MATRIX, STACK, Caller, product_of, rows_of, stack_of, takes
from hwsim.frameworks.torch.convolutions import Window
from hwsim.frameworks.torch.element_functions import ELEMENTWISE, function_of_elements, power
from hwsim.frameworks.torch.multiplication import is_plain
from hwsim.frameworks.torch.norms import native_layer_norm, row_softmax, sum_of_rows
from hwsim.frameworks.torch.place import GROUPED, SCALED, SCALED_FAST, SCALED_GROUPED, SCALED_GROUPED_FAST
from hwsim.frameworks.torch.plain_convolution import plain_convolution
from hwsim.frameworks.torch.scale_tensors import takes_elements
from hwsim.frameworks.torch.tensors import is_known

_ATEN = torch.ops.aten


def _multiplies(a: Tensor, b: Tensor, dim: int = MATRIX) -> bool:
    """Whether a and b are matrices (`dim` 2) or stacks of as many (3) whose sizes fit; PyTorch says what is wrong."""
    return a.dim() == b.dim() == dim and a.shape[-1] == b.shape[-2] and a.shape[:-2] == b.shape[:-2]


def _spreads(c: Tensor, *shape: Any) -> bool:
    """Whether c broadcasts to `shape`."""
    sizes = tuple(c.shape)
    return len(sizes) <= len(shape) and all(
        x in (1, y) for x, y in zip(sizes, shape[len(shape) - len(sizes) :], strict=True)
    )


def _sums_in(out_dtype: torch.dtype | None, a: Tensor) -> bool:
    """Whether PyTorch has products of such matrices with results of `out_dtype`: fp32 for those of 16 bits."""
    return out_dtype in (None, a.dtype) or (out_dtype == torch.float32 and a.dtype in (torch.float16, torch.bfloat16))


def mm(
    caller: Caller, input: Tensor, mat2: Tensor, out_dtype: torch.dtype | None = None, *, out: Any = None
) -> Tensor | None:
    """torch.mm"""
    if out is not None or not takes(input, mat2) or not _multiplies(input, mat2) or not _sums_in(out_dtype, input):
        return None
    return caller.product(input, mat2, None, "mm", dtype=out_dtype)


def bmm(
    caller: Caller, input: Tensor, mat2: Tensor, out_dtype: torch.dtype | None = None, *, out: Any = None
) -> Tensor | None:
    """torch.bmm"""
    if out is not None or not takes(input, mat2) or not _multiplies(input, mat2, STACK):
        return None
    return caller.product(input, mat2, None, "bmm", dtype=out_dtype) if _sums_in(out_dtype, input) else None


def matmul(caller: Caller, input: Tensor, other: Tensor, *, out: Any = None) -> Tensor | None:
    """torch.matmul: a stack by one matrix is one product or a stack of products, as in PyTorch."""
    if out is not None or not takes(input, other):
        return None
    return product_of(caller, input, other, "matmul")


def rmatmul(caller: Caller, input: Tensor, other: Tensor) -> Tensor | None:
    """Tensor.__rmatmul__"""
    return matmul(caller, other, input)


def addmm(
    caller: Caller,
    input: Tensor,
    mat1: Tensor,
    mat2: Tensor,
    out_dtype: torch.dtype | None = None,
    *,
    beta: Any = 1,
    alpha: Any = 1,
    out: Any = None,
) -> Tensor | None:
    """torch.addmm"""
    if out is not None or not takes(mat1, mat2) or not _multiplies(mat1, mat2) or not _sums_in(out_dtype, mat1):
        return None
    if not _is_added(input, mat1, out_dtype, (mat1.shape[0], mat2.shape[1])) or not _are_real(alpha, beta):
        return None
    return caller.product(mat1, mat2, input, "addmm", alpha=alpha, beta=beta, dtype=out_dtype)


def baddbmm(
    caller: Caller,
    input: Tensor,
    batch1: Tensor,
    batch2: Tensor,
    out_dtype: torch.dtype | None = None,
    *,
    beta: Any = 1,
    alpha: Any = 1,
    out: Any = None,
) -> Tensor | None:
    """torch.baddbmm"""
    if out is not None or not takes(batch1, batch2) or not _multiplies(batch1, batch2, STACK):
        return None
    shape = (batch1.shape[0], batch1.shape[1], batch2.shape[2])
    if not _sums_in(out_dtype, batch1) or not _is_added(input, batch1, out_dtype, shape):
        return None
    if not _are_real(alpha, beta):
        return None
    added = input.expand(shape)
    return caller.product(batch1, batch2, added, "baddbmm", alpha=alpha, beta=beta, dtype=out_dtype)


def _is_added(c: Tensor, a: Tensor, out_dtype: torch.dtype | None, shape: tuple[Any, ...]) -> bool:
    """Whether c may be added to a product with the operand a."""
    return takes(c) and c.dtype in (a.dtype, out_dtype) and _spreads(c, *shape)


def _are_real(*factors: Any) -> bool:
    return not any(isinstance(factor, complex) for factor in factors)


def mv(caller: Caller, input: Tensor, vec: Tensor, *, out: Any = None) -> Tensor | None:
    """torch.mv"""
    if out is not None or not takes(input, vec) or input.dim() != MATRIX or vec.dim() != 1:
        return None
    if input.shape[1] != vec.shape[0]:
        return None
    return caller.product(input, vec.unsqueeze(1), None, "mv").squeeze(1)


def dot(caller: Caller, input: Tensor, tensor: Tensor, *, out: Any = None) -> Tensor | None:
    """torch.dot, torch.inner of vectors"""
    if out is not None or not takes(input, tensor) or input.dim() != 1 or input.shape != tensor.shape:
        return None
    return caller.product(input.unsqueeze(0), tensor.unsqueeze(1), None, "dot").reshape(())


def inner(caller: Caller, input: Tensor, other: Tensor, *, out: Any = None) -> Tensor | None:
    """torch.inner"""
    if out is not None or not takes(input, other) or not input.dim() or not other.dim():
        return None
    if input.shape[-1] != other.shape[-1]:
        return None
    flat = caller.product(rows_of(input), rows_of(other).mT, None, "inner")
    return flat.reshape(*input.shape[:-1], *other.shape[:-1])


def tensordot(caller: Caller, a: Tensor, b: Tensor, dims: Any = 2, out: Any = None) -> Tensor | None:
    """torch.tensordot"""
    if out is not None or not takes(a, b) or isinstance(dims, Tensor):
        return None
    if isinstance(dims, int):
        if not 0 <= dims <= min(a.dim(), b.dim()):
            return None  # here and below PyTorch says what is wrong
        left, right = list(range(a.dim() - dims, a.dim())), list(range(dims))
    else:
        if len(dims) != 2:
            return None
        first, second = _dimensions(dims[0], a), _dimensions(dims[1], b)
        if first is None or second is None:
            return None
        left, right = first, second
    rows, columns = [i for i in range(a.dim()) if i not in left], [i for i in range(b.dim()) if i not in right]
    depth = math.prod([a.shape[i] for i in left])
    if [a.shape[i] for i in left] != [b.shape[i] for i in right]:
        return None
    high, wide = [a.shape[i] for i in rows], [b.shape[i] for i in columns]
    left_matrix = a.permute(rows + left).reshape(math.prod(high), depth)
    right_matrix = b.permute(right + columns).reshape(depth, math.prod(wide))
    return caller.product(left_matrix, right_matrix, None, "tensordot").reshape([*high, *wide])


def _dimensions(dims: Any, x: Tensor) -> list[int] | None:
    """Dimensions of x, none twice, as numbers from 0; None where these are none."""
    if not isinstance(dims, (list, tuple)) or not all(-x.dim() <= i < x.dim() for i in dims):
        return None
    positive = [i % x.dim() for i in dims]
    return positive if len(set(positive)) == len(positive) else None


def einsum(caller: Caller, equation: Any, *operands: Any) -> Tensor | None:
    """torch.einsum with plain letters; anything else is PyTorch's, and its products are caught below."""
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    if not isinstance(equation, str) or len(operands) < MATRIX or not takes(*operands):
        return None
    parsed = contraction.parse(equation, len(operands))
    if parsed is None or not _fit(parsed[0], operands):
        return None

    def multiply(a: Any, b: Any) -> Any:
        lead = a.shape[:-2]
        if not lead:
            return caller.product(a, b, None, "einsum")
        result = caller.product(stack_of(a), stack_of(b), None, "einsum")
        return result.reshape(*lead, *result.shape[-2:])

    result: Any = contraction.einsum(*parsed, operands, multiply, torch.einsum)
    return result


def _fit(terms: list[str], operands: tuple[Tensor, ...]) -> bool:
    """Whether each index letter has one size; a size 1 that stands for others is PyTorch's."""
    sizes: dict[str, Any] = {}
    for term, operand in zip(terms, operands, strict=True):
        if len(term) != operand.dim():
            return False
        if any(sizes.setdefault(letter, size) != size for letter, size in zip(term, operand.shape, strict=True)):
            return False
    return True


def linear(caller: Caller, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor | None:
    """torch.nn.functional.linear"""
    if not takes(input, weight, *(() if bias is None else (bias,))) or weight.dim() not in (1, MATRIX):
        return None
    if not input.dim() or input.shape[-1] != weight.shape[-1]:
        return None
    if bias is not None and weight.dim() == MATRIX and bias.shape != weight.shape[:1]:
        return None
    if weight.dim() == 1:
        result = product_of(caller, input, weight, "linear")
        return result if bias is None or result is None else result + bias
    if input.dim() <= MATRIX or (bias is not None and input.is_contiguous()):
        result = caller.product(rows_of(input), weight.t(), bias, "linear")
        return result.reshape(*input.shape[:-1], weight.shape[0])
    stack = product_of(caller, input, weight.t(), "linear")
    return stack if bias is None or stack is None else stack + bias


def scaled_mm(
    caller: Caller,
    input: Tensor,
    mat2: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> Tensor | None:
    """torch._scaled_mm: scales of tensors, rows, blocks of 1 x 128 and 128 x 128, MX and NVFP4. What PyTorch refuses on
    a GPU raises its own error.
    """
    operands = (input, mat2, scale_a, scale_b, bias)
    if not torch.compiler.is_compiling() and not any(isinstance(x, FakeTensor) for x in operands):
        with torch._C._DisableTorchDispatch():
            on_meta = [None if x is None else x.detach().to("meta") for x in operands]
            _ATEN._scaled_mm.default(*on_meta, out_dtype=out_dtype, use_fast_accum=use_fast_accum)
    return _scaled(caller, input, mat2, [scale_a], [scale_b], bias, scale_result, out_dtype, use_fast_accum)


def _scaled(
    caller: Caller,
    input: Tensor,
    mat2: Tensor,
    scale_a: Any,
    scale_b: Any,
    bias: Tensor | None,
    scale_result: Tensor | None,
    out_dtype: torch.dtype | None,
    use_fast_accum: bool,
) -> Tensor | None:
    if scale_result is not None:
        raise UnsupportedError("_scaled_mm: scale_result is not taken; scale the result outside")
    if not takes_elements(input, mat2) or not _multiplies(input, mat2):
        return None
    operation = SCALED_FAST if use_fast_accum else SCALED
    narrow = input.dtype if is_known(input) else torch.bfloat16
    return operators.scaled_product(
        (input, mat2), scale_a, scale_b, bias, caller.key, caller.layer, operation, out_dtype or narrow
    )


def scaled_mm_v2(
    caller: Caller,
    a: Tensor,
    b: Tensor,
    scale_a: list[Tensor],
    recipe_a: Any,
    swizzle_a: Any,
    scale_b: list[Tensor],
    recipe_b: Any,
    swizzle_b: Any,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    contraction_dim: Any = (),
    use_fast_accum: bool = False,
) -> Tensor | None:
    """aten::_scaled_mm_v2, below torch.nn.functional.scaled_mm; of NVFP4 with a second tensor of scales, the factor."""
    return _scaled(caller, a, b, scale_a, scale_b, bias, None, out_dtype, use_fast_accum)


def scaled_grouped_mm(
    caller: Caller,
    self: Tensor,
    mat2: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> Tensor | None:
    """aten::_scaled_grouped_mm: FP8 with scales of rows. offs: (groups,), where the rows of A of a group end (A a
    matrix, B a stack), or None (two stacks). scale_a: one number a row of A; scale_b: (groups, n).
    """
    if scale_result is not None or bias is not None:
        raise UnsupportedError("_scaled_grouped_mm: bias and scale_result are not taken; leave them out")
    if not is_known(self) or not is_known(mat2) or isinstance(offs, FakeTensor) or torch.compiler.is_compiling():
        return None
    dtype, operation = out_dtype or torch.bfloat16, SCALED_GROUPED_FAST if use_fast_accum else SCALED_GROUPED
    where = (caller.key, caller.layer, operation, dtype)
    if (self.dim(), mat2.dim()) == (STACK, STACK) and offs is None:
        parts = zip(self, mat2, scale_a, scale_b, strict=True)
        return torch.stack(
            [operators.scaled_product((a, b), [x[:, None]], [y[None]], None, *where) for a, b, x, y in parts]
        )
    if (self.dim(), mat2.dim()) != (MATRIX, STACK) or offs is None:
        raise UnsupportedError(
            f"_scaled_grouped_mm: operands of {self.dim()} and {mat2.dim()} dimensions; allowed: rows of A in groups "
            "(2 and 3, with offs), or two stacks (3 and 3, without)"
        )
    result = torch.zeros(self.shape[0], mat2.shape[2], dtype=dtype, device=self.device)
    start = 0
    for stop, b, of_columns in zip(offs.tolist(), mat2, scale_b, strict=True):
        if stop > start:
            rows = slice(start, stop)
            result[rows] = operators.scaled_product(
                (self[rows], b), [scale_a[rows, None]], [of_columns[None]], None, *where
            )
        start = stop
    return result


def grouped_mm(
    caller: Caller,
    self: Tensor,
    mat2: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor | None:
    """aten::_grouped_mm: a product for each group, which is a matrix of a stack, or a part of the rows of A, of the
    columns of B, or of K; offs: (groups,), where the parts end.
    """
    if not takes(self, mat2) or bias is not None or out_dtype not in (None, self.dtype):
        return None
    dims = self.dim(), mat2.dim()
    if dims == (STACK, STACK) and offs is None:
        return torch.stack([caller.product(a, b, None, GROUPED) for a, b in zip(self, mat2, strict=True)])
    if offs is None or isinstance(offs, FakeTensor) or torch.compiler.is_compiling():
        return None  # where groups end is not known yet: what is compiled is caught when it runs
    stops = offs.tolist()
    parts = list(zip([0, *stops[:-1]], stops, strict=True))
    if dims == (MATRIX, STACK):  # rows of A
        result = self.new_zeros(self.shape[0], mat2.shape[2])
        for (start, stop), b in zip(parts, mat2, strict=True):
            result[start:stop] = caller.product(self[start:stop], b, None, GROUPED)
        return result
    if dims == (STACK, MATRIX):  # columns of B
        result = self.new_zeros(self.shape[1], mat2.shape[1])
        for (start, stop), a in zip(parts, self, strict=True):
            result[:, start:stop] = caller.product(a, mat2[:, start:stop], None, GROUPED)
        return result
    if dims == (MATRIX, MATRIX):  # K
        return torch.stack(
            [caller.product(self[:, start:stop], mat2[start:stop], None, GROUPED) for start, stop in parts]
        )
    return None


def int_mm(caller: Caller, input: Tensor, mat2: Tensor, *, out: Any = None) -> Tensor | None:
    """torch._int_mm: int8 by int8 to int32"""
    if out is not None or input.dtype != torch.int8 or mat2.dtype != torch.int8 or not _multiplies(input, mat2):
        return None
    return caller.product(input, mat2, None, "_int_mm", dtype=torch.int32)


# --- convolutions ----------------------------------------------------------------------------------------------------


def _tuple(value: Any, count: int) -> list[int]:
    """A number for each of `count` dimensions; [] where there are others."""
    if isinstance(value, int):
        return [value] * count
    values = [int(x) for x in value]
    if len(values) == 1:
        return values * count
    return values if len(values) == count else []


def _is_window(steps: list[int], around: list[int], gaps: list[int], groups: int) -> bool:
    """Whether PyTorch takes such strides, paddings, dilations and groups."""
    if not steps or not around or not gaps:
        return False
    return min(steps) > 0 and min(around) >= 0 and min(gaps) > 0 and groups > 0


class _Images(NamedTuple):
    """The image of a convolution as a batch; is_single: it was given without one."""

    batch: Tensor
    is_single: bool

    def like_given(self, result: Tensor) -> Tensor:
        """A result for the batch as one for the image that was given."""
        return result.squeeze(0) if self.is_single else result


def _images(count: int, input: Tensor, weight: Tensor, bias: Tensor | None) -> _Images | None:
    """The image of a convolution of `count` spatial dimensions; None where hwsim does not take the operands."""
    if not takes(input, weight, *(() if bias is None else (bias,))):
        return None
    if weight.dim() != count + 2 or input.dim() not in (count + 1, count + 2):
        return None  # PyTorch says what is wrong, here and in what follows
    is_single = input.dim() == count + 1
    return _Images(input.unsqueeze(0) if is_single else input, is_single)


def _is_whole_plain(caller: Caller) -> bool:
    """Whether PyTorch computes a layer's convolution and its gradients, where one operator can stand for them."""
    return not operators.is_transformed() and is_plain(caller.key, caller.layer, *STAGES)


def convolution(count: int) -> Callable[..., Tensor | None]:
    """torch.nn.functional.conv1d, conv2d or conv3d: `count` spatial dimensions."""

    def conv(
        caller: Caller,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor | None:
        images = _images(count, input, weight, bias)
        if images is None:
            return None
        image, steps, gaps = images.batch, _tuple(stride, count), _tuple(dilation, count)
        if padding == "valid":
            around = [0] * count
        elif padding == "same":
            if any(step != 1 for step in steps) or not gaps:
                return None
            reach = [d * (r - 1) for d, r in zip(gaps, weight.shape[2:], strict=True)]
            around = [size // 2 for size in reach]
            if any(size % 2 for size in reach):  # as PyTorch does: what one side has more is in the image
                image = F.pad(image, [more for size in reversed(reach) for more in (0, size % 2)])
        elif isinstance(padding, str):
            return None
        else:
            around = _tuple(padding, count)
        channels, out = image.shape[1], weight.shape[0]
        if not _is_window(steps, around, gaps, groups) or channels != weight.shape[1] * groups or out % groups:
            return None
        if bias is not None and bias.shape != (out,):
            return None
        sizes = zip(image.shape[2:], weight.shape[2:], around, gaps, strict=True)
        if any(size + 2 * p < d * (r - 1) + 1 for size, r, p, d in sizes):
            return None
        if _is_whole_plain(caller):
            window = Window(steps, around, gaps, groups)
            return images.like_given(plain_convolution(image, weight, bias, window, None, caller.key, caller.layer))
        image_out: Tensor = operators.call(
            "convolution", image, weight, bias, steps, around, gaps, groups, False, caller.key, caller.layer, "forward"
        )
        return images.like_given(image_out)

    return conv


def conv_transpose(count: int) -> Callable[..., Tensor | None]:
    """torch.nn.functional.conv_transpose1d, 2d or 3d: a convolution's gradient of the input."""

    def conv(
        caller: Caller,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Tensor | None:
        images = _images(count, input, weight, bias)
        if images is None:
            return None
        image = images.batch
        steps, around, more, gaps = (_tuple(v, count) for v in (stride, padding, output_padding, dilation))
        if not _is_window(steps, around, gaps, groups) or image.shape[1] != weight.shape[0]:
            return None
        if image.shape[1] % groups or (bias is not None and bias.shape != (weight.shape[1] * groups,)):
            return None
        if not more or any(not 0 <= o < max(s, d) for o, s, d in zip(more, steps, gaps, strict=True)):
            return None
        sizes = zip(image.shape[2:], weight.shape[2:], steps, around, more, gaps, strict=True)
        out = [(size - 1) * s - 2 * p + d * (r - 1) + o + 1 for size, r, s, p, o, d in sizes]
        if any(size < 1 for size in out):
            return None
        if _is_whole_plain(caller):
            window = Window(steps, around, gaps, groups)
            return images.like_given(plain_convolution(image, weight, bias, window, more, caller.key, caller.layer))
        size = [image.shape[0], weight.shape[1] * groups, *out]
        image_out: Tensor = operators.call(
            "convolution_input",
            image,
            weight,
            size,
            steps,
            around,
            gaps,
            groups,
            True,
            caller.key,
            caller.layer,
            "forward",
        )
        if bias is not None:
            image_out = image_out + bias.reshape(-1, *(1 for _ in out))
        return images.like_given(image_out)

    return conv


def general_convolution(
    caller: Caller,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Tensor | None:
    """torch.convolution, aten::convolution"""
    count = weight.dim() - MATRIX
    if transposed:
        return conv_transpose(count)(caller, input, weight, bias, stride, padding, output_padding, groups, dilation)
    return convolution(count)(caller, input, weight, bias, stride, padding, dilation, groups)


def _with_pytorch_s_arguments(function: Callable[..., Tensor | None]) -> Callable[..., Tensor | None]:
    """The function, which leaves calls with other arguments than it has (old signatures, new ones) to PyTorch."""
    parameters = list(inspect.signature(function).parameters.values())[1:]
    names = tuple(parameter.name for parameter in parameters)
    by_place = tuple(parameter.name for parameter in parameters if parameter.kind is parameter.POSITIONAL_OR_KEYWORD)
    needed = tuple(
        parameter.name
        for parameter in parameters
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD and parameter.default is parameter.empty
    )
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return function

    def call(caller: Caller, *args: Any, **keywords: Any) -> Tensor | None:
        placed = by_place[: len(args)]
        if len(placed) < len(args) or any(name not in names or name in placed for name in keywords):
            return None
        if any(name not in keywords for name in needed[len(args) :]):
            return None
        return function(caller, *args, **keywords)

    return call


_STANDING_IN: dict[Any, Callable[..., Tensor | None]] = {
    torch.mm: mm,
    Tensor.mm: mm,
    torch.bmm: bmm,
    Tensor.bmm: bmm,
    torch.matmul: matmul,
    Tensor.matmul: matmul,
    torch.linalg.matmul: matmul,
    Tensor.__matmul__: matmul,
    Tensor.__rmatmul__: rmatmul,
    torch.addmm: addmm,
    Tensor.addmm: addmm,
    torch.baddbmm: baddbmm,
    Tensor.baddbmm: baddbmm,
    torch.mv: mv,
    Tensor.mv: mv,
    torch.dot: dot,
    Tensor.dot: dot,
    torch.inner: inner,
    Tensor.inner: inner,
    torch.tensordot: tensordot,
    torch.einsum: einsum,
    F.linear: linear,
    F.scaled_dot_product_attention: attention,
    torch._scaled_mm: scaled_mm,
    torch._int_mm: int_mm,
    **{getattr(torch, name): grouped_mm for name in ("_grouped_mm",) if hasattr(torch, name)},
    **{getattr(torch, name): scaled_grouped_mm for name in ("_scaled_grouped_mm",) if hasattr(torch, name)},
    torch.convolution: general_convolution,
    **{original: convolution(1) for original in (F.conv1d, torch.conv1d)},
    **{original: convolution(2) for original in (F.conv2d, torch.conv2d)},
    **{original: convolution(3) for original in (F.conv3d, torch.conv3d)},
    **{original: conv_transpose(1) for original in (F.conv_transpose1d, torch.conv_transpose1d)},
    **{original: conv_transpose(2) for original in (F.conv_transpose2d, torch.conv_transpose2d)},
    **{original: conv_transpose(3) for original in (F.conv_transpose3d, torch.conv_transpose3d)},
}
#: {PyTorch's function: what stands in for it}
FUNCTIONS = {original: _with_pytorch_s_arguments(function) for original, function in _STANDING_IN.items()}

#: Functions whose operands autocast leaves alone.
UNCAST = frozenset({torch.mv, Tensor.mv, torch.dot, Tensor.dot, torch._scaled_mm, torch._int_mm})

#: Sums whose kernels' bits are known, with their overloads.
SUMS = (("mean", "dim"), ("mean", "default"), ("sum", "dim_IntList"), ("sum", "default"))

#: {aten's operator: what stands in for it}: products that PyTorch's own C++ functions call.
OPERATORS: dict[Any, Callable[..., Tensor | None]] = {
    _ATEN.mm.default: mm,
    _ATEN.bmm.default: bmm,
    _ATEN.addmm.default: addmm,
    _ATEN.baddbmm.default: baddbmm,
    _ATEN.mv.default: mv,
    _ATEN.dot.default: dot,
    _ATEN.convolution.default: general_convolution,
    _ATEN._scaled_mm.default: scaled_mm,
    _ATEN._int_mm.default: int_mm,
    **{getattr(_ATEN, name).default: grouped_mm for name in ("_grouped_mm",) if hasattr(_ATEN, name)},
    **{getattr(_ATEN, name).default: scaled_grouped_mm for name in ("_scaled_grouped_mm",) if hasattr(_ATEN, name)},
    _ATEN._scaled_dot_product_flash_attention_for_cpu.default: fused_attention,
    _ATEN.native_layer_norm.default: native_layer_norm,
    _ATEN._softmax.default: row_softmax,
    **{getattr(getattr(_ATEN, name), form): sum_of_rows(name) for name, form in SUMS},
    _ATEN.pow.Tensor_Scalar: power,
    **{getattr(_ATEN, name).default: function_of_elements(name) for name in ELEMENTWISE},
    # of PyTorch 2.10 and later
    **{getattr(_ATEN, name).default: scaled_mm_v2 for name in ("_scaled_mm_v2",) if hasattr(_ATEN, name)},
}

_SCALED = (scaled_mm, scaled_mm_v2, scaled_grouped_mm)
#: Functions and operators with scales: PyTorch's own for CPUs lacks most kinds of them.
SCALED_PRODUCTS = frozenset(
    original for table in (_STANDING_IN, OPERATORS) for original, function in table.items() if function in _SCALED
)
