"""Times of multiword TF32 and TF64 on the A100 (Sections 2.2, 2.4, 3.2 and 5), of schemes run as calls of a library.

It knows the paper's settings as the claims assume them. A scheme of FP16 words is the TF32 one with other pieces.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

from hwsim.analysis.energy import LEVELS, EnergyLevel, energy
from hwsim.api import program, run
from hwsim.devices import load
from hwsim.devices.device import Device
from hwsim.devices.query import instruction
from hwsim.formats import format_of
from hwsim.program.ir import GlobalArray
from hwsim.result import Result
from hwsim.schemes import scheme_of
from hwsim.schemes.multiword import plan
from hwsim.schemes.scheme import Scheme
from hwsim_lab.papers.conditions import Quantity
from hwsim_lab.papers.experiment import Experiment, Found, Scale, Series
from hwsim_lab.papers.tf32_tf64.definitions import A100, TF64

SIZES = (1024, 2048, 4096, 8192, 12288, 16384)
SPLIT_SIZES = (1024, 2048, 3072, 4096, 6144, 8192)
MEMORY_SIZE = 4096
#: n = m = k of the projection and of the energies.
PROJECTED_SIZES = (2048, 3072, 4096, 6144, 8192, 12288)
TF64_SPEEDUP = 8  # over the FP64 of the ordinary cores, as the claim assumes
CLAIMS = (
    "sec2-2-three-faster-than-four", "sec3-2-3xtf32-run", "sec3-2-uplift-run", "sec3-2-speed-against-fp16",
    "sec3-2-split-cost", "sec3-2-no-extra-memory", "sec5-speed-against-previous",
)  # fmt: skip


def words(format: str, count: int) -> Scheme:
    """The paper's scheme with two words of a format and so many products, each a call of its own."""
    name = f"{format}x{count}"
    base = scheme_of(f"tf32x{count}")
    return Scheme(
        name,
        base.title,
        base.source,
        base.options,
        partial(plan, name, format, "fp32", count),
        base.inspect,
        input_formats=base.input_formats,
    )


METHODS: dict[str, dict[str, Any]] = {
    "1xTF32": {"scheme": "tf32x1"},
    "3xTF32": {"scheme": "tf32x3"},
    "4xTF32": {"scheme": "tf32x4"},
    "3xFP16": {"scheme": words("fp16", 3)},
    "Markidis": {"scheme": words("fp16", 4)},
    "Ootomo": {"scheme": "ootomo-fp16"},
    "SGEMM": {"format": "fp32"},
}


def timed(method: str, n: int, device: str | Device = A100, **options: Any) -> Result:
    """The timed run of a method, n = m = k, from FP32 matrices."""
    return run(m=n, n=n, k=n, device=device, exact=False, input_format="fp32", **METHODS[method], **options)


def seconds(method: str, n: int, **options: Any) -> float:
    """Seconds of a method, its split included."""
    found = timed(method, n, **options).seconds
    assert found is not None
    return found


def split_seconds(result: Result) -> float:
    """Seconds of the kernels that prepare the operands."""
    return sum(float(phase["seconds"]) for phase in result.phases if str(phase["name"]).startswith("split"))


def extra_bytes(method: str, n: int) -> float:
    """Bytes of device memory beside A, B and C, over those of A and B."""

    def held(arrays: tuple[GlobalArray, ...]) -> float:
        return sum(one.rows * one.cols * format_of(one.format).bits / 8 for one in arrays)

    given = METHODS[method]
    made = program(device=A100, m=n, n=n, k=n, input_format="fp32", **given)[1]
    own = [one for one in made.arrays if one.name.startswith(("A.in", "B.in")) or one.name in ("A", "B")]
    own_bytes = held(tuple(own))
    c = held(tuple(one for one in made.arrays if one.name == "C"))
    return (held(made.arrays) - own_bytes - c) / own_bytes


def over(slow: dict[int, float], fast: dict[int, float]) -> list[float]:
    """Ratios of times, by size."""
    return [slow[n] / fast[n] for n in slow]


def measure(scale: Scale) -> Found:
    """Times and memory of the schemes."""
    sizes = SIZES
    every = {(method, n): timed(method, n) for method in METHODS for n in sizes}
    prepared = {(m, n): split_seconds(timed(m, n)) for m in ("3xFP16", "3xTF32") for n in SPLIT_SIZES}
    times = {m: {n: float(every[m, n].seconds or 0.0) for n in sizes} for m in METHODS}
    rate = {m: [2e-12 * n**3 / times[m][n] for n in sizes] for m in METHODS}
    splits = {m: [prepared[m, n] for n in SPLIT_SIZES] for m in ("3xFP16", "3xTF32")}
    boost = load(A100).clock_mhz
    n = sizes[-1]
    unlimited = 2e-12 * n**3 / seconds("3xTF32", n, clock_mhz=boost)
    products = 2e-12 * n**3 / (times["3xTF32"][n] - split_seconds(every["3xTF32", n]))
    measured: dict[str, dict[str, Quantity]] = {
        "sec2-2-three-faster-than-four": {"ratio": over(times["4xTF32"], times["3xTF32"])},
        "sec3-2-3xtf32-run": {"rate": rate["3xTF32"]},
        "sec3-2-uplift-run": {"uplift": over(times["SGEMM"], times["3xTF32"])},
        "sec3-2-speed-against-fp16": {"ratio": over(times["3xFP16"], times["3xTF32"])},
        "sec3-2-split-cost": {"ratio": [x / y for x, y in zip(splits["3xFP16"], splits["3xTF32"], strict=True)]},
        "sec3-2-no-extra-memory": {
            "extra": extra_bytes("3xTF32", MEMORY_SIZE), "extra_fp16": extra_bytes("3xFP16", MEMORY_SIZE)
        },
        "sec5-speed-against-previous": {
            "over_markidis": over(times["Markidis"], times["3xTF32"]),
            "over_ootomo": over(times["Ootomo"], times["3xTF32"]),
        },
    }  # fmt: skip
    clock = load(A100).sustained_clock_mhz["tf32"]
    share = 100 * split_seconds(every["3xTF32", n]) / times["3xTF32"][n]
    reached = (
        f"A third of the peak is reached by no run: at n = {n} the power limit holds the A100 at {clock:.0f} MHz "
        f"instead of {boost:.0f}, without which it would be {unlimited:.1f} TFLOP/s, and the split takes {share:.1f} % "
        f"of the time, without which it would be {products:.1f}. Launches are not counted."
    )
    wider = (
        "FP16 words are half as large and FP16 products run at twice the rate, so that every kernel of 3xFP16 takes "
        "about half the time. Launches are not counted."
    )
    faster = unlimited / rate["SGEMM"][-1]
    notes = {
        "sec3-2-3xtf32-run": reached,
        "sec3-2-uplift-run": f"{reached} Without the power limit the gain would be {faster:.2f}.",
        "sec3-2-speed-against-fp16": wider,
        "sec3-2-split-cost": (
            "Both splits read A and B in FP32 and write two words per entry, of 32 bits for TF32, 16 for FP16: "
            "12 bytes against 8."
        ),
        "sec3-2-no-extra-memory": "A1, A2, B1 and B2 in 32-bit words are twice the bytes of A and B, in FP16 once.",
        "sec5-speed-against-previous": (
            f"{wider} Markidis' four products are 4 at the FP16 rate against 3 at half of it: "
            f"{rate['Markidis'][-1]:.1f} TFLOP/s at n = {n}; Ootomo's fused kernel {rate['Ootomo'][-1]:.1f}, 3xTF32 "
            f"{rate['3xTF32'][-1]:.1f}."
        ),
    }
    columns: dict[str, list[object]] = {"line": [], "n": [], "tflops": []}
    for method in METHODS:
        columns["line"] += [method] * len(sizes)
        columns["n"] += list(sizes)
        columns["tflops"] += rate[method]
    return Found(measured, notes, (Series("rates", columns, x="n", y="tflops", by="line", log="x"),))


# --- Section 2.4: the device that has TF64 Tensor Cores --------------------------------------------------------------


@cache
def tf64_device(tensor: float | None = None) -> Device:
    """The A100 with TF64 Tensor Cores at 8 times the FP64 rate of its ordinary cores, which are half its FP32 lanes.

    tensor: multiply-adds per cycle of the TF64 unit instead.
    """
    base = load(TF64)
    lanes = float(instruction(base, "fma.rn.f32").macs_per_cycle) / 2
    unit = instruction(base, base.native["fp32"])
    fma = {
        "engine": "FMA", "unit": "f64", "m": 1, "n": 1, "k": 1, "a": "fp64", "b": "fp64", "c": "fp64", "d": "fp64",
        "memories": ["RF", "RF", "RF"], "timing": {"macs_per_cycle": lanes, "drain_cycles": 4},
        "source": "NONE; one for two FP32 lanes", "evidence": "assumption",
    }  # fmt: skip
    faster = {
        "timing": {
            "macs_per_cycle": {"value": tensor or TF64_SPEEDUP * lanes, "source": "TF64", "evidence": "assumption"}
        }
    }
    given = {
        "schema_version": 1, "name": "tf64-projected", "title": "A100 with fast TF64 Tensor Cores", "extends": TF64,
        "inherited": {"source": "NONE; what-if", "evidence": "assumption"},
        "instructions": {"fma.rn.f64": fma, _name(base): faster},
        "native": {"fp64": "fma.rn.f64"},
    }  # fmt: skip
    assert unit.a == "fp32"
    return load(given)


def _name(chip: Device) -> str:
    return chip.native["fp32"]


def measure_projection(scale: Scale) -> Found:
    """DGEMM on the ordinary cores beside TF64 schemes, on the device that has them."""
    chip, uplift, shares = tf64_device(), {}, {}
    for n in PROJECTED_SIZES:
        double: dict[str, Any] = {"device": chip, "m": n, "n": n, "k": n, "exact": False, "input_format": "fp64"}
        slow = run(**double, format="fp64")
        fast = {count: run(**double, scheme=f"tf64x{count}") for count in (1, 3)}
        assert slow.seconds is not None
        for count, one in fast.items():
            uplift[count, n] = slow.seconds / float(one.seconds or 0.0)
            shares[count, n] = _share(one)
    measured = {
        "sec2-4-performance-assumed": {
            "uplift_one": [uplift[1, n] for n in PROJECTED_SIZES],
            "uplift_three": [uplift[3, n] for n in PROJECTED_SIZES],
        }
    }
    largest = PROJECTED_SIZES[-1]
    note = (
        "The rate of the TF64 unit is hwsim's assumption, as the paper names none: the gain follows from it. The "
        f"conversions take {shares[1, largest]:.1f} % of 1xTF64's time and {shares[3, largest]:.1f} % of 3xTF64's at "
        f"n = {largest}."
    )
    return Found(measured, {"sec2-4-performance-assumed": note})


def _share(result: Result) -> float:
    return 100 * split_seconds(result) / float(result.seconds or 0.0)


def joules(method: str, n: int, level: EnergyLevel) -> float:
    """Joules of a method, by assumed energies of operations and bytes."""
    result = timed(method, n)
    return energy(result.times, result.gemm, level).joules


def measure_energy(scale: Scale) -> Found:
    """Energy of SGEMM on the ordinary cores over that of 1xTF32."""
    ratio = [joules("SGEMM", n, "typical") / joules("1xTF32", n, "typical") for n in PROJECTED_SIZES]
    n = PROJECTED_SIZES[-1]
    alike = {level: joules("SGEMM", n, level) / joules("1xTF32", n, level) for level in LEVELS}
    least = joules("SGEMM", n, "low") / joules("1xTF32", n, "high")
    most = joules("SGEMM", n, "high") / joules("1xTF32", n, "low")
    note = (
        "Marked: by assumed energies (configs/energy/chips.yaml, written before), not by measured power. At "
        f"n = {n}, all at their low, typical or high level, the ratio is {alike['low']:.2f}, {alike['typical']:.2f}, "
        f"{alike['high']:.2f}; with the two at opposite ends {least:.2f} to {most:.2f}."
    )
    return Found({"sec1-power-efficiency": {"ratio": ratio}}, {"sec1-power-efficiency": note})


EXPERIMENTS = (
    Experiment("energy", ("sec1-power-efficiency",), measure_energy, {"quick": 3.0, "full": 3.0}),
    Experiment("speed", CLAIMS, measure, {"quick": 12.0, "full": 12.0}),
    Experiment("projection", ("sec2-4-performance-assumed",), measure_projection, {"quick": 4.0, "full": 4.0}),
)
