"""Writes kernels with one operation as text of Triton's dialect: a dot, a scaled dot, a function.

The module knows the syntax of Triton's dialect; it knows no compiler, no device and no array.
"""

from __future__ import annotations

from hwsim.frameworks.triton.dot_question import DotQuestion, DotScaling

#: Triton's element types as MLIR spells them.
MLIR_TYPES = {
    "fp64": "f64",
    "fp32": "f32",
    "fp16": "f16",
    "bf16": "bf16",
    "fp8e4nv": "f8E4M3FN",
    "fp8e5": "f8E5M2",
    "fp8e4b8": "f8E4M3FNUZ",
    "fp8e5b16": "f8E5M2FNUZ",
    "int32": "i32",
    "int8": "i8",
}
#: The same for operands and scales of `tl.dot_scaled`: bytes are codes.
SCALED_TYPES = {**{name: MLIR_TYPES[name] for name in ("bf16", "fp16", "fp8e4nv", "fp8e5", "int8")}, "uint8": "i8"}
WARPS_OF_A_FUNCTION = 4


def ttir(question: DotQuestion) -> str:
    """A kernel that loads a, b, c and scales, multiplies once and stores d. Arguments: a, b, c, scales, d."""
    kinds = MLIR_TYPES if question.scaling is None else SCALED_TYPES
    a, b, d = kinds[question.a_type], kinds[question.b_type], MLIR_TYPES[question.d_type]
    loads = [("a", a, question.a_shape), ("b", b, question.b_shape), ("c", d, question.d_shape)]
    a_tensor, b_tensor, d_tensor = (_tensor(shape, kind) for _, kind, shape in loads)
    if question.scaling is None:
        body = _dot_lines(question, a_tensor, b_tensor, d_tensor, d.startswith("i"))
    else:
        scales = {"a_scale": question.scaling.a_scale, "b_scale": question.scaling.b_scale}
        loads += [(name, SCALED_TYPES[x[1]], x[0]) for name, x in scales.items() if x is not None]
        body = _scaled_lines(question.scaling, a_tensor, b_tensor, d_tensor)
    lines = [line for name, kind, shape in loads for line in _loaded(name, kind, shape)]
    lines += [
        *_pointers("d", d, question.d_shape),
        *body,
        f"tt.store %d_pointers, %product : {_tensor(question.d_shape, f'!tt.ptr<{d}>')}",
        "tt.return",
    ]
    return _function([*((name, kind) for name, kind, _ in loads), ("d", d)], lines)


def _dot_lines(question: DotQuestion, a: str, b: str, d: str, is_integer: bool) -> list[str]:
    imprecise = question.max_num_imprecise_acc
    attributes = f", inputPrecision = {question.input_precision}"
    attributes += f" {{maxNumImpreciseAcc = {imprecise} : i32}}" if imprecise else ""
    types = f"{a} * {b} -> {d}"
    if not question.is_added:
        return [f"%product = tt.dot %a_value, %b_value, %c_value{attributes} : {types}"]
    return [
        f"%zero = arith.constant dense<{'0' if is_integer else '0.0'}> : {d}",
        f"%dot = tt.dot %a_value, %b_value, %zero{attributes} : {types}",
        f"%product = arith.add{'i' if is_integer else 'f'} %dot, %c_value : {d}",
    ]


def _scaled_lines(scaling: DotScaling, a: str, b: str, d: str) -> list[str]:
    operands, types = [], []
    for name, tensor, scale in (("a", a, scaling.a_scale), ("b", b, scaling.b_scale)):
        operands.append(f"%{name}_value" + (f" scale %{name}_scale_value" if scale is not None else ""))
        types.append(tensor + (f", {_tensor(scale[0], SCALED_TYPES[scale[1]])}" if scale is not None else ""))
    attributes = [f"fastMath = {str(scaling.is_fast).lower()}"]
    attributes += [] if scaling.a_along_k else ["lhs_k_pack = false"]
    attributes += [] if scaling.b_along_k else ["rhs_k_pack = false"]
    return [
        f"%product = tt.dot_scaled {', '.join(operands)}, %c_value lhs = {scaling.a_format} rhs = {scaling.b_format}"
        f" {{{', '.join(attributes)}}} : {' * '.join(types)} -> {d}"
    ]


def function_text(operation: str, inputs: int, warp_size: int, attributes: str) -> str:
    """A kernel that applies an operation with attributes to fp32 numbers, one for each thread."""
    shape, names = (WARPS_OF_A_FUNCTION * warp_size,), "abc"[:inputs]
    kind = _tensor(shape, "f32")
    values = ", ".join(f"%{name}_value" for name in names)
    types = f"({', '.join([kind] * inputs)}) -> {kind}"
    lines = [line for name in names for line in _loaded(name, "f32", shape)]
    lines += [
        *_pointers("d", "f32", shape),
        f'%result = "{operation}"({values}) {attributes} : {types}',
        f"tt.store %d_pointers, %result : {_tensor(shape, '!tt.ptr<f32>')}",
        "tt.return",
    ]
    return _function([(name, "f32") for name in (*names, "d")], lines)


def _loaded(name: str, kind: str, shape: tuple[int, ...]) -> list[str]:
    return [
        *_pointers(name, kind, shape),
        f"%{name}_value = tt.load %{name}_pointers : {_tensor(shape, f'!tt.ptr<{kind}>')}",
    ]


def _pointers(name: str, kind: str, shape: tuple[int, ...]) -> list[str]:
    """Addresses of an array in C order, as a frontend writes them: a range for each dimension, times its stride."""
    pointer = f"!tt.ptr<{kind}>"
    lines, total = [], ""
    for axis, size in enumerate(shape):
        stride = 1
        for further in shape[axis + 1 :]:
            stride *= further
        value, text = f"%{name}_{axis}", f"tensor<{size}xi32>"
        lines.append(f"{value} = tt.make_range {{end = {size} : i32, start = 0 : i32}} : {text}")
        extents = [size]
        for other in range(len(shape)):
            if other == axis:
                continue
            place = other if other < axis else len(extents)
            extents.insert(place, 1)
            wider = _tensor(tuple(extents), "i32")
            lines.append(f"{value}_{other} = tt.expand_dims {value} {{axis = {place} : i32}} : {text} -> {wider}")
            value, text = f"{value}_{other}", wider
        if stride != 1:
            lines.append(f"{value}_stride = arith.constant dense<{stride}> : {text}")
            lines.append(f"{value}_offset = arith.muli {value}, {value}_stride : {text}")
            value = f"{value}_offset"
        whole = _tensor(shape, "i32")
        if text != whole:
            lines.append(f"{value}_all = tt.broadcast {value} : {text} -> {whole}")
            value = f"{value}_all"
        if total:
            lines.append(f"{total}_{axis} = arith.addi {total}, {value} : {whole}")
            value = f"{total}_{axis}"
        total = value
    splat = _tensor(shape, pointer)
    lines.append(f"%{name}_base = tt.splat %{name} : {pointer} -> {splat}")
    lines.append(f"%{name}_pointers = tt.addptr %{name}_base, {total} : {splat}, {_tensor(shape, 'i32')}")
    return lines


def _function(arguments: list[tuple[str, str]], lines: list[str]) -> str:
    """A kernel of pointers."""
    head = ", ".join(f"%{name}: !tt.ptr<{kind}> {{tt.divisibility = 16 : i32}}" for name, kind in arguments)
    body = "\n".join(f"    {line}" for line in lines)
    return f"module {{\n  tt.func public @kernel({head}) attributes {{noinline = false}} {{\n{body}\n  }}\n}}\n"


def _tensor(shape: tuple[int, ...], kind: str) -> str:
    return f"tensor<{'x'.join(map(str, shape))}x{kind}>"
