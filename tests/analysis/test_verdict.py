"""Verdicts on the time: shares that add up to the whole, and words that are true of the run."""

import json
import re
import shlex
from functools import cache

import pytest
from timing_device import device, kernel, program

import hwsim
from hwsim.analysis import advice
from hwsim.analysis.changed_numbers import program_with_numbers
from hwsim.analysis.time_shares import (
    BEFORE,
    EPILOGUE,
    IDLE_CORES,
    ISSUE,
    LAST_EPILOGUE,
    LAST_WAVE,
    LAUNCHES,
    OF_PASSES,
    OPERANDS,
    UNEVEN,
    PartUse,
    TimeShares,
    time_shares,
)
from hwsim.analysis.verdict import BOUND_SHARE, MATTERS, SATURATED, binding_parts, bound_of, lost_words, part_words
from hwsim.cli import main
from hwsim.devices import changed, load
from hwsim.devices.numbers import paths_of
from hwsim.devices.templates import new_device_file
from hwsim.machines import timing
from hwsim.program.ir import Instr, LocalTile

pytestmark = pytest.mark.searches

MANY = 1000  # timing runs
#: {what it is: (device, arguments of hwsim.run, what bounds it)}, of every family. None: the bound is not this test's.
CASES = {
    "sm70, compute": ("v100", {"format": "fp16", "m": 2048, "n": 2048, "k": 2048}, "compute"),
    "sm75": ("t4", {"format": "fp16", "m": 1024, "n": 512, "k": 512}, None),
    "sm80, L2": ("a100", {"format": "bf16", "m": 2048, "n": 2048, "k": 2048}, "L2"),
    "sm89, idle cores": ("rtx4090", {"format": "fp16", "m": 512, "n": 512, "k": 8192}, "tiles"),
    "sm90, compute": ("h100", {"format": "bf16", "m": 4096, "n": 4096, "k": 4096}, "compute"),
    "sm90, memory": ("h100", {"format": "bf16", "m": 8192, "n": 64, "k": 8192}, "memory"),
    "sm90, tiny": ("h100", {"format": "bf16", "m": 128, "n": 128, "k": 128}, "latency"),
    "sm90, one element": ("h100", {"format": "bf16", "m": 1, "n": 1, "k": 1}, "latency"),
    "sm90, last wave": (
        "h100",
        {"format": "bf16", "m": 256 * 133, "n": 128, "k": 4096, "tile": {"m": 256, "n": 128, "k": 64}},
        None,
    ),
    "sm90, casts": ("h100", {"format": "bf16", "input_format": "fp32", "m": 4096, "n": 64, "k": 4096}, None),
    "sm90, split-K": ("h100", {"format": "bf16", "m": 256, "n": 256, "k": 65536, "split_k": 16}, None),
    "sm90, CUDA cores": ("h100", {"format": "fp32", "m": 1024, "n": 1024, "k": 1024}, "compute"),
    "sm90, nine products": ("h100", {"scheme": "bf16x9", "m": 1024, "n": 1024, "k": 1024}, None),
    "sm90, integers": ("h100", {"scheme": "ozaki-int8", "m": 512, "n": 512, "k": 512}, None),
    "sm90, mixed plan": ("h100", {"scheme": "ape", "m": 256, "n": 256, "k": 256}, None),
    "sm90, launches": ("h200", {"format": "bf16", "m": 64, "n": 64, "k": 64, "launch_overhead": True}, "launches"),
    "sm100, compute": ("b200", {"format": "e4m3", "m": 4096, "n": 4096, "k": 4096}, "compute"),
    "cdna": ("mi300x", {"format": "bf16", "m": 2048, "n": 2048, "k": 2048}, "compute"),
    "cdna2": ("mi210", {"format": "fp16", "m": 512, "n": 512, "k": 512}, None),
    "davinci": ("ascend910a", {"scheme": "sgemm-cube", "m": 512, "n": 512, "k": 512}, None),
    "davinci_separated": ("ascend910b3", {"format": "fp16", "m": 2048, "n": 2048, "k": 2048}, "compute"),
    "davinci_separated, passes": ("ascend910b3", {"scheme": "ape", "m": 256, "n": 256, "k": 256}, "passes"),
    "tf64": ("tf64", {"m": 512, "n": 512, "k": 512}, "L2"),
}


#: Plans of several kinds of products, and runs of more than 200,000 instructions, whose traces take long.
UNTRACED = ("sm90, mixed plan", "davinci_separated, passes", "sm70, compute", "sm90, integers")


@cache
def run(case):
    name, arguments, _ = CASES[case]
    return hwsim.run(device=name, exact=False, **arguments)


def faster(result, numbers):
    """The share of the cycles that other numbers of the device save."""
    chip = changed(result.times.chip, numbers)
    return 1 - timing.run_in(result.times.program, chip, result.times.l2).cycles / result.cycles


def mma(repeat):
    tiles = LocalTile("la", 64, 32, "fp16"), LocalTile("lb", 32, 64, "fp16")
    return Instr("M", "mma", (LocalTile("lc", 64, 64, "fp32"),), tiles, unit="mm", repeat=repeat)


@pytest.mark.parametrize("tiles, cause", [({}, UNEVEN), ({"k": (2, 2)}, UNEVEN), ({"k": (3, 2)}, LAST_WAVE)])
def test_shares_by_hand(tiles, cause):
    """Two of four cores: one multiplies for 82 cycles, one for 41, from cycle 1; the last result is there at 103."""
    chip = device(cores=4)
    work = program(kernel((mma(2),), (mma(1),)))
    shares = time_shares(timing.run(work, chip), work, chip, tiles=tiles)
    total = 4 * 103
    assert shares.busy == (82 + 41) / total
    by_hand = {IDLE_CORES: 2 * 103, cause: 41, LAST_EPILOGUE: 2 * 20, ISSUE: 2}
    assert shares.lost == {name: cycles / total for name, cycles in by_hand.items()}
    assert shares.engine == "M" and shares.parts[0].share == shares.busy


@pytest.mark.parametrize("case", CASES)
def test_shares_add_up_to_the_whole_time(case):
    verdict = run(case).verdict
    assert verdict.busy + sum(verdict.lost.values()) == pytest.approx(1, abs=1e-12)
    assert all(share > 0 for share in verdict.lost.values())
    assert all(0 <= part.share <= 1 + 1e-9 for part in verdict.parts)


@pytest.mark.parametrize("case", [case for case, (_, _, bound) in CASES.items() if bound is not None])
def test_what_bounds(case):
    assert run(case).verdict.bound == CASES[case][2]


def test_a_bound_does_not_claim_what_the_first_advice_denies():
    """L2 is the busiest part and twice its rate saves time, but twice the rate of the tensor cores saves more."""
    shape = {"m": 4096, "n": 768, "k": 1024}
    verdict = hwsim.run(device="h200", format="bf16", library="cublas", exact=False, **shape).verdict
    of_device = next(item for item in verdict.advice if item.of_device)
    assert of_device.change.startswith("twice the rate of wgmma.")
    assert str(verdict).startswith("bound by L2 and tensor cores together: L2 busy 66 %, tensor cores busy 64 %")
    assert verdict.bound == "L2"  # the busiest part


@pytest.mark.parametrize("case", CASES)
def test_the_words_are_true(case):
    """The first sentence against quantities that the verdict is not made of."""
    result, text = run(case), str(run(case).verdict)
    verdict, cores = result.verdict, result.times.chip.cores
    seconds = result.times.timed.cycles / (result.times.chip.clock_mhz * 1e6)
    launched = result.verdict.lost.get(LAUNCHES, 0.0)
    moved = sum(result.traffic_bytes.get(name, 0) for name in ("HBM read", "HBM write"))
    dram = moved / result.times.chip.hbm.bytes_per_second / seconds * (1 - launched)
    if verdict.bound == "compute":
        assert text.startswith("compute bound") and verdict.busy >= BOUND_SHARE
        twice = {"hbm.bytes_per_second": 2 * result.times.chip.hbm.bytes_per_second}
        assert dram <= verdict.busy or faster(result, twice) < 0.05
    if verdict.bound == "memory":
        assert text.startswith(f"memory bound: DRAM busy {100 * dram:.0f} %") and dram >= BOUND_SHARE
        twice = {"hbm.bytes_per_second": 2 * result.times.chip.hbm.bytes_per_second}
        assert dram >= SATURATED or faster(result, twice) >= 0.05
    if verdict.bound == "L2":
        l2 = result.times.chip.l2
        rates = {"bytes_per_second": l2.bytes_per_second, "write_bytes_per_second": l2.write_bytes_per_second}
        assert faster(result, {f"l2.{name}": 2 * rate for name, rate in rates.items() if rate}) >= 0.05
    if verdict.bound == "latency":
        assert verdict.busy < BOUND_SHARE and verdict.shares.waits > sum(
            verdict.lost.get(cause, 0.0) for cause in OF_PASSES
        )
    if verdict.bound == "tiles":
        assert any(row.idle_cores or row.tiles % (row.cores - row.idle_cores) for row in result.occupancy)
    engine = verdict.shares.engine
    busy = sum(timed.engines[engine].busy_cycles for timed in result.times.timed.kernels)
    assert verdict.busy == pytest.approx(busy / cores / result.times.timed.cycles * (1 - launched), rel=1e-9)


@pytest.mark.parametrize("case", [case for case in CASES if case not in UNTRACED])
def test_the_loss_after_the_last_product_is_the_trace_s(case):
    """The end of each kernel less the end of the matrix units' last instruction on any core."""
    result = run(case)
    rows, trace = result.trace.rows, result.trace
    engine, opcode, of_kernel = (trace.column(name) for name in ("engine", "opcode", "kernel"))
    start, after = 0, 0.0
    for timed in result.times.timed.kernels:
        products = rows["free"][(engine == result.verdict.shares.engine) & (of_kernel == timed.name)]
        start += timed.cycles
        if len(products) and "mma" in opcode[of_kernel == timed.name]:
            after += timed.cores * (start - products.max())
    total = result.times.chip.cores * start
    lost = result.verdict.lost.get(LAST_EPILOGUE, 0.0) / (1 - result.verdict.lost.get(LAUNCHES, 0.0))
    assert lost == pytest.approx(after / total, rel=1e-6)


def test_passes_and_launches_are_shares_of_the_time():
    result = run("sm90, casts")
    passes = [phase.cycles for phase in result.phases if phase.name != "gemm"]
    assert len(passes) == 2 and result.verdict.lost[BEFORE] == pytest.approx(sum(passes) / result.cycles, rel=1e-12)
    result = run("sm90, launches")
    launch = result.times.chip.launch_overhead_us * 1e-6 * len(result.phases)
    assert result.verdict.lost[LAUNCHES] == pytest.approx(launch / result.seconds, rel=1e-9)


def test_a_slow_way_out_is_an_epilogue_that_loses_time():
    sizes = {"m": 4096, "n": 4096, "k": 256, "format": "bf16"}
    lost = []
    for chip in (hwsim.devices.load("h100"), changed(hwsim.devices.load("h100"), {"links.SMEM_GM.bytes_per_cycle": 4})):
        verdict = hwsim.run(device=chip, exact=False, tile={"m": 256, "n": 128, "k": 64}, **sizes).verdict
        lost.append(verdict.lost.get(EPILOGUE, 0.0) + verdict.lost[LAST_EPILOGUE])
    assert lost[1] > lost[0] + 0.2
    assert "epilogue" in str(verdict)


def test_a_slow_way_in_is_waiting_for_operands():
    chip = changed(hwsim.devices.load("h100"), {"links.GM_SMEM.bytes_per_cycle": 4})
    verdict = hwsim.run(device=chip, exact=False, m=4096, n=4096, k=1024, format="bf16").verdict
    assert verdict.bound == "link" and "link GM_SMEM busy" in str(verdict)
    assert next(iter(verdict.lost)) == OPERANDS


def changes_of(option):
    """{path or pattern: factor} of an option --what-if as a shell reads it; empty of another option."""
    words = shlex.split(option)
    return dict(part.split("=") for part in words[1].split(",")) if words[0] == "--what-if" else {}


def test_numbers_of_one_part_are_one_pattern_that_names_no_other():
    result = hwsim.run(device="h200", scheme="tf32x3", m=1024, n=1024, k=1024, exact=False)
    (pair,) = (item for item in result.verdict.advice if " together with " in item.change)
    rate = "instructions.wgmma.m64nNk8.f32.tf32.tf32.timing.*macs_per_cycle*"
    assert changes_of(pair.option) == {"l2.*bytes_per_second*": "2x", rate: "2x"}
    for pattern in changes_of(pair.option):
        assert all("per_second" in path or "macs_per_cycle" in path for path in paths_of(load("h200"), pattern))


@pytest.mark.parametrize("case", ["sm80, L2", "sm90, memory", "sm90, tiny", "davinci_separated", "cdna"])
def test_the_advice_comes_true(case):
    """The gain of a number is what a run with that number saves."""
    result = run(case)
    numbers = [item for item in result.verdict.advice if "--what-if" in item.option]
    gains = [item.gain for item in numbers]
    assert gains and gains == sorted(gains, reverse=True) and numbers == list(result.verdict.advice)[-len(gains) :]
    for item in numbers:
        changes = changes_of(item.option)
        assert item.gain == pytest.approx(1 - same_program(result, changes) / result.times.timed.cycles, abs=1e-12)
        assert f"{100 * item.gain:.0f} % with the same tiles and clock" in str(item)
        tried = result.with_numbers(changes)  # by the faster of two mappings, at the clock under the new load
        assert tried.seconds[1] < (tried.old_mapping_seconds or result.seconds)


def same_program(result, changes):
    """Cycles of a run's program with other numbers at its clock."""
    times = result.times
    return program_with_numbers(times.program, times.chip, changes, l2=times.l2).cycles[1]


def test_gains_are_of_the_time_with_its_launches():
    result = run("sm90, launches")
    program_seconds = result.times.timed.cycles / result.times.chip.clock_mhz / 1e6
    for item in result.verdict.advice:
        changes = changes_of(item.option)
        if changes:
            saved = program_seconds - same_program(result, changes) / result.times.chip.clock_mhz / 1e6
            assert item.gain == pytest.approx(saved / result.seconds, rel=1e-6)


def test_two_changes_are_advice_where_they_save_more_together_than_alone():
    call = {"device": "a100", "format": "fp16", "m": 1024, "n": 1024, "k": 4096, "exact": False}
    result = hwsim.run(**call)
    pair = next(item for item in result.verdict.advice if " together with " in item.change)
    assert next(item for item in result.verdict.advice if item.of_device) is pair
    singles = {item.change: item.gain for item in result.verdict.advice}
    parts = pair.change.split(" together with ")
    assert pair.gain > sum(singles.get(part, 0.0) for part in parts) + 0.01
    changes = changes_of(pair.option)
    assert f"alone {100 * singles.get(parts[0], 0.0):.0f} % and {100 * singles[parts[1]]:.0f} %" in str(pair)
    assert same_program(result, changes) == pytest.approx((1 - pair.gain) * result.cycles, abs=1)
    alone = hwsim.run(**call | {"device": "h200"}).verdict  # compute bound: no second part is left over
    assert not any(" together with " in item.change for item in alone.advice)


def test_of_a_long_program_the_busiest_parts_are_tried(monkeypatch):
    result = run("sm90, memory")
    monkeypatch.setattr(advice, "MOST_INSTRUCTIONS", result.times.timed.instructions)
    tried = advice.advice_on(result.times, result.verdict.shares)
    assert [item.change for item in tried if "--what-if" in item.option] == ["twice the rate of DRAM"]


def test_the_advice_on_casts_comes_true():
    result = run("sm90, casts")
    cast = next(item for item in result.verdict.advice if "--input-format" in item.option)
    assert cast.option == "--input-format bf16" and cast.is_most
    other = hwsim.run(device="h100", exact=False, **CASES["sm90, casts"][1] | {"input_format": "bf16"})
    assert 0.5 * cast.gain < 1 - other.cycles / result.cycles < 1.1 * cast.gain


@pytest.mark.parametrize("library", [None, "cublas"])
def test_the_advice_on_the_format_of_c_comes_true(library):
    call = {"device": "h200", "format": "bf16", "m": 4096, "n": 512, "k": 1024, "library": library, "exact": False}
    result = hwsim.run(**call)
    advised = next(item for item in result.verdict.advice if item.option == "--output bf16")
    assert advised.gain > 0.05
    assert str(advised).startswith(f"a C in bf16 would save {100 * advised.gain:.0f} % ")
    assert advised.gain == 1 - hwsim.run(**call, output="bf16").seconds / result.seconds


@pytest.mark.parametrize("options", [{"output": "fp32"}, {"input_format": "fp32"}, {"format": "e4m3"}])
def test_no_advice_on_the_format_of_c_where_it_was_asked_for_or_operands_are_not_of_16_bits(options):
    call = {"device": "h200", "format": "bf16", "m": 4096, "n": 512, "k": 1024, "exact": False}
    assert not any("--output" in item.option for item in hwsim.run(**call | options).verdict.advice)


def test_one_element_gets_no_advice_on_tiles():
    assert not any(item.option == "hwsim tune" for item in run("sm90, one element").verdict.advice)
    assert any(item.option == "hwsim tune" for item in run("sm89, idle cores").verdict.advice)


def test_plain_data_has_the_sentence_and_words_for_all():
    verdict = run("sm90, memory").verdict
    data = json.loads(json.dumps(verdict.to_dict(), allow_nan=False))
    assert data["text"] == data["sentences"][0] == str(verdict)
    assert [loss["words"] for loss in data["lost"]] == [lost_words(cause) for cause in verdict.lost]
    assert [part["words"] for part in data["parts"]] == [part_words(part) for part in verdict.parts]
    assert [item["text"] for item in data["advice"]] == [str(item) for item in verdict.advice]
    assert run("sm90, memory").to_dict()["verdict"]["bound"] == "memory"


def test_without_cycles():
    verdict = hwsim.run(device="h100", format="bf16", m=64, n=64, k=64, timing=False).verdict
    assert verdict.bound == "unknown" and verdict.busy is None and not verdict.advice
    assert str(verdict) == "no verdict on the time: not asked for"


def test_a_library_s_time_is_not_divided():
    result = hwsim.run(device="h100", format="bf16", m=512, n=512, k=512, exact=False, library="cublas")
    assert re.search(r"fitted time is \d+ % less, and cannot be divided", result.verdict.sentences[1])
    assert not any(item.option == "hwsim tune" for item in result.verdict.advice)


@pytest.mark.parametrize("name", ["h100", "own"])
def test_a_matrix_unit_that_was_left_out_is_the_first_advice(name, tmp_path):
    """Operands in fp32 run on the lanes of a device whose matrix unit takes another format."""
    if name == "own":
        name = tmp_path / "mine.yaml"
        assert main(["devices", "new", str(name)]) == 0
    sizes = {"m": 512, "n": 512, "k": 512, "exact": False, "input_format": "fp32"}
    wanted = load(name).default_format
    result = hwsim.run(device=name, **sizes)
    other = hwsim.run(device=name, format=wanted, **sizes)
    first = result.verdict.advice[0]
    times = result.cycles / other.cycles
    assert str(first) == (
        f"the matrix unit was not used: operands are fp32; --format {wanted} takes it "
        f"({times:{'.0f' if times >= 10 else '.1f'}} times fewer cycles, operands rounded to {wanted})"
    )
    assert first.option == f"--format {wanted}" and times > 2
    assert first.gain == pytest.approx(1 - other.cycles / result.cycles)
    assert set(first.to_dict()) == {"text", "change", "gain", "is_most", "option", "of_device"}
    for asked in (other, hwsim.run(device=name, format="fp32", **sizes)):
        assert not any("was not used" in str(item) for item in asked.verdict.advice)


def test_a_device_without_l2_is_bound_by_its_link_to_dram(tmp_path, capsys):
    path = new_device_file(tmp_path / "mine.yaml", "accelerator", {})
    slow = path.read_text().replace("bytes_per_cycle: 128", "bytes_per_cycle: 16")
    assert slow != path.read_text()
    path.write_text(slow)
    assert main(["run", "--device", str(path), "--format", "fp16", "--m", "64", "--n", "4096", "--no-exact"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "bound by the link to DRAM: link GM_SRAM busy" in said and "the device has no L2; clock" in said


@pytest.mark.parametrize(("shape", "busy"), [((8, 4096, 4096), (99, 97)), ((8, 512, 512), (78, 74))])
def test_two_parts_in_step_do_not_hide_one_another(tmp_path, shape, busy):
    """Twice the rate of DRAM alone saves little, as the link has nearly the same, and the other way round."""
    path = new_device_file(tmp_path / "mine.yaml", "accelerator", {})
    text = path.read_text()
    for key, value in (("cores", "4"), ("  bytes_per_second", "5.0e+11"), ("clock_mhz", "1000")):
        text, count = re.subn(rf"(?m)^{key}: \S+", f"{key}: {value}", text)
        assert count == 1
    path.write_text(text)
    chip, sizes = str(path), dict(zip("mnk", shape, strict=True))
    result = hwsim.run(device=chip, format="fp16", exact=False, **sizes)
    shares = {part.name: part.share for part in result.verdict.parts}
    assert min(shares["DRAM"], shares["GM_SRAM"]) >= BOUND_SHARE
    dram = {"hbm.bytes_per_second": 1e12}
    link = {"links.GM_SRAM.bytes_per_cycle": 2 * result.times.chip.links["GM_SRAM"].bytes_per_cycle}
    assert max(faster(result, dram), faster(result, link)) < MATTERS <= faster(result, dram | link)
    words = f"bound by DRAM and link GM_SRAM together: DRAM busy {busy[0]} %, link GM_SRAM busy {busy[1]} %, engine"
    assert result.verdict.bound == "memory" and str(result.verdict).startswith(words)
    (row,) = hwsim.sweep({"devices": chip, "options": {"format": "fp16"}, **sizes}, jobs=1, cache=False).rows
    assert row["bound"] == "memory"


def test_the_fewest_parts_in_step_are_named():
    parts = tuple(PartUse("link", name, 0.9 - 0.05 * place) for place, name in enumerate("XYZ"))
    shares = TimeShares(0.1, 0.0, {OPERANDS: 0.9}, parts, {}, "M")
    for needed in ((0, 1), (0, 2), (1, 2), (0, 1, 2)):
        group = tuple(parts[place] for place in needed)
        found = binding_parts(shares, lambda *tried, group=group: MATTERS if set(group) <= set(tried) else 0.0, MANY)
        assert found == group and bound_of(shares, found) == "link"
    assert binding_parts(shares, lambda *tried: 0.9 * MATTERS, MANY) == ()


@pytest.mark.parametrize("kind", ["DRAM", "L2", "link", "elementwise", "copy"])
@pytest.mark.parametrize("busy", [0.0, 0.5, 0.7])
def test_a_part_that_is_busy_nearly_all_the_time_bounds_whatever_it_saves(kind, busy):
    parts = (PartUse(kind, "X", SATURATED), PartUse("link", "Y", 0.8), PartUse("matrix", "M", busy))
    shares = TimeShares(busy, 0.0, {OPERANDS: 1 - busy}, parts, {}, "M")
    assert binding_parts(shares, lambda *parts: 0.0, MANY) == parts[:1]
    assert bound_of(shares, parts[:1]) == {"DRAM": "memory"}.get(kind, kind)


def test_a_less_busy_part_bounds_before_a_saturated_one_where_it_saves_more():
    parts = (PartUse("L2", "L2", SATURATED), PartUse("matrix", "M", 0.9))
    shares = TimeShares(0.9, 0.0, {OPERANDS: 0.1}, parts, {}, "M")
    assert binding_parts(shares, lambda *parts: 0.06 if parts[-1].kind == "matrix" else 0.0, MANY) == parts[1:]


@pytest.mark.parametrize(
    ("most_runs", "named"), [(MANY, "BE"), (18, "BE"), (11, "ABCE"), (6, "ABCDE"), (5, "ABCDEF"), (0, "ABCDEF")]
)
def test_parts_in_step_are_found_by_few_timing_runs(most_runs, named):
    """Two of six busy parts hide each other: the others are left out one by one, as long as there are runs."""
    parts = tuple(PartUse("link", name, 0.9 - 0.01 * i) for i, name in enumerate("ABCDEF"))
    shares = TimeShares(0.1, 0.0, {OPERANDS: 0.9}, parts, {}, "M")
    asked = set()

    def saves(*some):
        asked.add(some)
        names = {part.name for part in some}
        return 0.06 + 0.001 * len(names) - 0.0001 * ("F" in names) if names >= {"B", "E"} else 0.0

    assert "".join(part.name for part in binding_parts(shares, saves, most_runs)) == named
    assert len(asked) <= len(parts) + 1 + most_runs and len(asked) <= 25
