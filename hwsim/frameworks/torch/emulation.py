"""`with hwsim.torch.emulate(...)`: a model's matrix products on a simulated device, eager and compiled.

Two modes together: one sees PyTorch's functions, above autograd and inside torch.compile, and puts hwsim's operators in
their place, whose gradients know their pass; the other sees what PyTorch's C++ functions call below. The module knows
PyTorch's modes and modules' names.
"""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections.abc import Iterable, Iterator, Mapping, Set
from types import FunctionType
from typing import Any

import torch
import torch.utils.checkpoint
from torch._C._dynamo import eval_frame
from torch._ops import HigherOrderOperator
from torch._subclasses import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from hwsim.errors import InputError
from hwsim.frameworks.coverage import CoverageVerdict
from hwsim.frameworks.settings import STAGES, Given, PassName, Settings, describe, settings_of
from hwsim.frameworks.torch import convolutions
from hwsim.frameworks.torch.autocast import cast, is_on
from hwsim.frameworks.torch.caller import Caller, takes
from hwsim.frameworks.torch.compiled_notes import (
    APART,
    key_in_graph,
    may_break,
    name_of_chips,
    note_backend,
    note_function,
    notes_of,
    number_of,
    other_chips,
)
from hwsim.frameworks.torch.functions import FUNCTIONS, OPERATORS, SCALED_PRODUCTS, UNCAST
from hwsim.frameworks.torch.layer_record import EVERY, Record
from hwsim.frameworks.torch.multiplication import IN_GRAPH, activated, is_plain
from hwsim.frameworks.torch.names import Names, eager_name, layers_of, naming, note_effect
from hwsim.frameworks.torch.operators import PLAIN_TENSORS
from hwsim.frameworks.torch.place import Place
from hwsim.frameworks.torch.progress import counting
from hwsim.frameworks.torch.run_steps import FunctionCall, digest
from hwsim.frameworks.torch.switches import current, refuse_switches
from hwsim.frameworks.torch.uncaught import macs_of, multiplies, runs_products
from hwsim.frameworks.torch.unsimulated import has_same_bits, host_result, name_of_call, shown_name

#: PyTorch takes a mode away while an overridden function runs. Inside these whole modules run: checkpoints recompute.
#: {function: the same, or what another library has wrapped: PyTorch's own, which asks whether somebody overrides it}
BACKWARD: dict[Any, Any] = {
    form: inspect.unwrap(function)
    for function in (torch.Tensor.backward, torch.autograd.backward, torch.autograd.grad)
    for form in (function, inspect.unwrap(function))
}
_NOBODY = {"has_torch_function": lambda _: False, "has_torch_function_unary": lambda _: False}
CHECKPOINT = (
    "inside hwsim.torch.emulate checkpoints are run eagerly, as torch.compile shows nobody the products in them: leave "
    "fullgraph=True out, or the checkpoints"
)
LATE_CHECKPOINT = (
    "a checkpoint ran inside hwsim.torch.emulate and nothing was recomputed there: call backward() inside the `with` "
    "too; outside of it PyTorch recomputes other operators and ends in a CheckpointError"
)
CHECKPOINT_HOOK = "_checkpoint_hook."  # in the name of what PyTorch's checkpoints call for each saved tensor
HOOK_WARNING = "Using `torch.compile.module.` when there are global hooks"  # these only keep names
#: Operators whose stand-ins compute PyTorch's own result themselves, or one that PyTorch for CPUs lacks.
HWSIM_S_WHEN_PLAIN = SCALED_PRODUCTS | {torch.ops.aten.convolution.default}
ATTENTION = torch.nn.functional.scaled_dot_product_attention
MOST_NODES = 1 << 20  # whose layers are kept
CONVOLUTION_BACKWARD = torch.ops.aten.convolution_backward.default


def _backward_of(func: Any) -> Any:
    """PyTorch's own function where `func` is one that differentiates, or was wrapped around one by another library."""
    if func in BACKWARD or torch.compiler.is_compiling():
        return BACKWARD.get(func)
    return BACKWARD.get(getattr(func, "__wrapped__", None))


def _unasked(function: FunctionType) -> FunctionType:
    """The same function without its question whether somebody overrides it."""
    namespace = {**function.__globals__, **_NOBODY}
    rebuilt = FunctionType(function.__code__, namespace, function.__name__, function.__defaults__, function.__closure__)
    rebuilt.__kwdefaults__ = function.__kwdefaults__
    return rebuilt


#: {a function that multiplies inside, while PyTorch has taken the mode away: the same, which asks nobody}
_WHOLE = {function: _unasked(function) for function in (torch.nn.functional.multi_head_attention_forward,)}


def check_patterns(settings: Settings, layers: Iterable[str], reached: Iterable[str] | None = None) -> None:
    """Raises InputError where a pattern of `modules` holds for none of these layers, or for containers alone; reached:
    as of `Settings.unused_patterns`.
    """
    decided = None if reached is None else map(eager_name, reached)
    if unused := settings.unused_patterns(map(eager_name, layers), decided):
        raise InputError("\n".join(unused))


class Emulation:
    """What `emulate` yields: the settings in use, and the record of the products. graphs: numbers of compiled graphs
    that were traced, or ran.
    """

    def __init__(self, settings: Settings, record: Record, graphs: Set[int] = frozenset()) -> None:
        self.settings, self.record, self.graphs = settings, record, graphs

    def report(self) -> str:
        """The verdict, the settings, and a table of layers and passes: calls, multiply-adds, errors, overflows; then
        what was not caught.
        """
        return f"{self.verdict}\n{describe(self.settings)}\n\n{self.record.text()}"

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return {"settings": describe(self.settings).splitlines(), **self.record.to_dict()}

    @property
    def verdict(self) -> CoverageVerdict:
        """How much of the model was simulated, and how well its bits are known, in words."""
        return self.record.verdict

    @property
    def title(self) -> str:
        """The settings of the forward pass in one line."""
        return describe(self.settings).partition("\n")[0]

    def check_patterns(self, model: Any) -> None:
        """Raises InputError where a pattern of `modules` holds for no module of a model; nothing for a function. Once
        the model ran, also where one holds for containers alone.
        """
        if isinstance(model, torch.nn.Module):
            reached = self.record.layers_with_effect
            check_patterns(
                self.settings,
                [name for name, _ in model.named_modules()],
                reached | layers_of(self.graphs).with_effect if reached else None,
            )

    @property
    def not_caught(self) -> Mapping[str, int]:
        """{operator: calls} of products that PyTorch computed itself; "plain" ones are not among them."""
        return self.record.not_caught


class _Functions(TorchFunctionMode):
    """Puts hwsim's operators in the place of PyTorch's functions."""

    def __init__(self, key: str, names: Names) -> None:
        super().__init__()
        self.key, self.names = key, names
        self.depth = 0  # of eager functions in which hwsim computes
        self.has_checkpoint = self.has_recomputed = False

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        keywords = kwargs or {}
        backward = _backward_of(func)
        whole: Any = None
        if backward is not None:
            whole = _unasked(backward)
        else:
            whole = _WHOLE.get(func)
        if whole is not None and _are_plain(types):  # a subclass may override it
            with self:
                return whole(*args, **keywords)
        if func is torch.utils.checkpoint.checkpoint:  # called by torch.compile only
            torch._dynamo.graph_break(msg=CHECKPOINT)
        function = FUNCTIONS.get(func)
        if torch.compiler.is_compiling():
            name = name_of_chips(func)
            if func is ATTENTION:
                name = "softmax"  # between its products, where no fused kernel is followed
            if name is not None:
                note_effect(self.names.current)
                chips = other_chips(self.key, self.names.current, name)
                if chips and may_break():
                    torch._dynamo.graph_break(msg=APART)
                if chips and func is not ATTENTION:  # which notes its softmax itself
                    note_function(self.key, self.names.current, name, chips)
        if function is None or not _are_plain(map(type, _tensors((*args, *keywords.values())))):
            if func is torch.Tensor.unflatten:  # torch.compile cannot trace the method without the mode
                return torch.unflatten(*args, **keywords)
            return func(*args, **keywords)
        if not torch.compiler.is_compiling() and self._is_pytorch_s(func, (*args, *keywords.values())):
            return func(*args, **keywords)
        if torch.compiler.is_compiling():
            note_backend(self.key)
            result = self._replaced(func, function, args, keywords)
        else:
            self._note_checkpoint()
            self.depth += 1
            try:
                result = self._replaced(func, function, args, keywords)
            finally:
                self.depth -= 1
        return func(*args, **keywords) if result is None else result

    def _is_pytorch_s(self, func: Any, operands: tuple[Any, ...]) -> bool:
        """Whether PyTorch computes the function itself: its layer is plain, and so are gradients, where any are asked
        for. PyTorch's gradients do not know their layer.
        """
        layer = self.names.current
        if func in SCALED_PRODUCTS or not is_plain(self.key, layer, *STAGES):
            return False
        has_gradient = torch.is_grad_enabled() and any(x.requires_grad for x in _tensors(operands))
        return not has_gradient or is_plain(self.key, "", *STAGES)

    def _replaced(self, func: Any, function: Any, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
        """What hwsim's function gives, with the operands that autocast would give to PyTorch's."""
        key = key_in_graph(self.key) if torch.compiler.is_compiling() else self.key
        caller = Caller(key, self.names.current, *self._pass())
        device = None if func in UNCAST else is_on(*args, *keywords.values())
        if device is None:
            return function(caller, *args, **keywords)
        args, keywords = cast(args, keywords, device)
        with torch.autocast(device, enabled=False):
            return function(caller, *args, **keywords)

    def _note_checkpoint(self) -> None:
        """Note a product in a checkpoint that saves no tensors, and one that is computed again."""
        if not torch.is_grad_enabled():
            return
        if torch._C._current_autograd_node() is not None:
            self.has_recomputed = True
        elif hooks := torch._C._autograd._top_saved_tensors_default_hooks(False):
            self.has_checkpoint |= CHECKPOINT_HOOK in getattr(hooks[0], "__qualname__", "")

    def _pass(self) -> tuple[PassName, str]:
        """The pass of a function's products: during `backward` a gradient's, unless a checkpoint recomputes."""
        if torch.compiler.is_compiling() or torch._C._current_autograd_node() is None:
            return "forward", ""
        return ("forward", "") if self.names.stack or torch.is_grad_enabled() else ("backward_input", "")


def _run_as_it_is(function: Any) -> None:
    """Let torch.compile leave this function, and what it calls, alone where it runs outside of what is compiled: the
    compiler takes `Tensor.dtype` in it for a number.
    """
    with contextlib.suppress(AttributeError):  # PyTorch before 2.8
        skip = eval_frame._FrameAction.SKIP
        eval_frame.set_code_exec_strategy(function.__code__, eval_frame._FrameExecStrategy(skip, skip))


_run_as_it_is(_Functions.__torch_function__)


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    """The tensors among arguments, also in lists of them."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _are_plain(types: Any) -> bool:
    """Whether no operand is a tensor of a subclass, which may compute the function otherwise."""
    return all(kind in PLAIN_TENSORS or issubclass(kind, FakeTensor) for kind in types)


class _Kind:
    """What an operator of PyTorch is to `emulate`: caught by a function of hwsim's, counted, or something else."""

    def __init__(self, func: Any) -> None:
        self.func = func  # kept, so that no other operator gets its id
        self.function = OPERATORS.get(func)
        self.runs = isinstance(func, HigherOrderOperator)
        self.is_hwsim_s = func.namespace == "hwsim"  # in compiled graphs; eager products are seen by no mode
        self.multiplies = not self.runs and multiplies(func)
        self.is_other = self.function is None and not self.multiplies and func is not CONVOLUTION_BACKWARD
        self.shown = "" if self.runs or self.multiplies else shown_name(func)  # of an operator without products


_KINDS: dict[int, _Kind] = {}  # by identity: PyTorch hashes operators in Python, and all go through here


class _Operators(TorchDispatchMode):
    """Catches products that PyTorch's C++ functions call, and counts those that nothing catches."""

    supports_higher_order_operators = True
    is_of_hwsim = True  # for hwsim.frameworks.torch.operators, which may compute at once under this mode alone

    def __init__(self, functions: _Functions, record: Record) -> None:
        super().__init__()
        self.key, self.names, self.functions, self.record = functions.key, functions.names, functions, record
        self.graphs: set[str] = set()  # that ran
        self.layers: dict[int, str] = {}  # of products, by the number of autograd's node that has their gradients

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """torch.compile compiles under this mode as without it."""
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if any(kind not in PLAIN_TENSORS and not issubclass(kind, FakeTensor) for kind in types):
            return NotImplemented  # a tensor of another kind knows what its operators do; its products are seen below
        kind = _KINDS.get(id(func))
        if kind is None:
            kind = _KINDS[id(func)] = _Kind(func)
        if kind.is_other:
            if kind.is_hwsim_s:
                self._note_compiled(args)
            if kind.runs and runs_products(func, args):
                self.record.passed_on(func.name(), None)
            keywords = kwargs or {}
            result = func(*args, **keywords)
            if kind.shown:
                self._note_function(kind, args, keywords, result, is_here=True)
            return result
        keywords, result = kwargs or {}, None
        self.record.reached.add(self.names.current)
        if func is CONVOLUTION_BACKWARD:
            result = self._convolution_backward(*args)
            if result is None and is_plain(self.key, self._layer(args), *STAGES[1:]):
                return self._plain(kind, args, keywords)
        elif kind.function is not None:
            caller = Caller(self.key, self._layer(args), *_stage(func, args))
            if func not in HWSIM_S_WHEN_PLAIN and is_plain(self.key, caller.layer, caller.stage):
                return self._plain(kind, args, keywords)
            result = kind.function(caller, *args, **keywords)
        if result is not None:
            if kind.shown:
                self._note_function(kind, args, keywords, result, is_here=False)
            return result
        if kind.multiplies and not (args and isinstance(args[0], FakeTensor)):
            space = "" if func.namespace == "aten" else f"{func.namespace}::"
            name = f"{space}{func.overloadpacket.__name__} of {_dtypes(args)}"
            result = func(*args, **keywords)
            macs = macs_of(func, args, keywords, result)
            layer = self._layer(args)
            if macs is not None and is_plain(self.key, layer, *STAGES):
                self.record.left_plain(layer, macs)
            else:
                self.record.passed_on(name, macs)
            return result
        result = func(*args, **keywords)
        if kind.shown:
            self._note_function(kind, args, keywords, result, is_here=True)
        return result

    def _note_function(
        self, kind: _Kind, args: tuple[Any, ...], keywords: Mapping[str, Any], result: Any, *, is_here: bool
    ) -> None:
        """Note an operator without products. is_here: PyTorch computed it by this CPU; else as the chip's kernel does.

        Of what hwsim's own functions call, those are noted that PyTorch has a kernel for in attention's math form.
        """
        values = host_result(result)
        is_inside = self.functions.depth > 0
        name = name_of_call(kind.shown, args, keywords)
        if values is None or not name or (is_inside and kind.function is None):
            return
        if is_here:
            self.record.ran_here(name, has_same_bits=has_same_bits(name, args, keywords))
        if self.record.function_observer is not None and not is_inside:
            self.record.function_observer(FunctionCall(name, self.names.current, is_here, digest(values)))

    def _layer(self, args: tuple[Any, ...]) -> str:
        """The layer of a product: of a gradient its forward product's, by autograd's node, where modules have ended."""
        layer = self.names.current
        if not layer:
            node = torch._C._current_autograd_node()
            return "" if node is None else self.layers.get(node._sequence_nr(), "")
        if torch.is_grad_enabled() and any(x.requires_grad for x in _tensors(args)):
            if len(self.layers) >= MOST_NODES:
                del self.layers[next(iter(self.layers))]  # the oldest
            self.layers.setdefault(torch.autograd._get_sequence_nr() - 1, layer)  # the node was made just before
        return layer

    def _note_compiled(self, args: tuple[Any, ...]) -> None:
        """One of hwsim's operators runs: of a compiled graph where its key says so."""
        graph = next((x for x in args if isinstance(x, str) and x.startswith(f"{self.key}{IN_GRAPH}")), None)
        if graph is not None and graph not in self.graphs:
            self.graphs.add(graph)
            self.names.graphs.add(number_of(graph))
            self.record.compiled = notes_of(sorted(self.graphs))

    def _plain(self, kind: _Kind, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
        """What PyTorch computes because the settings say so."""
        result = kind.func(*args, **keywords)
        if kind.multiplies and not isinstance(args[0], FakeTensor):
            self.record.left_plain(self._layer(args), macs_of(kind.func, args, keywords, result))
        if kind.shown:
            self._note_function(kind, args, keywords, result, is_here=True)
        return result

    def _convolution_backward(self, *args: Any) -> Any:
        dy, x, w, _, stride, padding, dilation, is_transposed, _, groups, wanted = args
        if is_transposed or not takes(dy, x, w):
            return None
        window = convolutions.Window(stride, padding, dilation, groups)
        layer = self._layer(args)
        of_x = of_w = of_bias = None
        if wanted[0]:
            place = Place(self.key, layer, "backward_input", "convolution", "a")
            of_x = convolutions.of_input(dy, w, x.shape, window, place)
        if wanted[1]:
            place = Place(self.key, layer, "backward_weight", "convolution", "a")
            of_w = convolutions.of_weight(dy, x, w.shape, window, place)
        if wanted[2]:
            of_bias = dy.sum([0, *range(2, dy.dim())])
        return of_x, of_w, of_bias


def _stage(func: Any, args: tuple[Any, ...]) -> tuple[PassName, str]:
    """The pass of a product below autograd, and which operand is the gradient.

    In a backward node of a product one operand is what the node saved: its second one for the gradient of the first.
    """
    node = torch._C._current_autograd_node()
    if node is None:
        return "forward", ""
    operands = args[-2:] if len(args) >= 2 else args
    saved: dict[str, Any] = {}
    for name in ("mat2", "self", "mat1", "batch1", "batch2", "vec", "tensor"):
        with contextlib.suppress(AttributeError, RuntimeError):
            saved[name] = getattr(node, f"_saved_{name}")
    seconds = [saved[name] for name in ("mat2", "batch2", "vec") if isinstance(saved.get(name), torch.Tensor)]
    for place, operand in zip("ab", operands, strict=False):
        if any(_shares(operand, other) for other in seconds):
            return "backward_input", "b" if place == "a" else "a"
    firsts = [saved[name] for name in ("self", "mat1", "batch1") if isinstance(saved.get(name), torch.Tensor)]
    for place, operand in zip("ab", operands, strict=False):
        if any(_shares(operand, other) for other in firsts):
            return "backward_weight", "b" if place == "a" else "a"
    return "backward_input", ""


def _shares(x: Any, y: Any) -> bool:
    if not isinstance(x, torch.Tensor):
        return False
    try:
        return x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()
    except NotImplementedError:  # the wrapper of a tensor inside torch.func's transforms
        return False


def _dtypes(args: tuple[Any, ...]) -> str:
    dtype = next((argument.dtype for argument in args if isinstance(argument, torch.Tensor)), None)
    return str(dtype).removeprefix("torch.")


@contextlib.contextmanager
def step_by_step() -> Iterator[None]:
    """Inside, layers of transformers in eval mode call their products one by one, compiled as eager: PyTorch's own
    operator for a whole layer shows nobody its products.
    """
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextlib.contextmanager
def emulate(
    *,
    modules: Mapping[str, Given] | None = None,
    measure_every: int = EVERY,
    timing: bool = False,
    progress: bool = True,
    **arguments: Any,
) -> Iterator[Emulation]:
    """Context manager: inside it PyTorch's matrix products run on a simulated device; yields an `Emulation`.

    Caught: mm, bmm, matmul, addmm, baddbmm, mv, dot, inner, tensordot, einsum, linear, convolutions and transposed ones
    with their gradients, scaled_dot_product_attention in its math form, or with library="pytorch" as the backend that
    PyTorch takes on the chip, _scaled_mm and scaled_mm with scales of tensors, rows and blocks, MX and NVFP4,
    _grouped_mm, _scaled_grouped_mm, _int_mm; what PyTorch multiplies otherwise is counted by name (`not_caught`).
    Results have the dtypes that PyTorch gives. The gradients of products follow the settings of their forward pass,
    wherever backward() is called; products that PyTorch's C++ functions call, and recomputation by checkpoints, need it
    to be called inside.

    Args:
        modules: {pattern of qualified names ("blocks.*.attn"): the arguments that hold there instead, or "plain"}. At
            the end of the `with` a warning names patterns that held for no module, or for containers alone.
        measure_every: the error of the first and then of every so many products of a layer is measured (0: none).
        timing: add up the simulated device's time of products and fused attention; nothing else of the model takes any.
        progress: after two seconds, show on a terminal how many products were computed.
        arguments: as of `hwsim.run` (device, scheme, format, library, accumulate, split_k, threads, ...) for all
            three passes. forward, backward_input, backward_weight: a mapping of what differs in a pass (the gradients
            of a product's first operand and of its second, which a layer's weight is; None takes an argument back), or
            "plain" for PyTorch's own product. scale="power-of-two": each operand is first scaled into `format`'s range
            by a power of two. gradient_format: format of the operand that is a gradient.

    Raises:
        InputError: arguments that do not fit, at once; UnsupportedError and ConfigError too. Inside: UnsupportedError
            for what PyTorch refuses on the chip (attention that no allowed backend takes, scaled products of a format
            that it has no unit for), and PyTorch's own errors for wrong shapes and dtypes.
    """
    refuse_switches({**arguments, "modules": modules or {}})
    settings, record = settings_of(arguments, modules, current()), Record(measure_every, timing)
    with contextlib.ExitStack() as stack:
        stack.enter_context(activated(settings, record))
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", HOOK_WARNING, UserWarning)
        names = stack.enter_context(naming())
        stack.enter_context(step_by_step())
        record.progress = stack.enter_context(counting(progress))
        functions = _Functions(settings.key, names)
        stack.enter_context(_Operators(functions, record))
        stack.enter_context(functions)
        yield Emulation(settings, record, names.graphs)
        traced = layers_of(names.graphs)
        layers = [*names.known.values(), *sorted(traced.layers), *(layer for layer, _, _ in record.layers)]
        if names.known or record.layers:
            for sentence in settings.unused_patterns(layers, record.layers_with_effect | traced.with_effect):
                warnings.warn(sentence, stacklevel=3)
        if functions.has_checkpoint and not functions.has_recomputed:
            warnings.warn(LATE_CHECKPOINT, stacklevel=3)
