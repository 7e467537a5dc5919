"""Which of aten's operators without products have results of their own, and which have the same bits on all chips.

The module knows names of operators, calls and results; it knows no setting and no record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch._subclasses import FakeTensor

#: Operators that move values or make constants, beside views: nothing is computed.
_MOVES = frozenset(
    {
        *(
            "alias",
            "arange",
            "cat",
            "clone",
            "constant_pad_nd",
            "copy",
            "detach",
            "empty",
            "empty_like",
            "empty_strided",
        ),
        *("eye", "fill", "flip", "full", "full_like", "gather", "index", "index_select", "lift_fresh"),
        *("masked_fill", "new_empty", "new_empty_strided", "new_full", "new_ones", "new_zeros", "ones"),
        *("ones_like", "repeat", "reshape_alias", "resize", "roll", "scalar_tensor", "scatter", "select_backward"),
        *("select_scatter", "set", "slice_backward", "slice_scatter", "stack", "t_copy", "to_copy", "tril", "triu"),
        *("unsafe_view", "where", "zero", "zeros", "zeros_like"),
        *("unbind_copy", "local_scalar_dense", "lift", "lift_fresh_copy", "view_copy"),
    }
)
#: Operators whose elements are picked, or one rounding of one operation of IEEE 754: no chip has other bits.
_SAME = frozenset(
    {
        *("abs", "adaptive_max_pool1d", "adaptive_max_pool2d", "add", "amax", "amin", "bitwise_not", "ceil", "clamp"),
        *("clamp_max", "clamp_min", "embedding", "floor", "frac", "hardtanh", "max", "max_pool2d_with_indices"),
        *("max_pool3d_with_indices", "maximum", "min", "minimum", "mul", "neg", "nan_to_num", "reciprocal", "relu"),
        *("relu6", "round", "rsub", "sgn", "sign", "sort", "sqrt", "sub", "threshold", "threshold_backward", "topk"),
        *("trunc", "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d"),
    }
)
#: {an operator that moves values: the place of the argument that makes it add}
_ADDING = {"index_put": 3}
#: Overloads of `scatter` that add, or multiply, what meets in one place.
_REDUCING = ("reduce", "value_reduce")
#: Of _SAME the ones whose third argument is a factor, which makes them two operations.
_SCALED = ("add", "sub", "rsub")
_SAME_POWERS = (1, 2, -1)
#: Names that begin so are forms of one function: compiled graphs take another form than eager code.
_FORMS = ("batch_norm",)
#: {the name of a form in C++: the operator's}
_INNER = {"index_put_impl": "index_put", "unsafe_index_put": "index_put"}


def shown_name(func: Any) -> str:
    """The name of an operator of aten's that computes elements; "": it moves or makes them, or is no operator of aten.
    The forms in place and of lists have the name of the plain one.
    """
    if func.namespace != "aten" or getattr(func, "is_view", False):
        return ""
    name = func.overloadpacket.__name__.removeprefix("_foreach_").strip("_").removeprefix("native_")
    name = next((form for form in _FORMS if name.startswith(form)), _INNER.get(name, name))
    if name == "scatter" and func._overloadname in _REDUCING:
        return "scatter that reduces"
    return "" if name in _MOVES else name


def name_of_call(name: str, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> str:
    """The name of a call of an operator of this name, which says where it adds; "": the call moves values."""
    if name not in _ADDING:
        return name
    place = _ADDING[name]
    adds = keywords.get("accumulate", args[place] if len(args) > place else False)
    return f"{name} that adds" if adds else ""


def has_same_bits(name: str, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> bool:
    """Whether a call of the operator of this name has the same bits on all chips."""
    if name == "pow":
        return len(args) > 1 and isinstance(args[1], int | float) and args[1] in _SAME_POWERS
    alpha = keywords.get("alpha", args[2] if name in _SCALED and len(args) > 2 else 1)
    return name in _SAME and alpha == 1


def host_result(result: Any) -> Tensor | None:
    """The first tensor of an operator's result, where it has floating-point values on the host."""
    first = result[0] if isinstance(result, tuple | list) and result else result
    if not isinstance(first, torch.Tensor) or isinstance(first, FakeTensor):
        return None
    return first if first.is_floating_point() and first.device.type == "cpu" else None


__all__ = ["has_same_bits", "host_result", "name_of_call", "shown_name"]
