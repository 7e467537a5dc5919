"""`hwsim.attention`: attention of arrays by the kernel that PyTorch runs on a chip: bits, and cycles when asked for.

It knows the arguments and what they mean; which kernel there is and how it computes, the layers below.
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never

import numpy as np
from numpy.typing import NDArray

from hwsim.attending.attention_result import AttentionResult
from hwsim.backend.environment import in_default_environment
from hwsim.compute.attention_call import call_of
from hwsim.errors import InputError, nearest
from hwsim.host.threads import worker_count
from hwsim.libraries.gemm_call import PYTORCH
from hwsim.machines.l2_state import DEFAULT, STATES
from hwsim.machines.timing import launch_us

if TYPE_CHECKING:
    from hwsim.devices.device import Device


@in_default_environment
def attention(
    query: NDArray[Any],
    key: NDArray[Any],
    value: NDArray[Any],
    *,
    device: str | Path | Mapping[str, Any] | Device = "h100",
    library: str = PYTORCH,
    backend: str | None = None,
    is_causal: bool = False,
    mask: NDArray[Any] | None = None,
    query_descale: NDArray[np.float32] | None = None,
    key_descale: NDArray[np.float32] | None = None,
    value_descale: NDArray[np.float32] | None = None,
    scale: float | None = None,
    exact: bool = True,
    functional: bool = False,
    l2: str = DEFAULT,
    clock_mhz: float | None = None,
    launch_overhead: bool = False,
    **others: Never,
) -> AttentionResult:
    """Scaled dot-product attention, softmax(scale query key^T) value, with the bits of the kernel that a library runs.

    Products by the chip's matrix instruction, powers by its special functions, sums in the kernel's order. The
    kernel's program gives the cycles, and is simulated when they are asked for.

    Args:
        query: (..., heads, queries, width), float16 or ml_dtypes.bfloat16; with backend="MATH" also float32, with
            flash-attention-3 ml_dtypes.float8_e4m3fn. The leading dimensions are the batch.
        key: (..., key heads, keys, width), of the same dtype and leading dimensions. Its heads divide the query's
            (GQA): so many consecutive heads of the query share a head of the key.
        value: (..., key heads, keys, width of the value), likewise.
        device: a name, the path of a YAML file, a mapping of that shape, or a Device; of the families sm80 and sm90, or
            sm100 with flash-attention-4; with backend="MATH" of sm70 to sm100.
        library: "pytorch", whose choice of a backend counts; "flash-attention-2", "flash-attention-3" (on Hopper) and
            "flash-attention-4" (on a B200 or B300) as their authors build them, which nobody compared with a chip.
        backend: of PyTorch: "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION" or "MATH", in any case, or
            "flash" and so on; None: the first that takes the call, in PyTorch's order on the device.
        is_causal: query i sees the keys 0 to i.
        mask: broadcast to (..., heads, queries, keys): bool, where False hides, or of the operands' dtype, which is
            added to the scaled scores. The order with one is known of the math form, the memory-efficient kernel and
            cuDNN's.
        query_descale: (..., key heads), float32: what the query's elements of 8 bits are multiples of; None: 1.
        key_descale: the same of the key.
        value_descale: the same of the value.
        scale: of the scores, without a unit; None: 1 / sqrt(width).
        exact: compute the bits. False: cycles alone; the operands' values are not read, so
            numpy.broadcast_to(numpy.float16(0), shape) is enough.
        functional: compute the same bits by the kernel's program, slower.
        l2: the state of L2 before the run: "series", "warm" or "cold". It changes cycles alone.
        clock_mhz: core clock in MHz; None: what the chip keeps under this load. It changes seconds, and cycles of
            memory.
        launch_overhead: `seconds` takes in the device's time to launch each kernel.
        others: there are none; another name is an InputError that names the one that is probably meant.

    Returns:
        An AttentionResult: `out`, an array (..., heads, queries, width of the value) of the operands' dtype (bfloat16
        of operands of 8 bits); `backend` (the library, where it is no backend of PyTorch), `kernel`, `order`,
        `evidence`; `cycles`, `seconds`, `tflops`, `verdict`, `engines`, `trace`.

    Raises:
        InputError: shapes or dtypes that do not fit, an unknown library, backend or state of L2, a scale that is no
            number of fp32; too little memory for the bits, before any is taken.
        UnsupportedError: a call that the backend does not take, or whose order is not known: other families, wider
            heads. `hwsim.torch.emulate` computes these in the order of the device's unit. With functional=True also a
            kernel without a program; the message says why.

    Source: FlashAttention-2 and the memory-efficient kernel by PyTorch's source, cuDNN's kernel by captures of an H100
    (hwsim/libraries/published/attention_kernels.py); the authors' kernels by their source (flash_attention.py there);
    the math form by PyTorch's source, its products by cuBLAS's recorded orders (hwsim/compute/math_kernel.py).
    """
    for name in others:
        allowed = [
            parameter.name
            for parameter in signature(attention).parameters.values()
            if parameter.default is not parameter.empty
        ]
        raise InputError(f"attention: no option {name!r}; allowed: {', '.join(allowed)}{nearest(name, allowed)}")
    if l2 not in STATES:
        raise InputError(f"attention: l2 = {l2!r}; allowed: {', '.join(STATES)}{nearest(str(l2), list(STATES))}")
    if functional and not exact:
        raise InputError("attention: functional=True computes bits, and exact=False leaves them out; take one of them")
    call = call_of(
        query,
        key,
        value,
        device=device,
        library=library,
        backend=backend,
        is_causal=is_causal,
        mask=mask,
        descale=(query_descale, key_descale, value_descale),
        scale=scale,
        clock_mhz=clock_mhz,
    )
    if launch_overhead:
        launch_us(call.device)
    out = call.computed(by_program=functional, threads=worker_count()) if exact else None
    return AttentionResult(
        out=out,
        backend=call.backend,
        device=call.device.name,
        order=call.record.order,
        evidence=call.kernel.evidence.value,
        by_program=functional,
        call=call,
        l2=l2,
        launch_overhead=launch_overhead,
    )
