"""What runs a product: settings of the forward pass and of the two gradients, for each layer by name patterns.

Settings have a key, by which operators name them inside compiled graphs. The module knows the arguments of `hwsim.run`;
it knows no framework.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Literal, Protocol

from hwsim.devices import load
from hwsim.devices.device import Device
from hwsim.errors import InputError, nearest
from hwsim.formats import format_of
from hwsim.frameworks.repeated import Repeated
from hwsim.operands.powers import FP32, largest_number
from hwsim.request.declarations import DEFAULT_DEVICE, DEFAULT_SCHEME
from hwsim.request.options import OWNERS, option_names, sort_by_owner
from hwsim.schemes import Scheme, scheme_of

PassName = Literal["forward", "backward_input", "backward_weight"]
STAGES: tuple[PassName, ...] = ("forward", "backward_input", "backward_weight")
PLAIN = "plain"  # PyTorch's own product
POWER_OF_TWO = "power-of-two"
#: Arguments of `hwsim.run` that each product has of its own.
TAKEN = (
    *("a", "b", "c", "m", "n", "k", "exact", "timing", "rows", "cols", "shape", "at", "conv", "gemm", "alpha", "beta"),
    *("bias", "output", "input_format", "a_layout", "b_layout", "progress"),
)
OWN = ("gradient_format", "scale")
SHOWN_LAYERS = 6  # of a model, where a pattern matches none
Given = Mapping[str, Any] | str | None


class FrameworkSwitches(Protocol):
    """A framework's own switches, at one moment."""

    @property
    def text(self) -> str:
        """All of them in one line."""

    def arguments(self, chosen: PassSettings, place: Any, operand: str) -> Mapping[str, Any]:
        """What they make of a product's arguments. operand: format of the operands."""

    def left_out(self, chosen: PassSettings, place: Any, operand: str) -> str:
        """Which kernel of a product is not known, in words; "": none."""


@dataclass(frozen=True, eq=False)
class PassSettings:
    """How the products of one pass are computed.

    arguments: of `hwsim.run`, with the device and the scheme loaded; None: PyTorch's own product. gradient_format:
    format of the operand that is a gradient, where it differs from `format`. scale: "power-of-two": each operand is
    first multiplied by the power of two that brings its largest value just below the format's largest one, and the
    result divided by both. repeated: what its products were resolved to.
    """

    arguments: Mapping[str, Any] | None
    gradient_format: str | None = None
    scale: str | None = None
    repeated: Repeated = field(default_factory=Repeated, repr=False)

    @property
    def text(self) -> str:
        """The settings in one line, equal where they compute the same."""
        if self.arguments is None:
            return PLAIN
        device, scheme = self.arguments["device"], self.arguments["scheme"]
        rest = sorted((k, v) for k, v in self.arguments.items() if k not in ("device", "scheme"))
        more = [f"{name}={value}" for name, value in rest if value is not None]
        more += [f"{name}={getattr(self, name)}" for name in OWN if getattr(self, name) is not None]
        return " ".join([device.name, f"(file {device.sha256[:12]}), scheme", scheme.name, *more])


@dataclass(frozen=True, eq=False)
class Settings:
    """The settings of all layers: the first pattern that a layer's name matches, else `base`.

    base: by pass. patterns: (pattern as of fnmatch, settings by pass). switches: of the framework, as they stood when
    the settings were made. key: equal for settings that compute the same.
    """

    base: Mapping[PassName, PassSettings]
    patterns: tuple[tuple[str, Mapping[PassName, PassSettings]], ...] = ()
    switches: FrameworkSwitches | None = None
    key: str = field(default="", init=False)

    def __post_init__(self) -> None:
        parts = [self.base[stage].text for stage in STAGES]
        for pattern, passes in self.patterns:
            parts += [pattern, *(passes[stage].text for stage in STAGES)]
        parts += [] if self.switches is None else [self.switches.text]
        object.__setattr__(self, "key", hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16])

    def __repr__(self) -> str:
        return f"<{'; '.join(describe(self).splitlines())}>"

    def of(self, layer: str, stage: PassName) -> PassSettings:
        """The settings of one pass of a layer (a module's qualified name; "" for products outside of modules)."""
        return _passes(self, layer)[stage]

    def unused_patterns(self, layers: Iterable[str], reached: Iterable[str] | None = None) -> list[str]:
        """A sentence for each pattern that holds for none of these layers, and not for "" either; where `reached` is
        given, also for each that holds for containers alone. reached: layers with calls that the settings decide.
        """
        names = dict.fromkeys(["", *layers])
        patterns = [pattern for pattern, _ in self.patterns]
        first = {name: next((p for p in patterns if fnmatchcase(name, p)), None) for name in names}
        decided = frozenset(() if reached is None else reached)
        sentences = []
        for pattern in patterns:
            taken_here = [name for name in names if first[name] == pattern]
            if taken_here:
                if reached is not None and self._misses_what_is_below(taken_here, decided):
                    is_one = len(taken_here) == 1
                    what = "a module without products of its own" if is_one else "modules without products of their own"
                    below = f"{pattern}.*" if pattern else "*"
                    sentences.append(
                        f"modules[{pattern!r}] does nothing: it matches {what}; {below!r} takes what is below it"
                    )
                continue
            before = {taken for name, taken in first.items() if fnmatchcase(name, pattern)}
            if before:
                why = f"earlier patterns take its modules: {', '.join(sorted(map(repr, before)))}; put it first"
            else:
                modules = [name for name in names if name]
                shown = ", ".join(map(repr, modules[:SHOWN_LAYERS])) or "none"
                more = ", ..." if len(modules) > SHOWN_LAYERS else ""
                why = f"it matches no module; modules here: {shown}{more}{nearest(pattern, modules)}"
            sentences.append(f"modules[{pattern!r}] does nothing: {why}")
        return sentences

    def _misses_what_is_below(self, containers: Sequence[str], decided: Set[str]) -> bool:
        """Whether nothing of these layers is decided by settings, and a layer below them has other settings."""
        if not decided.isdisjoint(containers):
            return False
        return any(
            layer.startswith(f"{name}." if name else "") and self._text(layer) != self._text(name)
            for name in containers
            for layer in decided
        )

    def _text(self, layer: str) -> list[str]:
        return [self.of(layer, stage).text for stage in STAGES]


@lru_cache(maxsize=1 << 14)
def _passes(settings: Settings, layer: str) -> Mapping[PassName, PassSettings]:
    return next((passes for pattern, passes in settings.patterns if fnmatchcase(layer, pattern)), settings.base)


def settings_of(
    arguments: Mapping[str, Any],
    modules: Mapping[str, Given] | None = None,
    switches: FrameworkSwitches | None = None,
) -> Settings:
    """Settings from the arguments of a framework's `emulate`.

    arguments: as of `hwsim.run`, gradient_format and scale, for all passes, and by the name of a pass what differs
    in it: a mapping, or "plain". modules: {name pattern: the arguments of such layers instead, or "plain"}.
    switches: of the framework.
    Raises InputError for names that are no arguments, and what loading a device or scheme raises.
    """
    base = _by_stage(arguments, "")
    patterns = []
    for pattern, module_options in (modules or {}).items():
        where = f"modules[{pattern!r}]"
        if module_options is None or module_options == PLAIN:
            by_stage: dict[PassName, PassSettings] = dict.fromkeys(STAGES, PassSettings(None))
        else:
            by_stage = _by_stage(_mapping(module_options, where), where)
        patterns.append((pattern, by_stage))
    return Settings(base, tuple(patterns), switches)


def _mapping(value: Given, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"{where}: got {value!r}; allowed: a mapping of arguments of hwsim.run, or {PLAIN!r}")
    return value


def _by_stage(arguments: Mapping[str, Any], where: str) -> dict[PassName, PassSettings]:
    common = {name: value for name, value in arguments.items() if name not in STAGES}
    _check_names(common, where, common)
    settings: dict[PassName, PassSettings] = {}
    for stage in STAGES:
        stage_options = arguments.get(stage)
        if stage_options == PLAIN:
            settings[stage] = PassSettings(None)
            continue
        overrides = {} if stage_options is None else _mapping(stage_options, stage)
        _check_names(overrides, f"{where} {stage}".strip(), {**common, **overrides})
        settings[stage] = _of_pass({**common, **overrides}, f"{where} {stage}".strip())
    return settings


def _check_names(arguments: Mapping[str, Any], where: str, call: Mapping[str, Any]) -> None:
    """Raises InputError for a name that is no argument. call: with the scheme, whose object may have options of its
    own.
    """
    unknown = [name for name in arguments if name not in (*OWNERS, *TAKEN, *OWN, "device", "scheme")]
    if not unknown:  # looking for further ones takes longer than most calls need
        return
    scheme = call.get("scheme")
    of_object = [option.name for option in scheme.options] if isinstance(scheme, Scheme) else []
    allowed = sorted({*option_names(), *OWN, "device", "scheme", *of_object, *STAGES})
    for name in unknown:
        if name not in allowed:
            said = f"no argument {name!r}; allowed: arguments of hwsim.run{nearest(name, allowed)}"
            raise InputError(f"{where}: {said}" if where else said)


def _of_pass(arguments: Mapping[str, Any], where: str) -> PassSettings:
    reserved = [name for name in TAKEN if name in arguments]
    if reserved:
        raise InputError(f"{where}: {', '.join(reserved)}: each product has its own; leave it out")
    scheme = arguments.get("scheme") or DEFAULT_SCHEME
    scheme_object = scheme_of(scheme) if isinstance(scheme, str) else scheme
    assert isinstance(scheme_object, Scheme)
    of_scheme = {option.name for option in scheme_object.options}  # may have a scale of its own
    of_framework = [name for name in OWN if name not in of_scheme]
    full = {name: value for name, value in arguments.items() if value is not None and name not in of_framework}
    full |= {"device": load(full.get("device", DEFAULT_DEVICE)), "scheme": scheme_object}
    sort_by_owner({name: value for name, value in full.items() if name not in ("device", "scheme")}, scheme_object)
    full |= {**scheme_object.values, "scheme": scheme_object.bare}
    scale, gradient = (arguments.get(name) if name in of_framework else None for name in ("scale", "gradient_format"))
    if scale not in (None, POWER_OF_TWO):
        raise InputError(
            f"{where}: scale={scale!r}; allowed: None, {POWER_OF_TWO!r}{nearest(str(scale), [POWER_OF_TWO])}"
        )
    if (scale or gradient) and full.get("format") is None:
        name = "scale" if scale else "gradient_format"
        raise InputError(f"{where}: {name} needs format=, of the operands that are no gradients")
    taken_formats = [full.get("format"), full.get("format_b"), gradient]
    wide = [name for name in taken_formats if name and largest_number(format_of(name)) > largest_number(FP32)]
    if scale and wide:
        raise InputError(
            f"{where}: scale with format {wide[0]}: operands are scaled in fp32, whose range is smaller; leave scale "
            "out"
        )
    return PassSettings(full, gradient, scale)


def describe(settings: Settings) -> str:
    """The settings of the three passes in words."""
    lines = [f"{stage}: {settings.base[stage].text}" for stage in STAGES]
    if len({line.partition(": ")[2] for line in lines}) == 1:
        lines = [settings.base["forward"].text]
    return "\n".join([*lines, *([] if settings.switches is None else [settings.switches.text])])


__all__ = ["PLAIN", "STAGES", "Device", "PassSettings", "Settings", "PassName", "describe", "settings_of"]
