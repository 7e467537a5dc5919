"""Random devices, operands and options for the campaign against the integer reference; it computes no result."""

import functools
import math
import random

import numpy as np
from devices import full

import hwsim
from hwsim.devices.registry import shipped
from hwsim.errors import HwsimError
from hwsim.formats import FORMATS, code_dtype, format_of
from hwsim.gemm.summation import Chain, Range, Reduction, Region

NAMES = shipped()
KS = (1, 2, 3, 5, 8, 16, 17, 31, 32, 33, 48, 64, 67, 100, 128, 130, 160, 257)
EXTENTS = (1, 1, 2, 3, 5, 8, 16, 17, 33, 40, 65)
KINDS = (
    "near",
    "near",
    "wide",
    "all",
    "small",
    "overflow",
    "under",
    "ties",
    "ones",
    "special",
    "any",
    "sparse",
    "blocks",
)
ROUNDINGS = ("RNE", "RNA", "RZ", "RU", "RD")
TOLD = {"source": "DRAWN", "evidence": "assumption"}


def plain(x):
    """A number of a device's mapping without its source."""
    return x["value"] if isinstance(x, dict) and "value" in x else x


def model_of(tree, entry):
    """The model of an instruction's dot unit."""
    return tree["dot_units"][plain(entry["unit"])]["model"]


# --- devices ---------------------------------------------------------------------------------------------------------


def specials(rng, d):
    """Special values of a unit."""
    found = {
        "zero": rng.choice(("positive", "ieee")),
        "operands": rng.choice(("ieee", "ieee", "ieee", "saturate")),
        "overflow": rng.choice(("infinity", "infinity", "infinity", "saturate")),
        "flush_operands": rng.random() < 0.15,
        "flush_results": rng.random() < 0.15,
    }
    fmt = format_of(d)
    if rng.random() < 0.5 and fmt.nan == "ieee":
        found["nan_code"] = rng.choice(((1 << fmt.bits - 1) - 1, fmt.nan_code))
    return found


def unit(rng, k, entry):
    """A dot unit for instructions of this K and these formats."""
    a, d = plain(entry["a"]), plain(entry["d"])
    terms = rng.choice([x for x in range(1, k + 1) if k % x == 0 and x <= 64])
    if format_of(d).is_integer:
        return {"model": "integer", "terms": terms, "overflow": rng.choice(("wrap", "saturate")), **TOLD}
    common = {"rounding": rng.choice(ROUNDINGS), "specials": {**specials(rng, d), **TOLD}, **TOLD}
    kinds = ["exact", "fma_chain", "pairwise"]
    if d != "fp64":
        kinds += ["fused"] * 4 + ["two_level"] * 2
    if format_of(a).bits == 8 and d == "fp32" and k % 4 == 0:
        kinds += ["composite"] * 4
    model = rng.choice(kinds)
    if model == "fma_chain":
        order = {"nan_order": rng.choice(("abc", "bca", "cab", "acb"))} if rng.random() < 0.3 else {}
        return {"model": model, **common, **order}
    if model == "fused":
        fused = {
            "fraction_bits": rng.choice((8, 12, 13, 20, 23, 24, 25, 26, 27, 30, 35)),
            "floor_exponent": rng.choice((-133, -132, -131, -149, -21, -20, -60, 0)),
        }
        narrow = {"result_format": "e8m13"} if d == "fp32" and rng.random() < 0.25 else {}
        return {"model": model, "terms": terms, **fused, **narrow, **common}
    if model == "two_level":
        cuts = {
            "product_fraction_bits": rng.choice((16, 20, 24)),
            "sum_fraction_bits": rng.choice((26, 30, 32)),
            "accumulator_fraction_bits": rng.choice((20, 22, 24)),
            "final_fraction_bits": rng.choice((27, 31)),
            "interleaved": rng.random() < 0.4 and terms % 2 == 0,
        }
        if rng.random() < 0.5:  # those that the kernels' lanes take
            cuts |= {"product_fraction_bits": 24, "accumulator_fraction_bits": 24}
            cuts |= {"sum_fraction_bits": 32, "final_fraction_bits": 31}
        drop = {"accumulator_drop_bits": rng.choice((1, 3, 8, 12, 25))} if rng.random() < 0.4 else {}
        return {"model": model, "terms": terms, **cuts, **drop, **common}
    if model == "composite":
        inner = {"model": "fused", "terms": 4, "fraction_bits": 25, "floor_exponent": -133, **TOLD}
        inner["specials"] = {"nan_code": 0x7FFFFFFF, **TOLD}
        del common["rounding"]
        taken = rng.choice(([[0, 1], [2, 3]], [[0], [2]], [[1]], [[3], [0, 1]]))  # of some, products take no part
        parts = {"modulus": 4, "selections": taken, "operand_format": "fp16", "inner": inner}
        return {"model": model, "terms": k, **parts, **common}
    return {"model": model, "terms": terms, **common}


@functools.lru_cache(maxsize=1)
def device(seed):
    """(device, what was changed): a shipped device, or one with other dot units, instructions or conversions."""
    rng = random.Random(f"device {seed}")
    name = rng.choice(NAMES)
    if rng.random() < 0.4:
        return hwsim.device(name), ("as shipped",)
    tree = full(name)
    tree["sources"]["DRAWN"] = "at random"
    done = []
    users = {}
    for entry in tree["instructions"].values():
        users.setdefault(plain(entry["unit"]), []).append(entry)
    for key in rng.sample(sorted(users), min(len(users), rng.choice((1, 2, 4, 8)))):
        if tree["dot_units"][key]["model"] == "block_scaled":
            continue
        k = math.gcd(*(plain(entry["k"]) for entry in users[key]))
        tree["dot_units"][key] = unit(rng, k, users[key][0])
        done.append(f"{tree['dot_units'][key]['model']} unit")
    if tree.get("vector") and rng.random() < 0.3:
        saturates = rng.random() < 0.5
        tree["vector"]["specials"] = {
            "operands": "saturate" if saturates else "ieee",
            "overflow": "saturate" if saturates else "infinity",
            "zero": "ieee",
            **TOLD,
        }
        done.append("vector")
    for entry in tree["instructions"].values():
        if "scale_input_d" in entry and (rng.random() < 0.5 or model_of(tree, entry) != "fused"):
            rules = ("RZ", "RNE", "flush", *(["exact"] if model_of(tree, entry) == "fused" else []))
            entry["scale_input_d_rule"] = {"value": rng.choice(rules), **TOLD}
            done.append("scale rule")
        if plain(entry["a"]) in ("tf32", "hf32") and rng.random() < 0.3:
            entry["operand_rounding"] = {"value": rng.choice(ROUNDINGS), **TOLD}
            done.append("word rounding")
    try:
        return hwsim.device(tree), tuple(sorted(set(done))) or ("as shipped",)
    except HwsimError:
        return None, ("refused",)


# --- operands --------------------------------------------------------------------------------------------------------


def codes(rng, fmt, shape, kind, least, most):
    """Codes from bit fields. least, most: exponents of the result format, that `under` and `overflow` aim at."""
    known = FORMATS[fmt]
    dtype = code_dtype(known)
    if known.is_integer:
        found = rng.integers(0, 1 << known.bits, shape, np.uint64)
        if kind in ("ones", "overflow"):
            ends = [0, 1, (1 << known.bits) - 1, 1 << known.bits - 1, (1 << known.bits - 1) - 1]
            found = rng.choice(np.array(ends, np.uint64), shape)
        if kind in ("small", "near"):
            found = rng.integers(-3, 4, shape).astype(np.int64).astype(np.uint64) & np.uint64((1 << known.bits) - 1)
        return found.astype(dtype)
    p, top = known.fraction_bits, (1 << known.exponent_bits) - 1
    most_exponent = known.largest_magnitude >> p
    middle, spread = known.bias, 2
    if kind == "wide":
        spread = 20
    elif kind in ("all", "any"):
        middle, spread = top // 2, top // 2 + 1
    elif kind == "small":
        middle, spread = 1, 2
    elif kind == "overflow":
        middle, spread = known.bias + most // 2 + int(rng.integers(-2, 2)), 2
    elif kind == "under":
        middle, spread = known.bias + least // 2 - int(rng.integers(0, 14)), 3
    elif kind == "ties":
        spread = 13
    elif kind == "ones":
        spread = 1
    exponent = middle + rng.integers(-spread, spread + 1, shape)
    if kind == "blocks":
        steps = rng.choice([0, 0, -20, 20, -60, 110], (shape[0] // 16 + 1, shape[1] // 16 + 1))
        exponent = exponent + np.kron(steps, np.ones((16, 16), np.int64))[: shape[0], : shape[1]]
    exponent = np.clip(exponent, 0, most_exponent).astype(np.uint64)
    fraction = rng.integers(0, 1 << p, shape, np.uint64) if p else np.zeros(shape, np.uint64)
    chosen = rng.random(shape)
    single = np.uint64(1) << rng.integers(0, max(p, 1), shape).astype(np.uint64)
    if kind == "ones":
        fraction[:] = (1 << p) - 1
    sparse = 0.8 if kind == "ties" else 0.15
    if p:
        fraction = np.where(chosen < sparse, single, fraction)
        fraction = np.where(chosen > 0.8, np.uint64(0), fraction)
        fraction = np.where((chosen > 0.7) & (chosen <= 0.8), np.uint64((1 << p) - 1), fraction)
    magnitude = np.minimum(exponent << np.uint64(p) | fraction, np.uint64(known.largest_magnitude))
    magnitude[rng.random(shape) < 0.03] = 0
    magnitude[rng.random(shape) < 0.02] = 1
    if kind == "sparse":
        magnitude[rng.random(shape) < 0.6] = 0
    sign = rng.integers(0, 2, shape).astype(np.uint64) * np.uint64(known.signed)
    if known.nan == "minus_zero":
        sign[magnitude == 0] = 0
    word = sign << np.uint64(known.magnitude_bits) | magnitude
    if kind in ("special", "any"):
        share = 0.004 if kind == "special" else 0.03
        if known.has_infinity:
            put = rng.random(shape) < share
            word[put] = rng.choice(
                np.array([known.infinity_code(0), known.infinity_code(1)], np.uint64), int(put.sum())
            )
            word[put] >>= np.uint64(known.ignored_bits)
        if known.nan != "none":
            put = rng.random(shape) < share
            word[put] = known.nan_code >> known.ignored_bits
            if known.nan == "ieee":
                other = put & (rng.random(shape) < 0.5)
                payload = rng.integers(1, 1 << p, shape, np.uint64)
                others = np.uint64(known.largest_magnitude + 1) | payload | sign << np.uint64(known.magnitude_bits)
                word[other] = others[other]
    word = word << np.uint64(known.ignored_bits)
    if known.ignored_bits:
        word |= rng.integers(0, 1 << known.ignored_bits, shape, np.uint64)
    return word.astype(dtype)


def pair(rng, fmt, m, n, k, kind, least, most, cancels):
    """A (m, k) and B (k, n); cancels: neighbours along K have opposite products, some a last place apart."""
    a, b = codes(rng, fmt, (m, k), kind, least, most), codes(rng, fmt, (k, n), kind, least, most)
    known = FORMATS[fmt]
    if cancels and k > 1 and not known.is_integer and known.signed and known.nan != "minus_zero":
        even, odd = slice(0, k // 2 * 2, 2), slice(1, k // 2 * 2, 2)
        a[:, odd], b[odd] = a[:, even], b[even]
        b[odd] ^= np.asarray(1 << known.magnitude_bits + known.ignored_bits, b.dtype)
        near = rng.random(b[odd].shape) < 0.2
        b[odd] ^= near.astype(b.dtype) << known.ignored_bits
    return a, b


# --- options ---------------------------------------------------------------------------------------------------------

NUMBERS = {
    "k_group": (1, 3, 8, 16, 17, 32, 48, 64, 128),
    "scaling_exponent": tuple(range(15)),
    "promotion_interval": (1, 2, 3, 4),
    "slices": (1, 2, 3, 5, 8),
    "pieces": (1, 2, 3, 4),
    "block": (16, 17, 32, 48),
}


def scheme_options(rng, scheme, device):
    """Options of a scheme, allowed by its declarations."""
    found = {}
    for option in scheme.options:
        if rng.random() < 0.55 or option.name in ("wide_percent", "hybrid"):
            continue
        if option.choices:
            found[option.name] = rng.choice(option.choices)
        elif option.name in NUMBERS:
            found[option.name] = rng.choice(NUMBERS[option.name])
        elif option.type.name == "truth":
            found[option.name] = rng.random() < 0.5
        elif option.name == "format":
            found[option.name] = rng.choice(sorted(device.native))
        elif option.name == "format_b" and rng.random() < 0.3:
            found[option.name] = rng.choice(("e4m3", "e5m2"))
    return found


def span_chain(rng, start, stop):
    """A chain over some of K, in one range or several."""
    kind = rng.random()
    if kind < 0.6:
        return Chain((Range(start, stop),))
    if kind < 0.8:
        step = rng.choice((2, 4, 8, 16, 24))
        block = rng.choice([x for x in (1, 2, 4, 8, 16) if x <= step])
        return Chain(tuple(Range(min(start + at, stop), stop, step, block) for at in range(0, step, block)))
    middle = rng.randint(start, stop)
    return Chain((Range(middle, stop), Range(start, middle)))


def written(rng, k, depth=2):
    """A sum that is written out."""
    if depth == 0 or k < 2 or rng.random() < 0.2:
        return span_chain(rng, 0, k)

    def part(start, stop, left):
        if left == 0 or stop - start < 2 or rng.random() < 0.5:
            return span_chain(rng, start, stop)
        return reduction(start, stop, left)

    def reduction(start, stop, left):
        count = min(rng.choice((1, 2, 3, 4, 5, 7)), stop - start)
        cuts = sorted(rng.sample(range(start + 1, stop), count - 1))
        parts = tuple(part(x, y, left - 1) for x, y in zip((start, *cuts), (*cuts, stop), strict=True))
        order = rng.choice(("ascending", "descending", "pairwise", "halving", "named"))
        if order == "named":
            order = tuple(rng.sample(range(count), count))
        formats = {}
        if rng.random() < 0.15:
            formats["format"] = rng.choice(("fp32", "fp16", "bf16"))
        if rng.random() < 0.15:
            formats["stored"] = rng.choice(("fp32", "fp16", "bf16"))
        return Reduction(parts, order, rng.choice(("first", "zero")), **formats)

    return reduction(0, k, depth)


def schedule(rng, m, n, k, names):
    """Fields of a schedule. names: instructions to choose from."""
    found = {}

    def maybe(share):
        return rng.random() < share

    kind = rng.random()
    if kind < 0.35:
        found["split_k"] = rng.choice((2, 3, 4, 5))
        found["slice_multiple"] = rng.choice((1, 8, 16, 32, 64))
    elif kind < 0.5:
        found["slice_k"] = rng.choice((5, 16, 24, 32, 64))
    elif kind < 0.6 and k > 2:
        cut = rng.randint(1, k - 1)
        found["slice_k"] = (cut, k - cut)
        if maybe(0.5):
            found["merge_order"] = rng.choice(((0, 1), (1, 0)))
    elif kind < 0.75:
        found["sum"] = written(rng, k)
    elif kind < 0.85:
        rows = Range(0, m) if maybe(0.5) else Range(0, m, 2, 1)
        cols = Range(rng.randint(0, n - 1), n)
        found["regions"] = (Region(rows, cols, written(rng, k)),)
        if maybe(0.5):
            found["regions"] += (Region(Range(0, m), Range(0, cols.start), written(rng, k)),)
    if "merge_order" not in found and maybe(0.4):
        found["merge_order"] = rng.choice(("ascending", "descending", "pairwise"))
    if maybe(0.2):
        found["partial_format"] = rng.choice(("fp32", "fp16", "bf16", "fp64"))
    if maybe(0.2):
        found["merge_format"] = rng.choice(("fp32", "fp16", "bf16", "fp64"))
    if maybe(0.15):
        found = {x: y for x, y in found.items() if x not in ("partial_format", "merge_format", "merge_order")}
        found["merge_into"] = "output"
        found["merge_order"] = rng.choice(("ascending", "descending"))
    if maybe(0.25):
        found["promotion_k"] = rng.choice((1, 5, 8, 16, 32, 48, 64))
    if maybe(0.15):
        size = rng.choice((2, 3, 4, 8, 16))
        found["k_permutation"] = tuple(rng.sample(range(size), size))
    if maybe(0.15) and "sum" not in found and "promotion_k" not in found:
        found |= {"remainder": "first", "tile_k": rng.choice((16, 24, 32, 64))}
    if maybe(0.15):
        found["operand_rounding"] = rng.choice(ROUNDINGS)
    if maybe(0.15) and names:
        found["instruction"] = rng.choice(names)
    if maybe(0.1):
        found["start"] = "c"
    return found


def number(rng):
    """alpha or beta."""
    return rng.choice((1.0, 0.5, -1.0, 0.1, 3.0, -2.5, 1e-3, 65537.0, 0.0, -0.0, 1 + 2.0**-23, 1e38, 1e-40, 2.0, 7.0))


def epilogue(rng):
    """Fields of an epilogue, but alpha and beta."""
    found = {}
    if rng.random() < 0.3:
        found["contraction"] = rng.choice(("none", "alpha", "beta"))
    elif rng.random() < 0.15:
        found["product_format"] = rng.choice(("fp16", "bf16", "fp32"))
    if rng.random() < 0.2:
        found["output_rounding"] = rng.choice(ROUNDINGS)
    return found
