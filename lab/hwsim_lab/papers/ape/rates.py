"""Ape's rates on the A100 (its Tables 1 and 2, section 4): peaks of the device, and GEMMs run on the timing machine.

It knows devices and schemes by name, and the sizes that stand in for those which the paper does not give.
"""

from __future__ import annotations

from typing import Any

from hwsim.formats import format_of
from hwsim_lab.papers.ape.representation import WITHIN_22_BITS, B, F, M, T, bits, least, top
from hwsim_lab.papers.conditions import Quantity
from hwsim_lab.papers.experiment import Experiment, Found, Scale, Series
from hwsim_lab.papers.rates import best_tflops, peak_tflops
from hwsim_lab.papers.splits import products, significands

DEVICE, CARD = "a100", "a100pcie"
EDGES = (1024, 2048, 4096, 8192, 12288, 16384)
#: Row of Table 2, fastest first by the paper -> options of the run.
ROWS = {
    "FP32-F": {"scheme": "ape-fp32-f"},
    "FP32-M": {"scheme": "markidis", "rounding": "RNE"},
    "FP32-B": {"scheme": "ape-fp32-b"},
    "FP32-T": {"scheme": "ape-fp32-t"},
    "FP32": {"scheme": "native", "format": "fp32"},
}
CLAIMS = (
    "table1-fp32-native", "table1-previous-fp16-peak", "table1-fp32f-peak", "table1-fp32f-fastest-peak",
    "sec2-1-a100-tensor-peak", "table2-fp32", "table2-fp32m", "table2-fp32f", "table2-fp32t", "table2-fp32b",
    "table2-ranking", "table2-fp32b-over-fp32t", "sec4-fp32f-theory-speedup", "sec4-fp32f-sustained-speedup",
    "sec4-sustained-below-theory", "sec2-3-markidis-four-products",
)  # fmt: skip


def measure(scale: Scale) -> Found:
    """Peaks and rates; both cards are run, as the paper does not say which it had."""
    rates = {name: best_tflops(DEVICE, EDGES, **given) for name, given in ROWS.items()}
    other = {name: best_tflops(CARD, EDGES, **given) for name, given in ROWS.items()}
    fp16, tf32, bf16 = (peak_tflops(DEVICE, name) for name in ("fp16", "tf32", "bf16"))
    single = format_of("fp32")
    number = {"min_exponent": single.min_exponent, "max_exponent": single.max_exponent}
    four, three = len(products(M.plan)), len(products(F.plan))
    exact = int((B.value(significands()) != significands()).sum())
    measured: dict[str, dict[str, Quantity]] = {
        "table1-fp32-native": {
            **number, "significand_bits": single.fraction_bits, "peak": peak_tflops(DEVICE, "fp32"),
        },
        "table1-previous-fp16-peak": {"peak": fp16 / four},
        "table1-fp32f-peak": {"peak": fp16 / three},
        "table1-fp32f-fastest-peak": {"fp32f": fp16 / 3, "fp32t": tf32 / 3, "fp32b": bf16 / 6},
        "sec2-1-a100-tensor-peak": {"peak": fp16},
        "table2-fp32": {"rate": rates["FP32"], "bits": single.fraction_bits, **number},
        "table2-fp32m": {
            "rate": rates["FP32-M"], "min_exponent": least(M, WITHIN_22_BITS), "max_exponent": top(M),
        },
        "table2-fp32f": {
            "rate": rates["FP32-F"], "bits": bits(F), "min_exponent": least(F, WITHIN_22_BITS), "max_exponent": top(F),
        },
        "table2-fp32t": {
            "rate": rates["FP32-T"], "bits": bits(T), "min_exponent": least(T, WITHIN_22_BITS), "max_exponent": top(T),
        },
        "table2-fp32b": {
            "rate": rates["FP32-B"], "inexact": exact, "min_exponent": least(B, 0.0), "max_exponent": top(B),
        },
        "table2-ranking": {"rates": [rates[name] for name in ROWS]},
        "table2-fp32b-over-fp32t": {"ratio": rates["FP32-B"] / rates["FP32-T"]},
        "sec4-fp32f-theory-speedup": {"products_before": four, "products": three},
        "sec4-fp32f-sustained-speedup": {"speedup": rates["FP32-F"] / rates["FP32-M"]},
        "sec4-sustained-below-theory": {"sustained": rates["FP32-F"] / rates["FP32-M"], "theory": four / three},
        "sec2-3-markidis-four-products": {"products": four},
    }  # fmt: skip
    cards = "The paper does not say which A100 it had. This is the SXM board of 400 W; on a PCIe one of 250 W, whose "
    cards += "clocks under load are fitted to PyTorch's GEMMs: "
    notes = {
        claim: cards + ", ".join(f"{name} {other[name]:.1f}" for name in names) + " TFLOP/s."
        for claim, names in (
            ("table2-fp32", ("FP32",)), ("table2-fp32m", ("FP32-M",)), ("table2-fp32f", ("FP32-F",)),
            ("table2-fp32t", ("FP32-T",)), ("table2-fp32b", ("FP32-B",)), ("table2-ranking", tuple(ROWS)),
            ("table2-fp32b-over-fp32t", ("FP32-B", "FP32-T")), ("sec4-fp32f-sustained-speedup", ("FP32-F", "FP32-M")),
        )
    }  # fmt: skip
    rows = [(chip, name, found[name]) for chip, found in ((DEVICE, rates), (CARD, other)) for name in ROWS]
    columns: dict[str, list[Any]] = {
        "device": [x[0] for x in rows],
        "type": [x[1] for x in rows],
        "TFLOP/s": [x[2] for x in rows],
    }
    return Found(measured, notes, (Series("table2", columns),))


EXPERIMENTS = (Experiment("rates", CLAIMS, measure, {"quick": 25, "full": 25}),)
