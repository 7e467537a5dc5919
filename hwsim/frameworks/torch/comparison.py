"""`hwsim.torch.compare`: what a model's output is on several devices: distances, divergence, changed answers.

The module runs a model and compares its outputs; how products are computed, and how a page looks, is others'.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hwsim._version import __version__ as hwsim_version
from hwsim.errors import InputError
from hwsim.frameworks.settings import PLAIN, describe
from hwsim.frameworks.torch.emulation import step_by_step
from hwsim.frameworks.torch.forward_pass import called, forward_pass
from hwsim.frameworks.torch.run_steps import digest
from hwsim.report.page.comparison_page import comparison_page
from hwsim.report.text.words import percent

PLAIN_SETTINGS = (
    "PyTorch's own kernels on this computer, for all operators: their orders of summation are no simulated chip's"
)
VERSIONS = ("hwsim", "pytorch")
SCHEMA = "hwsim.comparison/2"
LOGITS = "logits"  # an attribute of outputs of Hugging Face's models


@dataclass(frozen=True)
class OutputPair:
    """Outputs of two sides, by their names.

    distance: ||right - left|| / ||left||, Frobenius norms. largest: of the differences, relative to the largest value.
    differing: the share of elements with other bits. divergence, largest_divergence: Kullback-Leibler divergence of the
    softmax along the last dimension, in nats, on average over positions and at most. flips: positions whose largest
    element is another one, of `positions`.
    """

    left: str
    right: str
    distance: float
    largest: float
    differing: float
    divergence: float
    largest_divergence: float
    flips: int
    positions: int


@dataclass(frozen=True)
class OutputSide:
    """One way of running the model. settings: in words. remarks: as its report has them. output: fp64. is_predicted:
    False where a library was asked and no product is in its known order.
    """

    name: str
    settings: str
    remarks: tuple[str, ...]
    output: torch.Tensor
    is_predicted: bool = True

    @property
    def digest(self) -> str:
        """Equal for outputs of equal shapes and values."""
        return digest_of(self.output)


@dataclass(frozen=True)
class Comparison:
    """The answer of `compare`: the sides in order, and each pair of them. inputs, weights: digests of what the model
    was called with, and of its parameters and buffers ("": a function).
    """

    sides: tuple[OutputSide, ...]
    pairs: tuple[OutputPair, ...]
    inputs: str = ""
    weights: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data: of outputs, inputs and weights the digests."""
        sides = [
            {
                "name": s.name,
                "settings": s.settings,
                "remarks": list(s.remarks),
                "is_predicted": s.is_predicted,
                "output": s.digest,
            }
            for s in self.sides
        ]
        about = {"inputs": self.inputs, "weights": self.weights, "hwsim": hwsim_version, "pytorch": torch.__version__}
        pairs = [asdict(pair) for pair in self.pairs]
        return {"schema": SCHEMA, **about, "sides": sides, "pairs": pairs}

    def differences(self, saved: str | Path | Mapping[str, Any]) -> list[str]:
        """What differs from a saved comparison, in sentences; []: inputs, weights, settings and outputs are the same.
        Other versions alone are no difference, and are named beside one.

        saved: FILE.json, which `write` puts beside its page, or what `to_dict` gave. Raises InputError for a file that
        cannot be read, or holds no comparison of this schema.
        """
        former, current = _saved(saved), self.to_dict()
        sentences = [f"{name} differ" for name in ("inputs", "weights") if former[name] != current[name]]
        names = [[side["name"] for side in each["sides"]] for each in (former, current)]
        if names[0] != names[1]:
            sentences.append(f"sides: {', '.join(names[0])} there, {', '.join(names[1])} here")
        else:
            for there, here in zip(former["sides"], current["sides"], strict=True):
                if there["settings"] != here["settings"]:
                    sentences.append(f"{here['name']}: settings {there['settings']} there, {here['settings']} here")
                if there["output"] != here["output"]:
                    sentences.append(f"{here['name']}: outputs have other bits")
        others = [f"{key} {former[key]} there, {current[key]} here" for key in VERSIONS if former[key] != current[key]]
        return [*sentences, *others] if sentences else []

    def write(self, path: str | Path) -> None:
        """Write the page of the comparison, one HTML file."""
        comparison_page(self.to_dict()).write(path)

    def __str__(self) -> str:
        lines = []
        for side in self.sides:
            lines += [f"{side.name}: {side.settings}", *(f"  {remark}" for remark in side.remarks)]
        lines.append(
            f"{'outputs':<40} {'distance':>10} {'largest':>10} {'differing':>10} {'KL':>10} {'largest KL':>10} "
            f"{'top-1 flips':>22}"
        )
        for pair in self.pairs:
            name, flips = f"{pair.left} and {pair.right}", f"{pair.flips} of {pair.positions}"
            lines.append(
                f"{name:<40} {pair.distance:>10.2e} {pair.largest:>10.2e} {percent(pair.differing):>10} "
                f"{pair.divergence:>10.2e} {pair.largest_divergence:>10.2e} {flips:>22}"
            )
        return "\n".join(lines)


def compare(model: Callable[..., Any], x: Any, *sides: str | Mapping[str, Any], **common: Any) -> Comparison:
    """Run a model's forward pass in several ways, and compare its outputs: logits, or any tensor.

    Args:
        model: a module in eval mode, or a function. Its output is a tensor, has one named `logits`, or begins with one.
        x: a tensor, a tuple of arguments, or a mapping of keyword arguments.
        sides: devices, mappings of arguments of `emulate`, or "plain" for PyTorch's own products; at least two.
        common: arguments of all of them.

    Raises:
        InputError: fewer than two sides, an output without a tensor, or a pattern of `modules` that matches
            no module; and as `emulate`.
    """
    if len(sides) < 2:
        raise InputError(f"compare: {len(sides)} sides; allowed: at least two devices, mappings, or {PLAIN!r}")
    if wrong := next((side for side in sides if not isinstance(side, str | Mapping)), None):
        raise InputError(f"compare: a side is {wrong!r}; allowed: a device, a mapping of arguments, or {PLAIN!r}")
    names = _names(sides)
    here: dict[str, set[str]] = {}
    inputs = digest_of(x)  # before the model may change them
    weights = digest_of(_tensors(model)) if isinstance(model, torch.nn.Module) else ""
    state = torch.get_rng_state()
    runs = []
    for number, side in enumerate(sides):
        torch.set_rng_state(state)
        name = names[number]
        if side == PLAIN:
            with torch.no_grad(), step_by_step():
                runs.append(OutputSide(name, PLAIN_SETTINGS, (), _output(called(model, x))))
            continue
        arguments = {"device": side} if isinstance(side, str) else side
        with forward_pass(model, **{**common, **arguments}) as run:
            output = _output(called(model, x))
        remarks = tuple(run.record.remarks())
        here[name] = set(run.record.here)
        settings = "; ".join(describe(run.settings).splitlines())
        runs.append(OutputSide(name, settings, remarks, output, run.record.verdict.is_predicted))
    runs = [replace(run, remarks=(*run.remarks, *_unlike_functions(run.name, here))) for run in runs]
    if len({tuple(run.output.shape) for run in runs}) > 1:
        raise InputError(f"compare: outputs of shapes {[tuple(run.output.shape) for run in runs]}; they must be alike")
    pairs = tuple(_pair(left, right) for index, left in enumerate(runs) for right in runs[index + 1 :])
    return Comparison(tuple(runs), pairs, inputs, weights)


def _tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """All parameters and buffers, also the ones that a state_dict leaves out."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def digest_of(value: Any) -> str:
    """A digest of tensors and arrays, and of sequences and mappings of them, with their names, dtypes and shapes."""
    state = hashlib.sha256()
    if isinstance(value, torch.Tensor):
        state.update(f"{value.dtype} {tuple(value.shape)} ".encode())
        state.update(digest(value.cpu()))
    elif isinstance(value, np.ndarray):
        state.update(f"{value.dtype} {value.shape} ".encode())
        state.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, Mapping):
        for name, part in value.items():
            state.update(f"{name} {digest_of(part)} ".encode())
    elif isinstance(value, tuple | list):
        state.update(" ".join(map(digest_of, value)).encode())
    else:
        state.update(repr(value).encode())
    return state.hexdigest()


def _saved(saved: str | Path | Mapping[str, Any]) -> Mapping[str, Any]:
    """A saved comparison. Raises InputError where it is none."""
    if isinstance(saved, Mapping):
        data: Any = saved
    else:
        try:
            data = json.loads(Path(saved).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"{saved}: {error}; give the .json that stands beside a comparison's page") from error
    schema = data.get("schema") if isinstance(data, Mapping) else None
    needed = ("inputs", "weights", *VERSIONS, "sides")
    if schema != SCHEMA or any(name not in data for name in needed):
        shown = saved if isinstance(saved, str | Path) else "saved"
        raise InputError(
            f"{shown}: no comparison with digests, its schema is {schema!r}; allowed: {SCHEMA!r}, what "
            "Comparison.write or to_dict gave; write the comparison anew"
        )
    return data


def _unlike_functions(name: str, here: Mapping[str, set[str]]) -> list[str]:
    """A line for each other side on which a chip's kernel computed what this CPU computed on the side `name`.

    here: by side, names of operators without products that this CPU computed.
    """
    lines = []
    for other, of_other in here.items():
        if name in here and (unlike := sorted(here[name] - of_other)):
            lines.append(
                f"not alike: {', '.join(unlike)} by this CPU here, as the chip's kernel with {other}; this computer's "
                "bits are in the distance"
            )
    return lines


def _names(sides: Sequence[str | Mapping[str, Any]]) -> list[str]:
    """A name for each side: its device and what else it says; equal ones are numbered."""
    plain = []
    for side in sides:
        words = [side] if isinstance(side, str) else [str(side["device"])] if "device" in side else []
        if not isinstance(side, str):
            words += [v if isinstance(v, str) else f"{k}={v}" for k, v in side.items() if k != "device"]
        plain.append(" ".join(words) or "defaults")
    return [f"{name} ({index + 1})" if plain.count(name) > 1 else name for index, name in enumerate(plain)]


def _output(value: Any) -> torch.Tensor:
    """The logits of a model's output, in fp64."""
    output = getattr(value, LOGITS, value)
    while isinstance(output, tuple | list) and output:
        output = output[0]
    if not isinstance(output, torch.Tensor):
        first = getattr(output, "last_hidden_state", None)
        if not isinstance(first, torch.Tensor):
            raise InputError(
                f"compare: the model gives {type(value).__name__}; allowed: a tensor, something with one named "
                f"{LOGITS!r}, or a tuple that begins with one"
            )
        output = first
    return output.detach().double()


def _differ(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Which elements have other bits: zeros of other signs differ, NaNs do not."""
    same = (x == y) & (torch.signbit(x) == torch.signbit(y))
    return ~(same | (x.isnan() & y.isnan()))


def _pair(left: OutputSide, right: OutputSide) -> OutputPair:
    x, y = left.output, right.output
    size, largest = float(torch.linalg.vector_norm(x)), float(x.abs().max()) if x.numel() else 0.0
    rows = (x.reshape(-1, x.shape[-1]), y.reshape(-1, y.shape[-1])) if x.dim() else (x.reshape(1, 1), y.reshape(1, 1))
    first, second = (torch.log_softmax(row, -1) for row in rows)
    divergence = (first.exp() * (first - second)).sum(-1).clamp_min(0)
    flips = int((rows[0].argmax(-1) != rows[1].argmax(-1)).sum())
    return OutputPair(
        left.name,
        right.name,
        distance=float(torch.linalg.vector_norm(y - x)) / size if size else 0.0,
        largest=float((y - x).abs().max()) / largest if largest else 0.0,
        differing=float(_differ(x, y).double().mean()) if x.numel() else 0.0,
        divergence=float(divergence.mean()),
        largest_divergence=float(divergence.max()),
        flips=flips,
        positions=len(rows[0]),
    )


__all__ = ["Comparison", "OutputPair", "OutputSide", "compare"]
