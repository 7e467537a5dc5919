"""Writes kernels with one operation as text of Triton's dialect: a dot, a scaled dot, a function.

The module knows the syntax of Triton's dialect; it knows no compiler, no device and no array.
"""

from __future__ import annotations

from hwsim.frameworks.triton.array_text import addressed, loaded, stored, tensor_type
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
    a_tensor, b_tensor, d_tensor = (tensor_type(shape, kind) for _, kind, shape in loads)
    if question.scaling is None:
        body = _dot_lines(question, a_tensor, b_tensor, d_tensor, d.startswith("i"))
    else:
        scales = {"a_scale": question.scaling.a_scale, "b_scale": question.scaling.b_scale}
        loads += [(name, SCALED_TYPES[x[1]], x[0]) for name, x in scales.items() if x is not None]
        body = _scaled_lines(question.scaling, a_tensor, b_tensor, d_tensor)
    lines = [line for name, kind, shape in loads for line in loaded(name, kind, shape)]
    lines += [
        *addressed("d", d, question.d_shape),
        *body,
        stored("d", "%product", d, question.d_shape),
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
        types.append(tensor + (f", {tensor_type(scale[0], SCALED_TYPES[scale[1]])}" if scale is not None else ""))
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
    kind = tensor_type(shape, "f32")
    values = ", ".join(f"%{name}_value" for name in names)
    types = f"({', '.join([kind] * inputs)}) -> {kind}"
    lines = [line for name in names for line in loaded(name, "f32", shape)]
    lines += [
        *addressed("d", "f32", shape),
        f'%result = "{operation}"({values}) {attributes} : {types}',
        stored("d", "%result", "f32", shape),
        "tt.return",
    ]
    return _function([(name, "f32") for name in (*names, "d")], lines)


def _function(arguments: list[tuple[str, str]], lines: list[str]) -> str:
    """A kernel of pointers."""
    head = ", ".join(f"%{name}: !tt.ptr<{kind}> {{tt.divisibility = 16 : i32}}" for name, kind in arguments)
    body = "\n".join(f"    {line}" for line in lines)
    return f"module {{\n  tt.func public @kernel({head}) attributes {{noinline = false}} {{\n{body}\n  }}\n}}\n"
