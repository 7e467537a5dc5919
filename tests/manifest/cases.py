"""The manifest's cases: calls of hwsim's public interface as plain data, and how to make one.

A case is {"id", "call", "arrays": {name: {format, shape, kind}}, "keywords"}, ready for JSON. Arrays are bit fields,
their seed the case's id and their name: adding, removing or moving cases changes no other. Devices, formats and schemes
are named here and not asked for, so that one that gets lost is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from bitfields import TYPED, Array, array, codes, seed_of

Case = dict[str, Any]
Sizes = tuple[int, int, int]  # m, n, k

AMPERE = "fp16 bf16 tf32 fp64 int8 int4 fp32"
HOPPER = "fp16 bf16 tf32 e4m3 e5m2 fp64 int8 fp32"
BLACKWELL = "fp16 bf16 tf32 e4m3 e5m2 e3m2 e2m3 e2m1 fp64 int8 fp32"
ADA = "fp16 bf16 tf32 e4m3 e5m2 fp32 int8 int4"
CDNA2 = "fp16 bf16 fp32 fp64 int8"
ASCEND_B = "fp16 bf16 fp32 hf32 int8"
#: Native formats of each device.
FORMATS = {
    "a100": AMPERE,
    "a100pcie": AMPERE,
    "a2": "fp16 bf16 tf32 int8 int4 fp32",
    "a800": AMPERE,
    "ada": ADA,
    "ascend910a": "fp16 int8",
    "ascend910b1": ASCEND_B,
    "ascend910b3": ASCEND_B,
    "b200": BLACKWELL,
    "gb200": BLACKWELL,
    "h100": HOPPER,
    "h200": HOPPER,
    "l40s": ADA,
    "mi100": "fp16 bf16 fp32 int8",
    "mi210": CDNA2,
    "mi250": CDNA2,
    "mi300x": "fp16 bf16 tf32 e4m3fnuz e5m2fnuz fp32 fp64 int8",
    "rtx2080ti": "fp16 int8 int4 fp32",
    "rtx6000": "fp16 int8 int4 fp32",
    "rtxpro6000": BLACKWELL,
    "t4": "fp16 int8 int4 fp32",
    "tf64": AMPERE,
    "v100": "fp16 fp32",
}
DEVICES = tuple(FORMATS)
#: The same of devices that came after the first recording: their cases stand at its end.
FORMATS_LATER = {
    "a10": "fp16 bf16 tf32 int8 int4 fp32",
    "a40": "fp16 bf16 tf32 int8 int4 fp32",
    "b300": "fp16 bf16 tf32 e4m3 e5m2 e3m2 e2m3 e2m1 fp64 int8 fp32",
    "gb10": "fp16 bf16 tf32 e4m3 e5m2 e3m2 e2m3 e2m1 fp64 fp32 int8",
    "h100nvl": "fp16 bf16 tf32 e4m3 e5m2 fp64 int8 fp32",
    "h100pcie": "fp16 bf16 tf32 e4m3 e5m2 fp64 int8 fp32",
    "h20": "fp16 bf16 tf32 e4m3 e5m2 fp64 int8 fp32",
    "h800": "fp16 bf16 tf32 e4m3 e5m2 fp64 int8 fp32",
    "l4": "fp16 bf16 tf32 e4m3 e5m2 fp32 int8 int4",
    "l40": "fp16 bf16 tf32 e4m3 e5m2 fp32 int8 int4",
    "rtx3090": "fp16 bf16 tf32 int8 int4 fp32",
    "rtx4090": "fp16 bf16 tf32 e4m3 e5m2 fp32 int8 int4",
    "rtx5090": "fp16 bf16 tf32 e4m3 e5m2 e3m2 e2m3 e2m1 fp64 fp32 int8",
}
TIMED = tuple(x for x in DEVICES if x not in ("a2", "ada", "l40s", "mi100", "rtx2080ti", "rtx6000", "rtxpro6000"))
TIMED_LATER = ("l40s",)  # they got timing after the first recording: their cases stand at its end
#: Format that a device must have natively to carry the scheme.
SCHEMES = {
    "native": "",
    "sgemm-cube": "",
    "le-gemm": "",
    "bf16x9": "bf16",
    "bf16x6": "bf16",
    "bf16x3": "bf16",
    "ape-fp32-f": "",
    "ape-fp32-b": "bf16",
    "ape-fp32-t": "tf32",
    "ape-int16": "int8",
    "ape": "bf16",
    "tf32x1": "tf32",
    "tf32x3": "tf32",
    "tf32x4": "tf32",
    "tf64x1": "fp64",
    "tf64x3": "fp64",
    "tf64x4": "fp64",
    "markidis": "",
    "egemm-tc": "",
    "ootomo-fp16": "",
    "ootomo-tf32": "tf32",
    "quantensor": "int8",
    "ozaki-fp16": "",
    "ozaki-int8": "int8",
}
#: (kind of A, kind of B).
PAIRS = {
    "mid": ("mid", "mid"),
    "wide": ("wide", "wide"),
    "ties": ("ties", "mid"),
    "cancel": ("cancel", "pairs"),
    "tiny": ("subnormal", "large"),
    "subnormal": ("subnormal", "wide"),
    "large": ("large", "mid"),
    "special": ("special", "mid"),
    "infinite": ("mid", "infinite"),
    "zeros": ("zeros", "zeros"),
    "any": ("any", "mid"),
}
USUAL = ("mid", "wide", "ties", "cancel", "wide", "mid", "zeros")
SIZES: tuple[Sizes, ...] = (
    (17, 3, 67),
    (67, 33, 130),
    (1, 130, 67),
    (130, 17, 3),
    (3, 67, 1),
    (64, 48, 128),
    (33, 65, 193),
    (67, 1, 17),
    (1, 1, 257),
)


def cases() -> list[Case]:
    """All cases, in the manifest's order."""
    found: list[Case] = []
    for part in (
        _schemes,
        _native,
        _shapes,
        _specials,
        _scheme_options,
        _epilogues,
        _stacks,
        _layouts,
        _splits,
        _schedules,
        _subsets,
        _functional,
        _timing,
        _blocking,
        _clocks,
        _automatic,
        _instructions,
        _around,
        _refused,
        _timing_later,
        _unstaged,
        _spilled,
        _libraries,
        _native_later,
        _schemes_later,
    ):
        found += part()
    return found


def arrays_of(case: Case) -> dict[str, Array]:
    """The arrays of a case."""
    made: dict[str, Array] = {}
    for name, spec in case["arrays"].items():
        how = codes if spec.get("codes") else array
        made[name] = how(spec["format"], tuple(spec["shape"]), spec["kind"], seed_of(f"{case['id']} {name}"))
        if spec.get("order") == "F":
            made[name] = np.asfortranarray(made[name])
    return made


def keywords_of(case: Case) -> dict[str, Any]:
    """The keywords of a case; {"slice": [...]} and {"mask": [...]} become what they say."""
    return {name: _index(value) for name, value in case["keywords"].items()}


def group_of(identity: str) -> str:
    """The test that a case belongs to."""
    parts = identity.split("/")
    return "/".join(parts[:2]) if parts[0] in ("scheme", "native") else parts[0]


def _index(value: Any) -> Any:
    if isinstance(value, dict) and set(value) == {"slice"}:
        return slice(*value["slice"])
    if isinstance(value, dict) and set(value) == {"mask"}:
        return np.array(value["mask"], bool)
    return value


def _spec(fmt: str, shape: tuple[int, ...], kind: str, **more: Any) -> dict[str, Any]:
    return {"format": fmt, "shape": list(shape), "kind": kind, **more}


def _run(
    identity: str,
    size: Sizes | None,
    fmt: str = "fp32",
    pair: str = "mid",
    *,
    call: str = "run",
    lead: tuple[tuple[int, ...], tuple[int, ...]] = ((), ()),
    more: dict[str, Any] | None = None,
    **keywords: Any,
) -> Case:
    """A product of A (m, k) and B (k, n) of one format. lead: leading dimensions of both; more: arrays beside them."""
    arrays: dict[str, Any] = {}
    if size is not None:
        m, n, k = size
        kinds = PAIRS[pair]
        arrays = {"a": _spec(fmt, (*lead[0], m, k), kinds[0]), "b": _spec(fmt, (*lead[1], k, n), kinds[1])}
        if fmt not in TYPED:
            keywords = {"input_format": fmt} | keywords
        identity += f"/{m}x{n}x{k}-{pair}"
    return {"id": identity, "call": call, "arrays": arrays | (more or {}), "keywords": keywords}


def _sized(identity: str, size: Sizes, **keywords: Any) -> Case:
    """Cycles alone."""
    m, n, k = size
    return _run(f"{identity}/{m}x{n}x{k}", None, m=m, n=n, k=k, exact=False, **keywords)


def _operands_of(scheme: str) -> str:
    return {"ape-int16": "int16"}.get(scheme, "fp64" if scheme.startswith("tf64") else "fp32")


def _carries(device: str, scheme: str) -> bool:
    if scheme.startswith("tf64"):
        return device == "tf64"
    if scheme == "ape" and device == "tf64":
        return False
    if device == "ascend910a" and scheme == "native":
        return True
    return not SCHEMES[scheme] or SCHEMES[scheme] in FORMATS[device].split()


def _schemes() -> Iterator[Case]:
    for x, device in enumerate(DEVICES):
        for y, scheme in enumerate(SCHEMES):
            if _carries(device, scheme):
                size, pair = SIZES[(5 * x + y) % len(SIZES)], USUAL[(3 * x + y) % len(USUAL)]
                size = (17, 9, 67) if scheme.startswith("ozaki") and size[0] * size[1] > 2000 else size
                yield _run(f"scheme/{device}/{scheme}", size, _operands_of(scheme), pair, device=device, scheme=scheme)


def _native() -> Iterator[Case]:
    for x, device in enumerate(DEVICES):
        for y, fmt in enumerate(FORMATS[device].split()):
            size, pair = SIZES[(2 * x + 5 * y + 1) % len(SIZES)], USUAL[(x + y) % len(USUAL)]
            yield _run(f"native/{device}/{fmt}", size, fmt, pair, device=device, format=fmt)


def _native_later() -> Iterator[Case]:
    for x, (device, formats) in enumerate(FORMATS_LATER.items(), len(DEVICES)):
        for y, fmt in enumerate(formats.split()):
            size, pair = SIZES[(2 * x + 5 * y + 1) % len(SIZES)], USUAL[(x + y) % len(USUAL)]
            yield _run(f"native/{device}/{fmt}", size, fmt, pair, device=device, format=fmt)


#: {scheme: devices} of schemes that came after the first manifest.
SCHEMES_LATER = {
    "fixedpoint-fp64": ("a100", "b200", "h100", "h200", "mi300x"),
    "mxfp8": ("b200", "gb200"),
    "mxfp6": ("b200", "gb200"),
    "mxfp4": ("b200", "gb200"),
    "nvfp4": ("b200", "gb200"),
    "fp8-block": ("b200", "h100", "h200"),
    "fp8-row": ("b200", "h100", "h200"),
    "ozaki2-int8": ("a100", "ascend910a", "ascend910b3", "b200", "h200", "mi300x", "rtx4090"),
    "ozaki2-fp8": ("b200", "h200", "l40s"),
}


def _schemes_later() -> Iterator[Case]:
    sizes = ((17, 9, 256), (67, 33, 384), (3, 67, 128))
    for x, (scheme, devices) in enumerate(SCHEMES_LATER.items()):
        for y, device in enumerate(devices):
            fmt = "fp64" if scheme == "fixedpoint-fp64" or scheme.startswith("ozaki2") else "fp32"
            yield _run(f"scheme/{device}/{scheme}", sizes[(x + y) % 3], fmt, "mid", device=device, scheme=scheme)


def _shapes() -> Iterator[Case]:
    sizes = ((1, 1, 1), (3, 17, 1), (17, 1, 3), (130, 67, 3), (1, 130, 67), (67, 1, 130), (129, 65, 193), (65, 129, 64))
    settings = {
        "ascend910a": ("sgemm-cube", "native"),
        "ascend910b3": ("native", "bf16x6"),
        "b200": ("bf16x9", "native"),
        "h200": ("native", "tf32x3"),
        "mi300x": ("native", "ape-fp32-f"),
        "v100": ("native", "egemm-tc"),
    }
    for device, schemes in settings.items():
        for x, size in enumerate(sizes):
            scheme = schemes[x % 2]
            yield _run(f"shape/{device}/{scheme}", size, "fp32", USUAL[x % len(USUAL)], device=device, scheme=scheme)


def _specials() -> Iterator[Case]:
    kinds = ("special", "infinite", "subnormal", "tiny", "large", "any", "zeros")
    chosen = ("a100", "ascend910a", "ascend910b3", "b200", "h200", "mi100", "mi210", "mi300x", "t4", "tf64", "v100")
    for x, device in enumerate(chosen):
        for y, fmt in enumerate(FORMATS[device].split()):
            if not fmt.startswith("int"):
                pair = kinds[(x + 3 * y) % len(kinds)]
                yield _run(f"special/{device}/{fmt}", (33, 17, 67), fmt, pair, device=device, format=fmt)
    for x, scheme in enumerate(name for name in SCHEMES if name not in ("native", "ape-int16")):
        device = "tf64" if scheme.startswith("tf64") else ("h200", "b200", "mi300x", "a100")[x % 4]
        size = (17, 9, 67) if scheme.startswith("ozaki") else (33, 17, 67)
        for y in (0, 1):
            pair = kinds[(2 * x + 3 * y) % len(kinds)]
            name = f"special/{device}/{scheme}"
            yield _run(name, size, _operands_of(scheme), pair, device=device, scheme=scheme)
    for pair in kinds:
        yield _run(
            "special/ascend910a/sgemm-cube", (33, 17, 67), "fp32", pair, device="ascend910a", scheme="sgemm-cube"
        )


def _scheme_options() -> Iterator[Case]:
    size = (33, 17, 130)
    for device, scheme, options in (
        ("h200", "native", {"format": "e4m3", "accumulate": "promoted"}),
        ("h200", "native", {"format": "e4m3", "accumulate": "fast"}),
        ("b200", "native", {"format": "e5m2", "accumulate": "promoted"}),
        ("mi300x", "native", {"format": "e4m3fnuz", "accumulate": "promoted"}),
        ("h200", "native", {"format": "fp16", "k_group": 32}),
        ("ascend910a", "native", {"format": "fp16", "k_group": 64, "tile": [32, 32, 32]}),
        ("mi300x", "native", {"format": "bf16", "k_group": 16}),
        ("ascend910a", "sgemm-cube", {"scaling_exponent": 0}),
        ("ascend910a", "sgemm-cube", {"scaling_exponent": 8, "accumulation": "elementwise"}),
        ("a100", "sgemm-cube", {"accumulation": "elementwise", "k_group": 32}),
        ("ascend910b3", "sgemm-cube", {"k_group": 64}),
        ("h200", "le-gemm", {"residual_rounding": "RNE"}),
        ("a100", "le-gemm", {"interleave": "k", "k_group": 64}),
        ("b200", "bf16x9", {"promotion_interval": 4}),
        ("b200", "bf16x9", {"accumulation": "fastf32"}),
        ("b200", "bf16x9", {"accumulation": "bands"}),
        ("h200", "bf16x9", {"accumulation": "bands", "promotion_interval": 2}),
        ("h200", "bf16x9", {"accumulation": "fastf32"}),
        ("h200", "bf16x9", {"accumulation": "termwise"}),
        ("mi300x", "bf16x6", {"accumulation": "termwise", "k_group": 64}),
        ("b200", "bf16x6", {"accumulation": "bands"}),
        ("b200", "bf16x3", {"promotion_interval": 2}),
        ("b200", "bf16x9", {"hybrid": True}),
        ("gb200", "bf16x9", {"hybrid": True, "promotion_interval": 3}),
        ("h200", "bf16x6", {"hybrid": True}),
        ("a100", "ape-fp32-f", {"accumulation": "termwise"}),
        ("h200", "ape-fp32-f", {"interleave": "k"}),
        ("a100", "ape-fp32-b", {"accumulation": "termwise", "k_group": 64}),
        ("h200", "ape-fp32-b", {"interleave": "k"}),
        ("a100", "ape-fp32-t", {"interleave": "k"}),
        ("h200", "ape-fp32-t", {"k_group": 32}),
        ("a100", "ape-int16", {"low_byte": "unsigned"}),
        ("a100", "ape-int16", {"low_byte": "biased", "accumulate": "int32"}),
        ("ascend910a", "ape-int16", {"accumulate": "int32"}),
        ("mi300x", "ape-int16", {"accumulate": "int32"}),
        ("a100", "ape", {"block": 16}),
        ("h200", "ape", {"block": 32, "interleave": "k"}),
        ("a100", "ape", {"strategy": "fp32-f"}),
        ("a100", "ape", {"strategy": "fp32-b"}),
        ("h200", "ape", {"strategy": "native"}),
        ("h200", "ape", {"strategy": "decide"}),
        ("ascend910b3", "ape", {"block": 64}),
        ("h200", "tf32x3", {"k_group": 32}),
        ("mi300x", "tf32x4", {"k_group": 64}),
        ("tf64", "tf64x3", {"k_group": 16}),
        ("h200", "markidis", {"rounding": "RNE"}),
        ("a100", "markidis", {"accumulation": "termwise"}),
        ("v100", "markidis", {"interleave": "k"}),
        ("h200", "egemm-tc", {"rounding": "RZ"}),
        ("t4", "egemm-tc", {"accumulation": "termwise", "k_group": 32}),
        ("h200", "quantensor", {"pieces": 3}),
        ("a100", "quantensor", {"format": "int4", "pieces": 4}),
        ("a100", "quantensor", {"format": "int4", "all_products": False}),
        ("t4", "quantensor", {"residual": True}),
        ("ascend910a", "quantensor", {"all_products": False, "residual": True}),
        ("h200", "ozaki-int8", {"slices": 3}),
        ("h200", "ozaki-int8", {"slices": 0}),
        ("a100", "ozaki-int8", {"slices": 4, "truncate": False}),
        ("b200", "ozaki-int8", {"slices": 5, "sum": "exact"}),
        ("h200", "ozaki-fp16", {"slices": 3, "sum": "exact"}),
        ("rtx5090", "ozaki2-int8", {"result": "fp32"}),
        ("h200", "ozaki2-int8", {"moduli": 20, "sum": "exact", "result": "fp64"}),
        ("b200", "ozaki2-fp8", {"moduli": 4}),
        ("a100", "ozaki2-int8", {"mode": "accurate"}),
        ("b200", "ozaki2-fp8", {"moduli": 4, "mode": "accurate"}),
        ("mi300x", "ozaki-fp16", {"slices": 4}),
        ("v100", "ozaki-fp16", {"slices": 2, "truncate": False}),
    ):
        what = "_".join(f"{name}={_word(value)}" for name, value in options.items())
        small = (17, 9, 67) if scheme.startswith("ozaki") else size
        pair = "cancel" if scheme == "native" else "wide"
        yield _run(
            f"option/{device}/{scheme}/{what}",
            small,
            _operands_of(scheme),
            pair,
            device=device,
            scheme=scheme,
            **options,
        )
    for scheme in ("ozaki-int8", "ozaki-fp16"):
        yield _run(f"option/h200/{scheme}/fp64", (17, 9, 33), "fp64", "wide", device="h200", scheme=scheme)
    for percent in (0, 30, 100):
        name = f"option/a100/ape/wide_percent={percent}"
        yield _sized(name, (1024, 1024, 1024), device="a100", scheme="ape", wide_percent=percent)
    for size in ((256, 256, 256), (4096, 4096, 4096)):
        yield _sized("option/b200/bf16x9/hybrid", size, device="b200", scheme="bf16x9", hybrid=True)
        yield _sized("option/h200/bf16x9/hybrid", size, device="h200", scheme="bf16x9", hybrid=True)


def _word(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, list) else str(value)


def _epilogues() -> Iterator[Case]:
    size = (33, 18, 67)
    m, n = size[:2]

    def c(fmt: str) -> dict[str, Any]:
        return {"c": _spec(fmt, (m, n), "wide")}

    bias = {"bias": _spec("fp32", (n,), "mid")}
    for device in ("a100", "ascend910a", "ascend910b3", "b200", "h200", "mi300x", "v100"):
        at = f"epilogue/{device}"
        yield _run(f"{at}/c", size, "fp16", device=device, more=c("fp32"))
        yield _run(f"{at}/alpha-beta-c", size, "fp16", device=device, more=c("fp32"), alpha=1.25, beta=-0.3)
        yield _run(f"{at}/alpha-bias-fp16", size, "fp16", "wide", device=device, more=bias, alpha=0.7, output="fp16")
        yield _run(
            f"{at}/all-fp16", size, "fp16", device=device, more=c("fp16") | bias, alpha=3.0, beta=0.1, output="fp16"
        )
    for device, fmt, output in (
        ("h200", "bf16", "bf16"),
        ("h200", "e4m3", "fp16"),
        ("h200", "e4m3", "e4m3"),
        ("h200", "tf32", "tf32"),
        ("b200", "e2m1", "bf16"),
        ("b200", "e4m3", "e5m2"),
        ("mi300x", "e5m2fnuz", "e4m3fnuz"),
        ("a100", "fp64", "fp32"),
        ("ascend910b3", "hf32", "bf16"),
        ("a100", "fp16", "fp64"),
    ):
        yield _run(
            f"epilogue/{device}/{fmt}-to-{output}",
            size,
            fmt,
            "wide",
            device=device,
            format=fmt,
            output=output,
            alpha=1.5,
        )
    for device in ("a100", "ascend910a", "h200"):
        name = f"epilogue/{device}/int8-alpha"
        yield _run(name, size, "int8", device=device, format="int8", alpha=3.0, beta=2.0, more=c("int32"))
        yield _run(f"epilogue/{device}/int8-bf16", size, "int8", device=device, format="int8", alpha=0.5, output="fp16")
    yield _run("epilogue/h200/fp64", size, "fp64", "cancel", device="h200", format="fp64", more=c("fp64"), alpha=-1.0)
    yield _run(
        "epilogue/h200/beta-0", size, "fp16", device="h200", more={"c": _spec("fp32", (m, n), "special")}, beta=0.0
    )
    yield _run("epilogue/h200/bias-special", size, "fp16", device="h200", more={"bias": _spec("fp32", (n,), "special")})
    for device, scheme in (("h200", "tf32x3"), ("b200", "bf16x9"), ("a100", "ape-fp32-f"), ("mi300x", "sgemm-cube")):
        name = f"epilogue/{device}/{scheme}"
        yield _run(name, size, "fp32", "wide", device=device, scheme=scheme, more=c("fp32") | bias, alpha=0.5, beta=2.0)
    for device in ("a100", "b200", "h200", "mi300x"):
        name = f"epilogue/{device}/timed"
        yield _sized(name, (2048, 2048, 2048), device=device, format="fp16", alpha=2.0, output="fp16")


def _stacks() -> Iterator[Case]:
    leads = {
        "both": ((3,), (3,)),
        "left": ((3,), ()),
        "right": ((), (3,)),
        "broadcast": ((2, 1), (3,)),
        "deep": ((2, 2), (1, 2)),
    }
    for device, fmt in (("ascend910a", "fp16"), ("ascend910b3", "bf16"), ("h200", "fp16"), ("mi300x", "fp16")):
        for name, lead in leads.items():
            yield _run(f"stack/{device}/{name}", (17, 9, 67), fmt, "wide", lead=lead, device=device, format=fmt)
    for device, scheme in (("ascend910a", "sgemm-cube"), ("b200", "bf16x9"), ("h200", "ape"), ("a100", "quantensor")):
        name = f"stack/{device}/{scheme}"
        yield _run(name, (17, 9, 67), "fp32", "wide", lead=((2,), (2,)), device=device, scheme=scheme)
    for device in ("h200", "mi300x"):
        more = {"c": _spec("fp32", (3, 17, 9), "mid")}
        name = f"stack/{device}/c"
        yield _run(name, (17, 9, 67), "fp16", lead=((3,), (3,)), device=device, more=more, alpha=0.5, output="fp16")
        name = f"stack/{device}/rows"
        yield _run(name, (17, 9, 67), "fp16", lead=((3,), ()), device=device, rows=[0, 5], cols={"slice": [1, 7, 2]})
    yield _run("stack/h200/split", (17, 9, 257), "fp16", lead=((2,), (2,)), device="h200", split_k=2)


def _layouts() -> Iterator[Case]:
    for device in ("a100", "ascend910b3", "b200", "h200", "mi300x", "v100"):
        for a, b in (("rows", "columns"), ("columns", "rows"), ("columns", "columns")):
            name = f"layout/{device}/{a}-{b}"
            yield _sized(name, (1000, 1500, 2000), device=device, format="fp16", a_layout=a, b_layout=b)
        yield _run(f"layout/{device}/b-columns", (67, 33, 130), "fp16", device=device, b_layout="columns")
    for device in ("ascend910a", "h200"):
        case = _run(f"layout/{device}/strides", (67, 33, 130), "fp16", "wide", device=device)
        for name in ("a", "b"):
            case["arrays"][name]["order"] = "F"
        yield case
    yield _sized("layout/h200/tf32", (2048, 777, 1024), device="h200", format="tf32", b_layout="columns")
    yield _sized("layout/h200/e4m3", (2048, 784, 1024), device="h200", format="e4m3", b_layout="columns")


def _splits() -> Iterator[Case]:
    for device in ("a100", "b200", "h200", "mi300x", "v100"):
        for split in (2, 3, "auto"):
            yield _run(f"split/{device}/{split}", (33, 17, 520), "fp16", "wide", device=device, split_k=split)
        yield _sized(f"split/{device}/auto", (64, 128, 16384), device=device, format="fp16", split_k="auto")
        yield _sized(f"split/{device}/3", (1000, 300, 5000), device=device, format="fp16", split_k=3)
    yield _run("split/h200/tf32", (33, 17, 520), "tf32", "cancel", device="h200", format="tf32", split_k=3)
    yield _run("split/h200/fp64", (33, 17, 260), "fp64", "cancel", device="h200", format="fp64", split_k=2)
    yield _run("split/h200/int8", (33, 17, 520), "int8", device="h200", format="int8", split_k=4)
    yield _run("split/h200/special", (33, 17, 520), "fp16", "special", device="h200", split_k=3, functional=True)
    yield _run("split/h200/functional", (33, 17, 520), "fp16", "wide", device="h200", split_k=3, functional=True)
    yield _run("split/a100/tf32x3", (33, 17, 520), "fp32", "wide", device="a100", scheme="tf32x3", split_k=2)
    yield _sized("split/h200/tf32", (128, 128, 32768), device="h200", format="tf32", split_k="auto")
    yield _sized("split/h200/fp32", (100, 60, 9000), device="h200", format="fp32", split_k="auto")


def _schedules() -> Iterator[Case]:
    size, k = (17, 9, 200), 200
    devices = ("h200", "a100", "mi300x", "ascend910b3", "ascend910a", "b200", "v100")
    mappings: tuple[dict[str, Any], ...] = (
        {},
        {"split_k": 2},
        {"split_k": 3, "merge_order": "descending"},
        {"slice_k": 50, "merge_order": "pairwise"},
        {"slice_k": [7, 93, 100]},
        {"slice_k": 50, "merge_order": [2, 0, 3, 1]},
        {"slice_k": 64, "partial_format": "fp16"},
        {"slice_k": 64, "partial_format": "bf16", "merge_format": "fp32"},
        {"slice_k": 40, "merge_format": "fp64"},
        {"slice_multiple": 16, "split_k": 3},
        {"slice_k": 64, "merge_into": "output"},
        {"slice_k": 64, "merge_into": "output", "epilogue": {"alpha": 1.5}},
        {"promotion_k": 32},
        {"promotion_k": 17, "split_k": 2},
        {"k_permutation": [1, 0, 3, 2]},
        {"k_permutation": list(range(0, 64, 2)) + list(range(1, 64, 2))},
        {"remainder": "first", "tile_k": 32},
        {"remainder": "first", "tile_k": 48, "slice_k": 70},
        {"operand_rounding": "RZ"},
        {"epilogue": {"alpha": 0.3, "output_format": "fp16", "output_rounding": "RZ"}},
        {"epilogue": {"alpha": 0.3, "output_format": "bf16", "output_rounding": "RU"}},
    )
    for x, mapping in enumerate(mappings):
        for device in (devices[x % len(devices)], devices[(x + 2) % len(devices)]):
            name = f"schedule/{device}/{x:02d}-{'-'.join(mapping) or 'default'}"
            pair = ("wide", "cancel", "ties")[x % 3]
            given = "fp32" if "operand_rounding" in mapping else "fp16"
            yield _run(name, size, given, pair, device=device, format="fp16", schedule=mapping)
    c = {"c": _spec("fp32", size[:2], "wide")}
    for x, mapping in enumerate(
        (
            {"start": "c"},
            {"start": "c", "split_k": 2},
            {"epilogue": {"alpha": 0.7, "beta": 0.3, "contraction": "alpha"}},
            {"epilogue": {"alpha": 0.7, "beta": 0.3, "contraction": "beta"}},
            {"epilogue": {"alpha": 0.7, "beta": 0.3, "contraction": "none"}},
            {"epilogue": {"alpha": 0.7, "beta": 0.3, "product_format": "fp16"}},
            {"slice_k": 64, "epilogue": {"alpha": 0.7, "beta": 0.3}},
            {"slice_k": 64, "merge_into": "output", "epilogue": {"alpha": 0.7, "beta": 0.3}},
        )
    ):
        for device in ("h200", ("mi300x", "ascend910a")[x % 2]):
            name = f"schedule/{device}/c{x}-{'-'.join(mapping)}"
            yield _run(name, size, "fp16", "wide", device=device, more=c, schedule=mapping)
    for device, instruction in (
        ("h200", "mma.m16n8k8.f32.f16.f16.f32"),
        ("h200", "mma.m16n8k16.f16.f16.f16.f16"),
        ("a100", "mma.m16n8k8.f32.f16.f16.f32"),
        ("v100", "mma.m8n8k4.f16.f16.f16.f16"),
        ("mi300x", "v_mfma_f32_4x4x4_16b_f16"),
    ):
        name = f"schedule/{device}/{instruction}"
        yield _run(name, size, "fp16", "wide", device=device, schedule={"instruction": instruction})
    for device, scheme in (("h200", "tf32x3"), ("a100", "ape-fp32-f"), ("b200", "sgemm-cube"), ("mi300x", "markidis")):
        mapping = {"split_k": 2, "promotion_k": k // 4}
        yield _run(f"schedule/{device}/{scheme}", size, "fp32", "wide", device=device, scheme=scheme, schedule=mapping)


def _subsets() -> Iterator[Case]:
    mask = [x % 3 == 1 for x in range(33)]
    for device, scheme in (
        ("h200", "native"),
        ("ascend910a", "sgemm-cube"),
        ("b200", "bf16x9"),
        ("a100", "ape"),
        ("mi300x", "quantensor"),
    ):
        size = (33, 17, 67)
        at = f"subset/{device}/{scheme}"
        yield _run(f"{at}/rows", size, "fp32", "wide", device=device, scheme=scheme, rows=[3, -1, 3])
        yield _run(f"{at}/mask", size, "fp32", "wide", device=device, scheme=scheme, rows={"mask": mask}, cols=[16])
        yield _run(f"{at}/cols", size, "fp32", "wide", device=device, scheme=scheme, cols={"slice": [2, 15, 3]})


def _functional() -> Iterator[Case]:
    for device, schemes in {
        "a100": ("native", "sgemm-cube", "ape-fp32-f"),
        "ascend910a": ("native", "sgemm-cube", "ape-int16"),
        "ascend910b3": ("native", "bf16x6"),
        "b200": ("native", "bf16x9", "ootomo-fp16"),
        "h200": ("native", "tf32x3", "quantensor"),
        "mi300x": ("native", "egemm-tc"),
        "v100": ("native", "markidis"),
    }.items():
        for scheme in schemes:
            fmt = "fp16" if scheme == "native" else _operands_of(scheme)
            for wanted in (True, False):
                name = f"functional/{device}/{scheme}/{wanted}"
                yield _run(name, (33, 65, 130), fmt, "wide", device=device, scheme=scheme, functional=wanted)


def _timing_of(place: int, device: str) -> Iterator[Case]:
    """Cycles of a device; place: which of its formats each size gets."""
    sizes: tuple[Sizes, ...] = (
        (4096, 4096, 4096),
        (1, 4096, 4096),
        (64, 64, 32768),
        (4097, 33, 1000),
        (1000, 3001, 777),
        (8192, 8192, 512),
    )
    formats = FORMATS[device].split()
    for y, size in enumerate(sizes):
        fmt = formats[(place + y) % len(formats)]
        yield _sized(f"timing/{device}/{fmt}", size, device=device, format=fmt, input_format=fmt)
    yield _sized(f"timing/{device}/from-fp32", (2048, 1024, 4096), device=device, format="fp16", input_format="fp32")


def _timing_later() -> Iterator[Case]:
    for x, device in enumerate(TIMED_LATER):
        yield from _timing_of(len(TIMED) + x, device)


def _timing() -> Iterator[Case]:
    for x, device in enumerate(TIMED):
        yield from _timing_of(x, device)
    for device, scheme in (
        ("ascend910a", "sgemm-cube"),
        ("ascend910b3", "sgemm-cube"),
        ("ascend910b1", "bf16x3"),
        ("b200", "bf16x9"),
        ("h200", "tf32x3"),
        ("h200", "ozaki-int8"),
        ("a100", "ape-fp32-f"),
        ("a100", "ootomo-tf32"),
        ("mi300x", "bf16x6"),
        ("t4", "egemm-tc"),
        ("v100", "markidis"),
        ("tf64", "tf64x3"),
    ):
        size = (1024, 1024, 512) if scheme == "ozaki-int8" else (2048, 2048, 2048)
        yield _sized(f"timing/{device}/{scheme}", size, device=device, scheme=scheme)
    for device in ("a2", "ada", "mi100"):
        yield _sized(f"timing/{device}/none", (512, 512, 512), device=device, format="fp16")


def _blocking() -> Iterator[Case]:
    for device, options in (
        ("ascend910a", {"tile": [96, 64, 96]}),
        ("ascend910a", {"tile": {"m": 176, "k": 64, "n": 176}, "buffering": "single"}),
        ("ascend910a", {"tile": [176, 64, 176], "n_fused": 4}),
        ("ascend910a", {"buffering": "single", "n_fused": 8}),
        ("ascend910b3", {"tile": [128, 128, 64]}),
        ("ascend910b3", {"buffering": "single"}),
        ("ascend910b3", {"swizzle": 2}),
        ("a100", {"tile": [128, 128, 32]}),
        ("a100", {"tile": [64, 64, 32], "stages": 3}),
        ("a100", {"stages": 2, "swizzle": 1}),
        ("h200", {"tile": [128, 128, 64], "stages": 3}),
        ("h200", {"tile": {"m": 64, "n": 256, "k": 64}}),
        ("h200", {"swizzle": 4}),
        ("h200", {"instruction": "mma.m16n8k16.f32.f16.f16.f32"}),
        ("h200", {"instruction": "mma.m16n8k16.f32.f16.f16.f32", "split_k": 2}),
        ("b200", {"cta_group": 2}),
        ("b200", {"cta_group": 1, "tile": [128, 128, 64]}),
        ("b200", {"cta_group": 2, "stages": 3, "swizzle": 8}),
        ("gb200", {"cta_group": 2, "split_k": 2}),
        ("mi300x", {"tile": [64, 64, 32]}),
        ("mi300x", {"stages": 1}),
        ("mi210", {"tile": [128, 64, 32], "swizzle": 2}),
        ("v100", {"tile": [64, 64, 16]}),
        ("t4", {"tile": [64, 128, 16], "stages": 2}),
    ):
        what = "_".join(f"{key}={_word(list(x.values()) if isinstance(x, dict) else x)}" for key, x in options.items())
        size = (1024, 777, 1500) if options.get("cta_group") == 2 else (1000, 777, 1500)
        yield _sized(f"blocking/{device}/{what}", size, device=device, format="fp16", **options)
    for device, scheme, options in (
        ("ascend910a", "sgemm-cube", {"tile": [32, 32, 48], "n_fused": 2}),
        ("ascend910a", "sgemm-cube", {"tile": [32, 32, 48], "n_fused": 2, "convert_a": "kernel"}),
        ("ascend910a", "native", {"tile": [16, 16, 16], "n_fused": 1, "buffering": "single"}),
        ("h200", "tf32x3", {"tile": [64, 64, 32], "stages": 2}),
        ("b200", "bf16x9", {"cta_group": 2}),  # too few rows
        ("b200", "bf16x9", {"cta_group": 1, "stages": 2}),
        ("a100", "ape-fp32-f", {"tile": [64, 64, 32], "stages": 2}),
        ("ascend910b3", "sgemm-cube", {"tile": [64, 32, 64]}),
    ):
        what = "_".join(f"{key}={_word(x)}" for key, x in options.items())
        name = f"blocking/{device}/{scheme}/{what}"
        yield _run(name, (67, 33, 130), "fp32", "wide", device=device, scheme=scheme, **options)


def _clocks() -> Iterator[Case]:
    for device in ("ascend910a", "a100", "b200", "h200", "mi300x", "v100", "ascend910b3"):
        at = f"clock/{device}"
        yield _sized(f"{at}/1200", (512, 384, 640), device=device, format="fp16", clock_mhz=1200)
    for device in ("a100", "h100", "h200"):  # the first has no such time
        yield _sized(f"clock/{device}/launch", (512, 384, 640), device=device, format="fp16", launch_overhead=True)
    yield _sized("clock/h200/both", (4096, 4096, 4096), device="h200", clock_mhz=1755.5, launch_overhead=True)
    yield _run("clock/h200/no-timing", (33, 17, 67), "fp16", device="h200", timing=False)


def _automatic() -> Iterator[Case]:
    auto: dict[str, Any] = {"scheme": "auto"}
    yield _sized("auto/h200/1e-6", (256, 256, 256), device="h200", error_target=1e-6, **auto)
    yield _sized("auto/t4/1e-3", (200, 300, 100), device="t4", error_target=1e-3, **auto)
    yield _run("auto/ascend910a/1e-6", (67, 33, 130), "fp32", device="ascend910a", error_target=1e-6, **auto)


def _instructions() -> Iterator[Case]:
    for device, instruction, size, formats, pair in (
        ("h200", "wgmma.m64n8k16.f32.f16.f16", (64, 8, 16), "fp16 fp32", "wide"),
        ("h200", "wgmma.m64n8k16.f16.f16.f16", (64, 8, 16), "fp16 fp16", "wide"),
        ("h200", "wgmma.m64n16k32.f32.e4m3.e5m2", (64, 16, 32), "e4m3 fp32", "wide"),
        ("h200", "mma.m16n8k8.f32.tf32.tf32.f32", (16, 8, 8), "tf32 fp32", "cancel"),
        ("h200", "mma.m16n8k32.satfinite.s32.s8.s8.s32", (16, 8, 32), "int8 int32", "large"),
        ("h200", "mma.m16n8k4.f64.f64.f64.f64", (16, 8, 4), "fp64 fp64", "special"),
        ("a100", "mma.m16n8k16.f32.bf16.bf16.f32", (16, 8, 16), "bf16 fp32", "any"),
        ("v100", "mma.m8n8k4.f32.f16.f16.f32", (8, 8, 4), "fp16 fp32", "any"),
        ("t4", "wmma.m16n16k16.f16.f16.f16.f16", (16, 16, 16), "fp16 fp16", "wide"),
        ("mi100", "v_mfma_f32_32x32x4bf16", (32, 32, 4), "bf16 fp32", "subnormal"),
        ("mi300x", "v_mfma_f32_16x16x32_fp8_fp8", (16, 16, 32), "e4m3fnuz fp32", "any"),
        ("mi300x", "v_mfma_f64_16x16x4_f64", (16, 16, 4), "fp64 fp64", "cancel"),
        ("ascend910a", "mmad.m16n16k16.f32.f16.f16", (16, 16, 16), "fp16 fp32", "any"),
        ("ascend910b3", "mmad.m16n16k8.f32.hf32.hf32", (16, 16, 8), "hf32 fp32", "wide"),
        ("b200", "tcgen05.mma.m128n16k32.f8f6f4.f32.e2m3.e2m3", (128, 16, 32), "e2m3 fp32", "wide"),
        ("tf64", "mma.m8n8k4.f64.f32.f32.f64", (8, 8, 4), "fp32 fp64", "wide"),
    ):
        m, n, k = size
        fmt, wide = formats.split()
        left, right = PAIRS[pair]
        of_b = "e5m2" if instruction.endswith("e4m3.e5m2") else fmt
        for call in ("mma", "dot"):
            shapes = ((m, k), (k, n), (m, n)) if call == "mma" else ((33, k), (33, k), (33,))
            arrays = {
                "a": _spec(fmt, shapes[0], left, codes=True),
                "b": _spec(of_b, shapes[1], right, codes=True),
                "c": _spec(wide, shapes[2], "wide", codes=True),
            }
            keywords = {"device": device, "instruction": instruction}
            yield {"id": f"{call}/{device}/{instruction}", "call": call, "arrays": arrays, "keywords": keywords}
    m, n, k, block = 128, 16, 64, 32
    arrays = {
        "a": _spec("e2m1", (m, k), "wide"),
        "b": _spec("e2m1", (k, n), "wide"),
        "c": _spec("fp32", (m, n), "wide", codes=True),
        "scale_a": _spec("ue8m0", (m, k // block), "mid"),
        "scale_b": _spec("ue8m0", (k // block, n), "mid"),
    }
    keywords = {"device": "b200", "instruction": "tcgen05.mma.m128n16k64.mxf4.f32.e2m1.e2m1"}
    yield {"id": "mma/b200/mxf4", "call": "mma", "arrays": arrays, "keywords": keywords}


def _around() -> Iterator[Case]:
    images = {"x": _spec("fp32", (2, 4, 9, 8), "mid"), "w": _spec("fp32", (6, 4, 3, 3), "mid")}
    grouped = {"x": _spec("fp16", (1, 4, 9, 8), "wide"), "w": _spec("fp16", (6, 2, 3, 2), "mid")}
    biased = images | {"c": _spec("fp32", (2, 6, 7, 6), "mid"), "bias": _spec("fp32", (6,), "mid")}
    for name, arrays, keywords in (
        ("h200/plain", images, {"device": "h200", "format": "fp16"}),
        ("h200/bias", biased, {"device": "h200", "scheme": "tf32x3"}),
        ("a100/groups", grouped, {"device": "a100", "groups": 2, "stride": [2, 1], "padding": 1, "dilation": [1, 2]}),
        ("ascend910a/sgemm-cube", images, {"device": "ascend910a", "scheme": "sgemm-cube", "padding": [1, 0]}),
    ):
        yield {"id": f"conv2d/{name}", "call": "conv2d", "arrays": arrays, "keywords": keywords}
    for device, scheme in (("b200", "bf16x9"), ("ascend910a", "sgemm-cube"), ("mi300x", "native")):
        for call in ("matmul", "emulate", "array"):
            yield _run(
                f"{call}/{device}/{scheme}", (17, 9, 67), "fp32", "wide", call=call, device=device, scheme=scheme
            )
    for device, keywords in (
        ("ascend910a", {"scheme": "sgemm-cube", "tile": [96, 64, 96]}),
        ("h200", {"format": "fp16", "split_k": 2}),
        ("b200", {"scheme": "bf16x9"}),
        ("mi300x", {"format": "fp16"}),
    ):
        sizes = {"m": 300, "n": 200, "k": 500}
        yield {
            "id": f"program/{device}",
            "call": "program",
            "arrays": {},
            "keywords": {"device": device} | sizes | keywords,
        }
    for call in ("trace", "what_if", "roofline"):
        for device in ("ascend910a", "a100", "h200", "b200", "mi300x", "ascend910b3"):
            yield _run(
                f"{call}/{device}", None, call=call, m=300, n=200, k=500, exact=False, device=device, format="fp16"
            )


def _refused() -> Iterator[Case]:
    size = (17, 9, 67)
    for name, keywords in {
        "no-such-device": {"device": "h2000"},
        "no-such-scheme": {"device": "h200", "scheme": "bf16x8"},
        "no-such-option": {"device": "h200", "scheme": "tf32x3", "slices": 2},
        "no-such-format": {"device": "h200", "format": "fp17"},
        "format-of-another": {"device": "v100", "format": "bf16"},
        "scheme-of-another": {"device": "ascend910a", "scheme": "tf32x3"},
        "scheme-needs-int8": {"device": "v100", "scheme": "ozaki-int8"},
        "scheme-needs-fp64": {"device": "h200", "scheme": "tf64x3"},
        "ape-on-tf64": {"device": "tf64", "scheme": "ape"},
        "wrong-size": {"device": "h200", "m": 18},
        "option-of-another-family": {"device": "h200", "n_fused": 2},
        "split-on-ascend": {"device": "ascend910a", "split_k": 2},
        "layout-on-ascend": {"device": "ascend910a", "b_layout": "columns"},
        "tile-does-not-fit": {"device": "ascend910a", "tile": [4096, 4096, 4096]},
        "tile-keys": {"device": "h200", "tile": [64, 64]},
        "instruction-of-another": {"device": "h200", "instruction": "tcgen05.mma.m128n16k16.f16.f32.f16.f16"},
        "schedule-key": {"device": "h200", "schedule": {"split": 2}},
        "schedule-value": {"device": "h200", "schedule": {"merge_order": "random"}},
        "schedule-slices": {"device": "h200", "schedule": {"slice_k": [3, 5]}},
        "functional-with-schedule": {"device": "h200", "schedule": {"split_k": 2}, "functional": True},
        "clock": {"device": "h200", "clock_mhz": -1},
        "error-target": {"device": "h200", "error_target": 1e-6},
        "auto-without-target": {"device": "h200", "scheme": "auto"},
        "rows": {"device": "h200", "rows": [17]},
        "threads": {"device": "h200", "threads": 0},
        "timing-and-blocking": {"device": "ada", "tile": [64, 64, 32]},
    }.items():
        yield _run(f"refused/{name}", size, **keywords)
    yield _sized("refused/no-timing", size, device="ada")
    yield _run("refused/bias", size, device="h200", more={"bias": _spec("fp32", (10,), "mid")})
    yield _run("refused/c", size, device="h200", more={"c": _spec("fp32", (9, 17), "mid")})
    yield _run("refused/stack", size, lead=((2,), (3,)), device="h200")


def _unstaged() -> Iterator[Case]:
    bare = {"staging": "none"}
    for x, (device, scheme) in enumerate((("a100", "le-gemm"), ("mi210", "markidis"), ("v100", "ootomo-fp16"))):
        yield _run(f"unstaged/{device}/{scheme}", SIZES[x], "fp32", "wide", device=device, scheme=scheme, **bare)
    for device, options in (
        ("a800", {}),
        ("mi210", {"stages": 1}),
        ("a100", {"tile": [128, 64, 32], "warp": [32, 32]}),
        ("h200", {"instruction": "mma.m16n8k16.f32.f16.f16.f32"}),
        ("h200", {}),  # wgmma reads B from shared memory
    ):
        what = "_".join(f"{key}={_word(x)}" for key, x in options.items()) or "alone"
        yield _sized(f"unstaged/{device}/{what}", (1000, 777, 1500), device=device, format="fp16", **bare, **options)
    warped = {"tile": [128, 128, 32], "warp": [32, 64]}
    yield _sized("unstaged/a100/warp_of_a_staged_tile", (1000, 777, 1500), device="a100", format="fp16", **warped)


def _spilled() -> Iterator[Case]:
    for device, scheme, tile, options in (
        ("a800", "le-gemm", [128, 256, 32], {"stages": 2}),  # Table 2 of its paper
        ("a800", "le-gemm", [128, 128, 32], {"stages": 1}),
        ("mi210", "le-gemm", [256, 256, 16], {}),
        ("a100", "markidis", [256, 256, 16], {"staging": "none", "warp": [128, 64]}),
        ("a100", "ootomo-fp16", [256, 256, 32], {}),  # its sums are outside the unit
    ):
        what = "_".join(f"{key}={_word(x)}" for key, x in {"tile": tile, **options}.items())
        name, more = f"spilled/{device}/{scheme}/{what}", {"tile": tile, "spill": True, **options}
        yield _sized(name, (1000, 777, 1500), device=device, scheme=scheme, input_format="fp32", **more)
    yield _run("spilled/a800/le-gemm", (67, 33, 130), device="a800", scheme="le-gemm", tile=[128, 256, 32], spill=True)


def _libraries() -> Iterator[Case]:
    """Kernels that a library runs: known answers, fitted ones and estimates."""
    sizes = ((64, 96, 512), (1, 256, 2048), (130, 72, 1000), (17, 640, 4096))
    formats = {
        "h100": "fp16 bf16 tf32 fp32 fp64 int8 e4m3",
        "h200": "fp16 bf16 tf32 fp32 fp64 int8 e4m3",
        "a100": "fp16 tf32 int8",
        "b200": "bf16 e4m3",
        "l40s": "fp16",
        "t4": "fp16",
    }
    for device, names in formats.items():
        for fmt in names.split():
            layout = {"b_layout": "columns"} if fmt in ("int8", "e4m3") else {}
            for size in sizes:
                name = f"library/{device}/{fmt}"
                yield _run(name, size, fmt, "wide", device=device, format=fmt, library="cublas", **layout)
            name = f"library/{device}/{fmt}/cycles"
            yield _sized(name, (300, 4096, 4096), device=device, format=fmt, library="cublas", b_layout="columns")
    m, n, _ = size = (40, 56, 768)
    for device in ("h100", "h200", "a100"):
        at, call = f"library/{device}/epilogue", {"device": device, "library": "cublas"}
        for fmt in ("fp16", "bf16", "tf32"):
            given = call | {"format": fmt}
            bias, c = {"bias": _spec("fp32", (n,), "mid")}, {"c": _spec("fp32", (m, n), "mid")}
            yield _run(f"{at}/{fmt}/bias", size, fmt, "wide", more=bias, **given)
            yield _run(f"{at}/{fmt}/c", size, fmt, "wide", more=c, beta=1.0, **given)
            yield _run(f"{at}/{fmt}/alpha-beta-c", size, fmt, "wide", more=c, alpha=2.0, beta=0.5, **given)
            yield _run(f"{at}/{fmt}/columns", size, fmt, "wide", a_layout="columns", **given)
            if fmt != "tf32":
                yield _run(f"{at}/{fmt}/narrow-bias", size, fmt, "wide", more=bias, output=fmt, **given)
            yield _run(f"library/{device}/batch/{fmt}", (8, 24, 512), fmt, "wide", lead=((3,), (3,)), **given)
        yield _run(f"library/{device}/batch/vector", (1, 24, 512), "fp16", "wide", lead=((3,), (3,)), **call)
        yield _run(f"library/{device}/part", size, "fp16", "wide", rows=[0, 5], cols=[1, 55], **call)
        yield _run(f"library/{device}/functional", (64, 64, 128), "fp16", "wide", functional=True, **call)
        yield _sized(f"library/{device}/clock", (512, 512, 512), format="fp16", clock_mhz=1000.0, **call)
    for accumulate in ("fast", "promoted"):
        for device in ("h100", "h200", "b200"):
            name, given = f"library/{device}/{accumulate}", {"device": device, "library": "cublas", "format": "e4m3"}
            yield _run(name, (64, 64, 1024), "e4m3", accumulate=accumulate, output="bf16", b_layout="columns", **given)
    for device in ("h100", "h200", "a100"):
        for scheme in ("bf16x9", "bf16x3", "tf32x3", "sgemm-cube"):
            name = f"library/{device}/{scheme}"
            yield _run(name, (33, 17, 256), "fp32", "wide", device=device, scheme=scheme, library="cublas")
    for name, more in (
        ("tile", {"tile": [64, 64, 64]}),
        ("split", {"split_k": 2}),
        ("unknown", {"library": "cublass"}),
        ("output", {"output": "fp64"}),
        ("file", {"library": "nowhere.npz"}),
    ):
        yield _sized(f"library/h200/refused/{name}", (64, 64, 128), **{"device": "h200", "library": "cublas"} | more)
    yield _sized("library/v100/refused", (64, 64, 64), device="v100", format="fp16", library="cublas")
