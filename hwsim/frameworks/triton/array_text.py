"""Writes addresses, loads and stores of a whole array as text of Triton's dialect, with a layout of threads or without.

The module knows the syntax of Triton's dialect; it knows no operation, no compiler and no device.
"""

from __future__ import annotations

import math

POINTER = "!tt.ptr<{0}>"


def tensor_type(shape: tuple[int, ...] | list[int], kind: str, layout: str = "") -> str:
    """The type of an array of elements of a kind. layout: of its threads; empty where the compiler chooses one."""
    return f"tensor<{'x'.join(map(str, shape))}x{kind}{f', {layout}' if layout else ''}>"


def loaded(name: str, kind: str, shape: tuple[int, ...], layout: str = "") -> list[str]:
    """Lines that load the array at the pointer %name: %name_value."""
    pointers = tensor_type(shape, POINTER.format(kind), layout)
    return [*addressed(name, kind, shape, layout), f"%{name}_value = tt.load %{name}_pointers : {pointers}"]


def stored(name: str, value: str, kind: str, shape: tuple[int, ...], layout: str = "") -> str:
    """The line that stores a value at the addresses %name_pointers, which `addressed` has written."""
    return f"tt.store %{name}_pointers, {value} : {tensor_type(shape, POINTER.format(kind), layout)}"


def addressed(name: str, kind: str, shape: tuple[int, ...], layout: str = "") -> list[str]:
    """Lines of the addresses of an array in C order, %name_pointers: a range for each dimension, times its stride."""
    lines, total, whole = list[str](), "", tensor_type(shape, "i32", layout)
    for axis, size in enumerate(shape):
        others = [other for other in range(len(shape)) if other != axis]
        layouts = [layout]
        for other in reversed(others):
            layouts.append(f"#ttg.slice<{{dim = {other}, parent = {layouts[-1]}}}>" if layout else "")
        value, extents, current = f"%{name}_{axis}", [size], tensor_type([size], "i32", layouts.pop())
        lines.append(f"{value} = tt.make_range {{end = {size} : i32, start = 0 : i32}} : {current}")
        for other in others:
            extents.insert(other, 1)
            wider = tensor_type(extents, "i32", layouts.pop())
            lines.append(f"{value}_{other} = tt.expand_dims {value} {{axis = {other} : i32}} : {current} -> {wider}")
            value, current = f"{value}_{other}", wider
        stride = math.prod(shape[axis + 1 :])
        if stride != 1:
            lines.append(f"{value}_stride = arith.constant dense<{stride}> : {current}")
            lines.append(f"{value}_offset = arith.muli {value}, {value}_stride : {current}")
            value = f"{value}_offset"
        if current != whole:
            lines.append(f"{value}_all = tt.broadcast {value} : {current} -> {whole}")
            value = f"{value}_all"
        if total:
            lines.append(f"{total}_{axis} = arith.addi {total}, {value} : {whole}")
            value = f"{total}_{axis}"
        total = value
    pointer = POINTER.format(kind)
    pointers = tensor_type(shape, pointer, layout)
    return [
        *lines,
        f"%{name}_base = tt.splat %{name} : {pointer} -> {pointers}",
        f"%{name}_pointers = tt.addptr %{name}_base, {total} : {pointers}, {whole}",
    ]
