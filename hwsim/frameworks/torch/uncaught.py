"""Which operators with matrix products `emulate` leaves to PyTorch: these are counted by name.

The module knows names of operators, and PyTorch's own list of those that its counter of FLOPs counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry, sdpa_flop_count

#: PyTorch's own attention for CPUs and its gradient: its list of counters has the operators of GPUs alone.
CPU_ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"
CPU_ATTENTION_BACKWARD = f"{CPU_ATTENTION}_backward"
#: Names of aten's operators that multiply matrices and are not caught: each call is counted.
NOT_CAUGHT = frozenset(
    {
        *("addmv", "addbmm", "addr", "ger", "vdot", "addmm_", "baddbmm_", "addbmm_", "addmv_", "linalg_vecdot"),
        *("_addmm_activation", "_scaled_grouped_mm", "_grouped_mm", "_scaled_mm_v2", "_weight_int8pack_mm"),
        *("_weight_int4pack_mm", "_weight_int4pack_mm_for_cpu", "_mixed_dtypes_linear", "_cslt_sparse_mm"),
        *(CPU_ATTENTION, CPU_ATTENTION_BACKWARD, "_scaled_dot_product_fused_attention_overrideable"),
        *("conv_tbc", "conv_tbc_backward"),
        *("_transformer_encoder_layer_fwd", "_native_multi_head_attention", "_trilinear", "mkldnn_rnn_layer"),
        *("mkldnn_rnn_layer_backward", "mkldnn_linear", "mkldnn_convolution", "_thnn_fused_lstm_cell", "lstm", "gru"),
        *("triangular_solve", "cholesky_solve", "cholesky_inverse", "matrix_exp", "geqrf", "ormqr", "lu_solve"),
        *("cdist", "_cdist_forward", "_cdist_backward", "_euclidean_dist", "_sparse_mm", "_sparse_addmm", "sspaddmm"),
        *("hspmm", "smm", "_sparse_sparse_matmul", "sparse_sampled_addmm", "quantized_linear", "slow_conv_dilated2d"),
        *("mm", "bmm", "addmm", "baddbmm", "mv", "dot", "convolution", "_scaled_mm", "_int_mm"),  # of other kinds
        *(packet.__name__ for packet in flop_registry if isinstance(packet, torch._ops.OpOverloadPacket)),
    }
)
#: Of linalg's operators, which multiply inside, those that do not.
_NO_PRODUCTS = frozenset(
    {"linalg_vector_norm", "linalg_cross", "linalg_diagonal", "linalg_vander", "_linalg_check_errors"}
)
#: Words in the names of other libraries' operators (quantized::linear, mkldnn::_convolution_pointwise) with products.
_WORDS = re.compile(r"linear|conv|matmul|gemm|_mm|bmm|attention|attn|lstm|gru|rnn")


def multiplies(func: Any) -> bool:
    """Whether an operator of PyTorch, or of a library for it, multiplies matrices, as far as its name tells."""
    name = func.overloadpacket.__name__
    if func.namespace != "aten":
        return func.namespace not in ("hwsim", "prims") and _WORDS.search(name) is not None
    is_linalg = name.removeprefix("_").startswith("linalg_")
    return name in NOT_CAUGHT or (is_linalg and name not in _NO_PRODUCTS)


def macs_of(func: Any, args: tuple[Any, ...], keywords: Mapping[str, Any], result: Any) -> int | None:
    """The multiply-accumulates of a call, as PyTorch counts FLOPs; None where it does not."""
    name = func.overloadpacket.__name__
    if name == CPU_ATTENTION:
        return int(sdpa_flop_count(*(tensor.shape for tensor in args[:3]))) // 2
    if name == CPU_ATTENTION_BACKWARD:  # two gradients of each product; the scores, computed again, are no new work
        return int(sdpa_flop_count(*(tensor.shape for tensor in args[1:4])))
    count = flop_registry.get(func.overloadpacket)
    if count is None:
        return None
    try:
        return int(count(*args, **keywords, out_val=result)) // 2
    except (TypeError, ValueError, AttributeError, IndexError, AssertionError):  # arguments that it does not expect
        return None


def runs_products(func: Any, args: tuple[Any, ...]) -> bool:
    """Whether a higher-order operator (cond, flex_attention) multiplies matrices, as far as its own name, or the names
    in the graphs that it runs, tell.
    """
    graphs = [argument for argument in args if isinstance(argument, torch.fx.GraphModule)]
    return _WORDS.search(func.name()) is not None or any(
        _WORDS.search(str(node.target)) for graph in graphs for part in graph.modules() for node in _nodes(part)
    )


def _nodes(module: torch.nn.Module) -> Any:
    return module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ()
