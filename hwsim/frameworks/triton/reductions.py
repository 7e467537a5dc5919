"""Sums and scans of a compiled kernel: in which order the threads of its layout take the numbers.

The module finds them in Triton's GPU dialect and lets Triton's compiler lower each one alone, in its layout; it knows
no interpreter.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwsim.errors import UnsupportedError
from hwsim.frameworks.triton.array_text import addressed, loaded, stored
from hwsim.frameworks.triton.compiler import gpu_assembly
from hwsim.frameworks.triton.ptx_threads import ThreadProgram
from hwsim.frameworks.triton.targets import TritonTarget
from hwsim.frameworks.triton.ttgir import LOCATION

OPENING = re.compile(r'^\s*%([\w#]+)(?::\d+)? = "tt\.(reduce|scan)"\(%([\w#]+)\) <\{axis = (\d+) : i32(.*)\}> \(\{$')
CLOSING = re.compile(r"^\s*\}\) : \((tensor<[^)]*>)\) -> (.*?) loc\((.*)\)$")
TENSOR = re.compile(r"tensor<((?:\d+x)*)(\w+)(?:, (.*))?>$")
RESHAPE = re.compile(r"^\s*%([\w#]+) = tt\.reshape %[\w#]+ ([^:]*): (tensor<.*>) -> (tensor<.*>) loc")
ALIAS = re.compile(r"^(#\w+) = (.*)$")
PLACE = re.compile(r'"([^"]+)":(\d+):\d+')
BLOCK = re.compile(r"loc\((?:[^()]|\([^()]*\))*\)")
MODULE = re.compile(r"^module attributes \{.*\} \{", re.MULTILINE)
SourceLine = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ReductionSite:
    """A sum or scan of a kernel. kind: reduce or scan. shape: of what the frontend takes; axis of it, or None: of all.
    reverse: of a scan. places: files and lines of its calls, the innermost first. text: a kernel with it alone.
    """

    kind: str
    shape: tuple[int, ...]
    axis: int | None
    reverse: bool
    places: tuple[SourceLine, ...]
    text: str
    threads: int
    results: int


def sites_of(ttgir: str) -> list[ReductionSite]:
    """The sums and scans of fp32 numbers of a kernel."""
    lines = ttgir.splitlines()
    aliases = {matched[1]: matched[2] for line in lines if (matched := ALIAS.match(line))}
    layouts = [line for line in lines if ALIAS.match(line) and not line.startswith("#loc")]
    head = MODULE.search(ttgir)
    warps, lanes = (re.search(rf'"ttg\.{name}" = (\d+)', ttgir) for name in ("num-warps", "threads-per-warp"))
    if head is None or warps is None or lanes is None:
        return []
    reshaped = {m[1]: (m[2].strip(), m[3], m[4]) for line in lines if (m := RESHAPE.match(line))}
    sites = []
    for number, line in enumerate(lines):
        opening = OPENING.match(line)
        if opening is None:
            continue
        _, kind, source, axis, further = opening.groups()
        end = next(i for i in range(number, len(lines)) if lines[i].lstrip().startswith("})"))
        closing = CLOSING.match(lines[end])
        if closing is None:
            continue
        operand, result, location = closing.groups()
        region = _renamed([BLOCK.sub("", LOCATION.sub("", x)) for x in lines[number + 1 : end]])
        moved = reshaped.get(source)
        first = _tensor(moved[1] if moved else operand)
        if first is None or first[1] != "f32":
            continue
        out = _tensor(result)
        body = loaded("x", "f32", first[0], first[2])
        value = "%x_value"
        if moved:
            body.append(f"%flat = tt.reshape {value} {moved[0]} : {moved[1]} -> {moved[2]}")
            value = "%flat"
        body.append(f'%r = "tt.{kind}"({value}) <{{axis = {axis} : i32{further}}}> ({{')
        body += [*region, f"}}) : ({operand}) -> {result}"]
        if out is None:
            body.append("tt.store %d, %r : !tt.ptr<f32>")
        else:
            body += [*addressed("d", "f32", out[0], out[2]), stored("d", "%r", "f32", out[0], out[2])]
        body.append("tt.return")
        text = "\n".join([
            *layouts,
            head[0],
            "tt.func public @kernel(%x: !tt.ptr<f32> {tt.divisibility = 16 : i32},"
            " %d: !tt.ptr<f32> {tt.divisibility = 16 : i32}) attributes {noinline = false} {",
            *body,
            "}",
            "}",
        ])  # fmt: skip
        is_flat = moved is not None and first[0] != (_tensor(moved[2]) or first)[0]
        sites.append(
            ReductionSite(
                kind,
                first[0],
                None if is_flat else int(axis),
                reverse="reverse = true" in further,
                places=tuple(_places(location, aliases)),
                text=text,
                threads=int(warps[1]) * int(lanes[1]),
                results=math.prod(out[0]) if out else 1,
            )
        )
    return sites


@lru_cache(512)
def program_of(site: ReductionSite, target: TritonTarget) -> ThreadProgram:
    """What its threads do. Raises UnsupportedError where hwsim cannot tell."""
    warps = site.threads // target.warp_size
    assembly = gpu_assembly(site.text, warps, target)
    if ".entry" not in assembly:
        raise UnsupportedError(f"sums of threads on {target.backend}: hwsim knows PTX alone")
    return ThreadProgram(assembly, site.threads, (math.prod(site.shape), site.results))


class ThreadSums:
    """The sums and scans of the kernel that runs."""

    def __init__(self, sites: list[ReductionSite], target: TritonTarget) -> None:
        self._sites, self._target = sites, target

    def __call__(
        self, kind: str, x: NDArray[Any], axis: int | None, reverse: bool, places: list[SourceLine]
    ) -> NDArray[np.float32] | None:
        """The numbers in order, for the caller to shape; None where the kernel has no such sum, or several that differ.

        places: files and lines of the calls, the innermost first. The sum is the one that shares most of them.
        """
        like = [site for site in self._sites if (site.kind, site.shape, site.reverse) == (kind, x.shape, reverse)]
        like = [site for site in like if site.axis == axis or (axis is None and len(site.shape) == 1)]
        calls = set(places)
        shared = [len(calls.intersection(site.places)) for site in like]
        here = [site for site, count in zip(like, shared, strict=True) if count == max(shared)]
        if not here or any(site.text != here[0].text for site in here):
            return None
        try:
            return program_of(here[0], self._target)(x)
        except UnsupportedError:
            return None


def _renamed(lines: list[str]) -> list[str]:
    """Lines with their values numbered, so that the same text means the same sum."""
    names: dict[str, str] = {}
    return [re.sub(r"%\w+", lambda m: names.setdefault(m[0], f"%v{len(names)}"), line) for line in lines]


def _tensor(text: str) -> tuple[tuple[int, ...], str, str] | None:
    matched = TENSOR.match(text)
    if matched is None:
        return None
    return tuple(int(size) for size in matched[1].split("x") if size), matched[2], matched[3] or ""


def _places(location: str, aliases: dict[str, str]) -> list[SourceLine]:
    """Files and lines of a location, the innermost call first."""
    for _ in range(64):
        known = [name for name in re.findall(r"#loc\d*", location) if name in aliases]
        if not known:
            break
        location = re.sub(r"#loc\d*", lambda m: aliases.get(m[0], ""), location)
    return [(file, int(line)) for file, line in PLACE.findall(location)]
