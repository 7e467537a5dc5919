"""Evaluates PTX of one CTA on arrays: sums between threads, through shuffles and shared memory.

Addresses, predicates and lanes do not depend on the data: they are worked out once. What is left is a list of
operations on the data. The module knows PTX's instructions on threads; it knows no Triton. Source: PTX ISA 8.7.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.frameworks.triton.ptx import (
    COMPARISONS,
    FLOATS,
    LOGIC,
    NAN,
    NEAREST,
    PtxStep,
    operand_names,
    steps_of,
    unknown,
)

Words = NDArray[np.int64]
LANES, WORD = 32, 4  # threads of a warp, bytes of a number
SHARED_WORDS = 1 << 16
REGION = 1 << 40  # of addresses, one for each parameter
SKIPPED = ("bar", "ret", "membar", "fence")


@dataclass(frozen=True, slots=True)
class _Slot:
    """A register that depends on the data: its number among the values."""

    number: int


class ThreadProgram:
    """The kernel's first parameter is the input, the second the result, both of fp32.

    threads: of the CTA. sizes: numbers of the input and of the result. Raises UnsupportedError for an instruction that
    hwsim does not know.
    """

    def __init__(self, text: str, threads: int, sizes: tuple[int, int]) -> None:
        self._threads = np.arange(threads)
        self._sizes = sizes
        self._registers: dict[str, Any] = {}
        self._gathered: list[Words] = []  # places of the input, by value
        self._work: list[tuple[int, Callable[..., Any], tuple[int, ...]]] = []
        self._stores: list[tuple[Words, Any, int]] = []
        self._count = 0
        self._shared = False
        self._loads: list[int] = []
        for step in steps_of(text):
            if step.opcode.split(".")[0] not in SKIPPED and not step.opcode.startswith("$"):
                self._run(step)
        if not self._stores:
            raise unknown("no store")

    def __call__(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """The result, of numbers in the order of memory."""
        flat, result = np.ascontiguousarray(x).reshape(-1), np.zeros(self._sizes[1], np.float32)
        values: list[Any] = [None] * self._count
        if self._gathered:
            for number, row in zip(self._loads, flat[np.stack(self._gathered)], strict=True):
                values[number] = row
        memory = np.zeros(SHARED_WORDS if self._shared else 0, np.float32)
        with np.errstate(all="ignore"):
            for target, function, sources in self._work:
                outcome = function(memory, *[values[number] for number in sources])
                if target >= 0:
                    values[target] = outcome
        for places, mask, number in self._stores:
            result[places[mask]] = values[number][mask]
        codes = result.view(np.uint32)
        codes[np.isnan(result)] = NAN
        return result

    def _run(self, step: PtxStep) -> None:
        name, *parts = step.opcode.split(".")
        targets = operand_names(step.operands[0])
        guard = self._guard(step)
        if name == "st":
            self._store(parts, step, guard)
        elif name == "ld" and parts[0] == "param":
            self._registers[targets[0]] = np.int64((1 + int(step.operands[1].strip("[] ").rsplit("_", 1)[1])) * REGION)
        elif name == "ld":
            self._load(parts, targets, step, guard)
        else:
            values = [self._value(text) for operand in step.operands[1:] for text in operand_names(operand)]
            if any(isinstance(x, _Slot) for x in values):
                result: Any = self._of_data(name, parts, values)
            else:
                result = self._of_words(name, parts, values)
            if not np.all(guard):
                before = self._registers.get(targets[0], np.int64(0))
                if isinstance(result, _Slot) or isinstance(before, _Slot):
                    result = self._chosen(guard, result, before)
                else:
                    result = np.where(guard, result, before)
            self._registers[targets[0]] = result

    def _guard(self, step: PtxStep) -> Any:
        if step.guard is None:
            return np.bool_(True)
        is_on = self._registers[step.guard[0]]
        if isinstance(is_on, _Slot):
            raise unknown("a predicate of the data")
        return np.asarray(is_on, bool) ^ step.guard[1]

    def _value(self, text: str) -> Any:
        if text.startswith("%tid.x"):
            return self._threads.astype(np.int64)
        if text.startswith(("%tid", "%ctaid")):
            return np.int64(0)
        if text.startswith("%"):
            if text not in self._registers:
                raise unknown(f"a register {text} that nothing writes")
            return self._registers[text]
        if text.startswith("0f"):
            return np.int64(int(text[2:], 16))
        if text in ("true", "false"):
            return np.bool_(text == "true")
        if text == "global_smem":
            return np.int64(0)
        try:
            return np.int64(int(text, 0))
        except ValueError:
            raise unknown(f"an operand {text}") from None

    def _places(self, step: PtxStep, operand: int) -> Words:
        """The words of an address within its parameter's array, or within shared memory."""
        parts = [self._value(text) for text in operand_names(step.operands[operand])]
        if any(isinstance(x, _Slot) for x in parts):
            raise unknown("an address of the data")
        address = sum(parts, np.int64(0)) + np.zeros(len(self._threads), np.int64)
        words: Words = address % REGION // WORD
        return words

    def _load(self, parts: list[str], targets: list[str], step: PtxStep, guard: Any) -> None:
        if parts[-1] not in ("b32", "f32"):
            raise unknown(step.opcode)
        places = self._places(step, 1)
        for offset, target in enumerate(targets):
            if parts[0] == "global":
                wanted = np.where(guard, places + offset, 0)
                self._gathered.append(wanted)
                slot = self._new()
                self._loads.append(slot.number)
            else:
                self._shared = True
                slot = self._added(lambda memory, index=places + offset: memory[index], ())
            before = self._registers.get(target)
            self._registers[target] = slot if np.all(guard) or before is None else self._chosen(guard, slot, before)

    def _store(self, parts: list[str], step: PtxStep, guard: Any) -> None:
        if parts[-1] not in ("b32", "f32"):
            raise unknown(step.opcode)
        places = self._places(step, 0)
        mask = np.broadcast_to(guard, places.shape)
        for offset, text in enumerate(operand_names(step.operands[1])):
            slot = self._value(text)
            if not isinstance(slot, _Slot):
                raise unknown("a store of what is no data")
            if parts[0] == "global":
                self._stores.append((places + offset, mask, slot.number))
            else:
                self._shared = True
                index = (places + offset)[mask]

                def keep(memory: Any, value: Any, index: Any = index, mask: Any = mask) -> None:
                    memory[index] = value[mask]

                self._work.append((-1, keep, (slot.number,)))

    def _of_data(self, name: str, parts: list[str], values: list[Any]) -> _Slot:
        if name == "shfl":
            source = self._partners(parts[1], values[1:])
            return self._added(lambda _, x: x[source], (values[0].number,))
        if name == "mov":
            return values[0]
        if name == "selp" and not isinstance(values[2], _Slot):
            return self._chosen(np.asarray(values[2], bool), values[0], values[1])
        if parts[-1] == "f32" and name in FLOATS and NEAREST.issuperset(parts) and "ftz" not in parts:
            function = FLOATS[name]
            slots = tuple(self._slot(x).number for x in values)
            return self._added(lambda _, *operands: function(*operands), slots)
        raise unknown(".".join([name, *parts]))

    def _partners(self, mode: str, values: list[Any]) -> Words:
        """The thread whose value each thread gets."""
        lane, first = self._threads % LANES, self._threads // LANES * LANES
        if any(isinstance(x, _Slot) for x in values) or int(np.max(values[1])) >> 8:
            raise unknown("a shuffle in parts of a warp")
        by = values[0]
        other = {"bfly": lane ^ by, "up": lane - by, "down": lane + by, "idx": lane * 0 + by}.get(mode)
        if other is None:
            raise unknown(f"shfl.{mode}")
        return np.asarray(first + np.where((other < 0) | (other >= LANES), lane, other))

    def _chosen(self, mask: Any, chosen: Any, other: Any) -> _Slot:
        slots = (self._slot(chosen).number, self._slot(other).number)
        return self._added(lambda _, x, y: np.where(mask, x, y), slots)

    def _slot(self, value: Any) -> _Slot:
        """A value as data; numbers are the codes of constants."""
        if isinstance(value, _Slot):
            return value
        constant = (np.asarray(value, np.int64) & 0xFFFFFFFF).astype(np.uint32).view(np.float32)
        array = np.broadcast_to(constant, self._threads.shape)
        return self._added(lambda _: array, ())

    def _new(self) -> _Slot:
        self._count += 1
        return _Slot(self._count - 1)

    def _added(self, function: Callable[..., Any], sources: tuple[int, ...]) -> _Slot:
        slot = self._new()
        self._work.append((slot.number, function, sources))
        return slot

    @staticmethod
    def _of_words(name: str, parts: list[str], values: list[Any]) -> Any:
        kind = parts[-1] if parts else ""
        is_logic = name in ("and", "or", "not", "xor") and all(np.asarray(x).dtype == bool for x in values)
        if (kind == "pred" or is_logic) and name in LOGIC:
            return LOGIC[name](*(np.asarray(x, bool) for x in values))
        if name == "mov":
            return values[0]
        if name == "selp":
            return np.where(values[2], values[0], values[1])
        if name == "cvt":
            return _typed(_typed(values[0], parts[-1]), parts[-2])
        if name == "setp":
            comparison = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(parts[0], parts[0])
            return COMPARISONS[comparison](_typed(values[0], kind), _typed(values[1], kind))
        operation = _WHOLE.get(f"{name}.{parts[0]}" if parts[0] in ("lo", "wide") else name)
        if operation is None or kind[:1] not in "bus":
            raise unknown(".".join([name, *parts]))
        wide = parts[0] == "wide"
        return _typed(operation(*(_typed(x, kind) for x in values)), f"{kind[0]}64" if wide else kind)


def _typed(x: Any, kind: str) -> Any:
    """Words wrapped to a type of PTX: u32, s32, b32, u64, s64."""
    bits = int(kind[1:])
    if bits >= 64:
        return np.asarray(x, np.int64)
    wrapped = np.asarray(x, np.int64) & ((1 << bits) - 1)
    return np.where(wrapped >> (bits - 1), wrapped - (1 << bits), wrapped) if kind[0] == "s" else wrapped


_WHOLE: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "neg": np.negative,
    "shl": np.left_shift,
    "shr": np.right_shift,
    "min": np.minimum,
    "max": np.maximum,
    "bfe": lambda x, first, length: x >> first & ((np.int64(1) << length) - 1),
    "mul.lo": np.multiply,
    "mul.wide": np.multiply,
    "mad.lo": lambda x, y, z: x * y + z,
    "mad.wide": lambda x, y, z: x * y + z,
}
