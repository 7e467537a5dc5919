"""The schema of a framework file: how a framework calls a library for a matrix product.

It knows formats by name, functions and bytes; no choice of a library.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from hwsim.datafiles.base import Name, NameList, StrictRecord


class FrameworkCallModel(StrictRecord):
    """One way of calling. It is for operands of these formats (none: any), with a bias (null: with or without), and n
    and k of at least so many.

    function: cublasLtMatmul has a bias in its epilogue, cublasGemmEx as its C. workspace_bytes: what the library may
    use. no_bias: why the call takes none ("": it does).
    """

    operands: tuple[Name, ...] = ()
    bias: bool | None = None
    least_n: PositiveInt = 1
    least_k: PositiveInt = 1
    function: Literal["cublasLtMatmul", "cublasGemmEx"]
    workspace_bytes: NonNegativeInt
    no_bias: str = ""


class ReductionsModel(StrictRecord):
    """In which type slices of K may be reduced. narrow: formats of operands and result of which a switch says it; of
    all others any is allowed. default: what the switch says unless it is set.
    """

    narrow: NameList
    default: Literal["any", "compute"]


class RouteModel(StrictRecord):
    """What runs operators (none: any) of operands in these formats on chips of these families, or of these names.

    library: whose kernel it is ("": not known). order: "library": that library's; "unit": one chain in order of K by
    the unit's own instruction, as such kernels add; "": not known.
    """

    operators: tuple[Name, ...] = ()
    operands: tuple[Name, ...] = ()
    families: tuple[Name, ...] = ()
    chips: tuple[Name, ...] = ()
    library: str = ""
    kernel: str = ""
    order: Literal["library", "unit", ""] = ""


class InsteadModel(StrictRecord):
    """A format in which operands are multiplied instead of their own, in the backward pass, on these chips."""

    chips: NameList
    operand: Name
    format: Name


class NarrowSumsModel(StrictRecord):
    """Operands whose products a switch lets add in their own format, on chips of these families."""

    operand: Name
    families: NameList


class PromotingModel(StrictRecord):
    """Operands whose sums are promoted unless fast accumulation is asked for, on chips of these families."""

    operands: NameList
    families: NameList


class BackendModel(StrictRecord):
    """Which calls of attention a kernel takes, on chips of these families, or of these names; with operands in these
    formats.

    backend: PyTorch's name of it. most_width, width_step: of heads, in elements. equal_widths: of query and value.
    masks: it takes a mask. groups: heads of the query may share one of the key. square_causal: a causal mask needs as
    many queries as keys. least_keys: how many it needs.
    """

    backend: Name
    families: tuple[Name, ...] = ()
    chips: tuple[Name, ...] = ()
    operands: NameList
    most_width: PositiveInt | None = None
    width_step: PositiveInt = 1
    equal_widths: bool = False
    masks: bool = True
    groups: bool = True
    square_causal: bool = False
    least_keys: PositiveInt = 1


class AttentionModel(StrictRecord):
    """How PyTorch chooses a kernel for attention. orders: by family ("other": any), in which order it asks the
    backends. backends: what each takes. math: the backend that takes all. small_tiles: chips on which kernels have
    smaller tiles than on others of their family.
    """

    orders: dict[Name, NameList]
    math: Name
    backends: dict[Name, BackendModel]
    small_tiles: NameList


class SoftmaxModel(StrictRecord):
    """Rows of at most so many elements are added by this many lanes: each adds its own in order, then lanes add in
    pairs. Longer rows are added by so many threads of a block, which have at most so many elements each in registers,
    or take vectors of so many elements; shared_bytes: where a row waits that fits.
    """

    families: NameList
    lanes: PositiveInt
    most: PositiveInt
    threads: PositiveInt
    registers: PositiveInt
    vector: PositiveInt
    shared_bytes: PositiveInt


class LayerNormModel(StrictRecord):
    """Rows of at most so many elements, which vectors of so many divide, are normed by so many threads of a block: each
    takes vectors in turn, then lanes of a warp meet in pairs, then warps.
    """

    families: NameList
    threads: PositiveInt
    lanes: PositiveInt
    vector: PositiveInt
    most: PositiveInt


class RowSumsModel(StrictRecord):
    """Rows are added by so many threads of a block at most, lanes of a warp; a thread adds this many numbers apart, or
    vectors of so many elements (`vectors`, by format), in rows of at least `least` elements. share, most: elements a
    thread that are worth another warp, or another block.
    """

    families: NameList
    threads: PositiveInt
    lanes: PositiveInt
    turns: PositiveInt
    vectors: dict[Name, PositiveInt]
    least: PositiveInt
    share: PositiveInt
    most: PositiveInt


class FunctionsModel(StrictRecord):
    """Functions of single elements, in fp32 by CUDA's functions on these families."""

    names: NameList
    families: NameList


class ComparedModel(StrictRecord):
    """A chip with which the results of the kernels of these rules were compared."""

    rules: NameList


class DepthwiseKernelsModel(StrictRecord):
    """A framework's own kernels of depthwise convolutions, by pass. bias: where their sums take it. skips_padding:
    passes whose sums leave padding out; others multiply its zeros.
    """

    forward: Name
    backward_input: Name
    backward_weight: Name
    bias: Literal["first", "last"]
    skips_padding: tuple[Literal["forward", "backward_input"], ...]


class WorkloadModel(StrictRecord):
    """Depthwise convolutions that the library takes: with square filters of these sizes (none: any filter), the
    stride of columns, and sizes of the images within these bounds; most_*: None: none.
    """

    filters: tuple[PositiveInt, ...] = ()
    stride: PositiveInt
    least_batch: PositiveInt = 1
    most_batch: PositiveInt | None = None
    least_channels: PositiveInt = 1
    most_height: PositiveInt | None = None
    least_width: PositiveInt = 1
    most_width: PositiveInt | None = None


class DepthwiseModel(StrictRecord):
    """Where a framework's own kernels compute depthwise convolutions that are not stored channels last, and add the
    bias before they round. any_storage: formats of which it does not count how images are stored. instructions: by
    format of the operands, of the products. cudnn_operands: of images with two dimensions the library takes these, with
    at least so many channels, equal strides and no dilation, where one of the workloads fits.
    """

    families: NameList
    any_storage: NameList
    plane: DepthwiseKernelsModel
    volume: DepthwiseKernelsModel
    instructions: dict[Name, Name]
    cudnn_operands: NameList
    cudnn_least_channels: PositiveInt
    workloads: dict[Name, WorkloadModel]


class OutputsModel(StrictRecord):
    """Formats of results: where nothing else is asked for, and with a bias."""

    plain: Name
    biased: tuple[Name, ...] = ()


class Framework(StrictRecord):
    """A framework's calls and routes: the first that fits holds. backward: other formats of gradients' products.
    tf32_families: where the switches of fp32 products count; emulating_families: where BF16x9 is one of them.
    convolution_bias_apart: where PyTorch adds a convolution's bias to the rounded result. depthwise: where it does not.
    cublas_row_scales: families on which cuBLAS multiplies FP8 with scales of rows. outputs: by format of the operands.
    softmax, layer_norm, row_sums: its own kernels. functions: of single elements, by group; a power is named by its
    exponent. compared: chips whose results the kernels of some rules have, by name.
    """

    schema_version: Literal[1]
    framework: Name
    version: Name
    title: str
    calls: Annotated[dict[Name, FrameworkCallModel], Field(min_length=1)]
    reductions: ReductionsModel
    routes: Annotated[dict[Name, RouteModel], Field(min_length=1)]
    backward: dict[Name, InsteadModel] = Field(default_factory=dict)
    tf32_families: NameList
    emulating_families: NameList
    convolution_bias_apart: NameList
    depthwise: DepthwiseModel
    cublas_row_scales: NameList
    narrow_sums: NarrowSumsModel
    promoting: PromotingModel
    outputs: Annotated[dict[Name, OutputsModel], Field(min_length=1)]
    attention: AttentionModel
    softmax: SoftmaxModel
    layer_norm: LayerNormModel
    row_sums: RowSumsModel
    functions: dict[Name, FunctionsModel]
    compared: dict[Name, ComparedModel] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _last_fits_all(self) -> Framework:
        last = list(self.calls.values())[-1]
        route = list(self.routes.values())[-1]
        if route.operators or route.operands or route.families or route.chips:
            raise PydanticCustomError("rule", "the last of routes has a condition; allowed: none, so that it fits all")
        if last.operands or last.bias is not None or (last.least_n, last.least_k) != (1, 1):
            raise PydanticCustomError("rule", "the last of calls has a condition; allowed: none, so that it fits all")
        return self
