"""The program of an attention record on its device, and what has none.

Nothing is chosen here: tiles, blocks and parts are the record's. How many tiles a core computes side by side follows
from the device's memories.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwsim.dataflows.attention.attention_buffers import designed
from hwsim.dataflows.attention.attention_streams import AttentionStreams
from hwsim.dataflows.attention.parts_join import PartsJoin
from hwsim.dataflows.attention.query_tiles import distributed, grid_of
from hwsim.dataflows.families import find
from hwsim.gemm.attention_order import power_factor
from hwsim.gemm.attention_record import FusedAttention
from hwsim.gemm.layouts import K_MAJOR
from hwsim.program.ir import GlobalArray, Program

if TYPE_CHECKING:
    from hwsim.devices.device import Device

#: Inputs with the factors of heads: of query, key and value.
DESCALES = ("Q.descale", "K.descale", "V.descale")


def refuses(record: FusedAttention, device: Device) -> str:
    """Why a record has no program on a device, in words; empty where it has one."""
    if device.special is None:
        return f"device {device.name} has no special-function unit (special, in its file)"
    if device.vector is None or not device.links or not device.engines:
        return f"device {device.name} has no timing data"
    if not power_factor(record.factor, record.order) > 0:
        return f"programs take a factor of the scores above 0 in fp32; got {record.factor}"
    return ""


def attention_program(record: FusedAttention, device: Device) -> Program:
    """The program. Its inputs are Q (heads x queries, width), K (width, key heads x keys) stored by columns, V (key
    heads x keys, width of the value), and under a causal mask `limit` (heads x queries, 1), the number of keys that a
    row sees, and `index` (1, keys), the keys' numbers; a mask of one's own is `mask` (queries of one or all heads,
    keys). Factors of heads are DESCALES (key heads, 1). Its output is O (heads x queries, width of the value).

    Raises UnsupportedError where `refuses` says why, or no tile fits the device's memories.
    """
    family = find(device.family)
    assert family is not None  # of the orders that there are
    design = designed(record, family, device)
    grid = grid_of(record)
    kernel = AttentionStreams(design, grid, device)
    kernels = [kernel.kernel(distributed(record, grid, device.cores, design.beside))]
    rows, keys = record.heads * record.queries, record.key_heads * record.keys
    arrays = [
        GlobalArray("Q", rows, record.width, record.format),
        GlobalArray("K", record.width, keys, record.format, K_MAJOR[1]),
        GlobalArray("V", keys, record.value_width, record.format),
    ]
    if record.is_causal:
        arrays += [GlobalArray("limit", rows, 1, "int32"), GlobalArray("index", 1, record.keys, "int32")]
    if record.mask != "none":
        matrices = record.heads if record.mask == "own" else 1
        arrays.append(GlobalArray("mask", matrices * record.queries, record.keys, record.format))
    if record.is_descaled:
        arrays += [GlobalArray(name, record.key_heads, 1, "fp32") for name in DESCALES]
    inputs = tuple(array.name for array in arrays)
    arrays.append(GlobalArray("O", rows, record.value_width, record.result_format))
    if record.order.parts > 1:
        arrays.append(GlobalArray("O.parts", record.order.parts * rows, record.value_width, "fp32"))
        arrays.append(GlobalArray("logarithms", rows, record.order.parts, "fp32"))
        kernels.append(PartsJoin(record, family, device, rows).kernel())
    return Program(tuple(arrays), tuple(kernels), inputs, "O")
