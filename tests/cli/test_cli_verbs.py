"""The other verbs, help texts, and exit codes."""

import json
import re
from pathlib import Path

import pytest

import hwsim
from hwsim import _kernels
from hwsim.cli.command import parser_for
from hwsim.cli.verbs import OWN
from hwsim.devices.plausible import notes_on
from hwsim.devices.registry import shipped
from hwsim.errors import DeadlockError, MismatchError
from hwsim.resolve.device_programs import without_program

RUN = ("run", "--scheme", "sgemm-cube", "--m", 16, "--n", 16, "--k", 16)


def test_version(cli):
    done = cli("--version")
    assert done.code == 0
    assert done.out.startswith(f"hwsim {hwsim.__version__} (kernel {_kernels.variant}") and "NumPy" in done.out


def test_info(cli, monkeypatch, tmp_path):
    monkeypatch.setenv("HWSIM_CONFIG_PATH", str(tmp_path / "mine"))
    done = cli("info")
    assert done.code == 0
    assert hwsim.__version__ in done.out and str(tmp_path / "mine") in done.out and "baseline" in done.out
    found = cli("info", "--json").json
    assert found["kernel"] == _kernels.variant and found["kernels"] == list(_kernels.variants)
    assert found["device_search_path"][0] == str(tmp_path / "mine")
    assert found["threads"] >= 1 and found["engine"] == "cpu"
    monkeypatch.setenv("HWSIM_ENGINE", "cuda")
    assert cli("info", "--json").json["engine"] == "cuda"


def test_devices_list(cli):
    assert "ascend910a" in cli("devices").out
    assert cli("devices", "list").out == cli("devices").out
    assert "ascend910a" in [x["name"] for x in cli("devices", "--json").json["devices"]]


def test_devices_show(cli):
    text = cli("devices", "show", "ascend910a").out
    for part in ("mmad.m16n16k16.f32.f16.f16", "L0C", "GM_L1", "MTE2", "1,200 GB/s", "assumption"):
        assert part in text
    assert "slices of K" not in text
    assert "slices of K  tf32 (mma.m16n8k8.f32.tf32.tf32.f32)" in cli("devices", "show", "h200").out


def test_devices_show_sources_has_every_number(cli):
    device = hwsim.device("ascend910a")
    lines = cli("devices", "show", "ascend910a", "--sources").out.splitlines()
    first = {line.split()[0]: line for line in lines if line}
    for path, about in device.evidence.items():
        assert about.evidence in first[path] and about.source in first[path]
    assert "37.5 bytes per cycle" in first["hbm.bytes_per_second"]
    assert "[64 to 128]" in first["links.GM_L1.bytes_per_cycle"]
    for key, citation in device.citations.items():
        assert citation.split()[0] in first[key]


def test_devices_show_json_is_the_device(cli):
    shown = cli("devices", "show", "ascend910a", "--json").json
    device = hwsim.device("ascend910a")
    assert shown["device_sha256"] == device.sha256
    assert hwsim.device(shown["device"]).sha256 == device.sha256


def test_devices_check(cli, tmp_path):
    from hwsim.devices.registry import package_folder

    (tmp_path / "chip.yaml").write_text((package_folder() / "ascend910a.yaml").read_text())
    done = cli("devices", "check", "chip.yaml")
    assert done.code == 0 and "device ascend910a is right" in done.out
    assert cli("devices", "check", "chip.yaml", "--json").json["name"] == "ascend910a"


@pytest.mark.parametrize(
    ("base", "change", "said"),
    [
        ("ascend910b1", "links: {L0C_GM: null}", "no link from L0C to GM"),
        ("ascend910a", "links: {GM_L1: null}", "no link from GM to L1"),
        ("h100", "vector: null", "no vector unit"),
        ("a100", "memories: {SMEM: {capacity_bytes: {value: 64, source: S, evidence: assumption}}}", "SMEM"),
    ],
)
def test_devices_check_names_what_the_dataflow_lacks(cli, tmp_path, base, change, said):
    """Found at the check of the file, for every native format with times, and not at the first run."""
    text = f"schema_version: 1\nname: chip\ntitle: less\nextends: {base}\nsources: {{S: a try}}\n{change}\n"
    (tmp_path / "chip.yaml").write_text(text)
    done = cli("devices", "check", "chip.yaml")
    assert done.code == 2 and said in done.err and "native.fp16: " in done.err
    assert "has timing data, but there is no program" in done.err
    assert cli("devices", "show", "chip.yaml").code == 0  # bits it can give


def test_shipped_devices_have_the_programs_that_their_times_promise():
    for name in shipped():
        assert without_program(hwsim.device(name)) == {}, name


def checked_variant(cli, *lines, base="ascend910a", source='"NONE; my own design"'):
    head = f"schema_version: 1\nname: chip\ntitle: mine\nextends: {base}\nsource: {source}\nevidence: assumption\n"
    Path("chip.yaml").write_text(head + "".join([f"{line}\n" for line in lines]))
    return cli("devices", "check", "chip.yaml")


def test_a_source_of_ones_own_is_offered_as_the_table_takes_it(cli):
    refused = checked_variant(cli, "cores: 16", source="my own design")
    assert refused.code == 2 and "'NONE; my own design' for what you say yourself" in refused.err
    assert checked_variant(cli, "cores: 16").code == 0


@pytest.mark.parametrize(
    ("number", "said"),
    [("800 GB/s", ": 8e+11"), ("1.2TB/s", ": 1.2e+12"), ("3 GHz", "in the one that the key names\n")],
)
def test_a_number_with_its_unit_is_refused_with_the_number_to_write(cli, number, said):
    refused = checked_variant(cli, f"hbm: {{bytes_per_second: {number}}}")
    assert f"got the text '{number}'; needs a number; write the number without its unit" in refused.err
    assert said in refused.err


def test_numbers_that_are_hardly_meant_are_named(cli):
    slow = checked_variant(cli, "links: {GM_L1: {bytes_per_cycle: 8}, GM_UB: {bytes_per_cycle: 4}}")
    assert slow.code == 0 and "is it meant? the links that read global memory (GM_L1, GM_UB; " in slow.out
    assert "carry 256 GB/s over all cores" in slow.out  # both are of one engine, the faster of 8 bytes a cycle
    assert "hbm gives 1,200 GB/s: its rate is never reached" in slow.out
    clock = checked_variant(cli, "clock_mhz: 1.1", "hbm: {bytes_per_second: 1e9}", "l2: {bytes_per_second: 1e9}")
    assert clock.code == 0 and "is it meant? clock_mhz is 1.1 MHz; a clock of 1.1 GHz is clock_mhz: 1100" in clock.out


def test_numbers_without_a_source_are_one_error_with_the_form_that_is_right(cli):
    head = "schema_version: 1\nname: chip\nextends: ascend910a\n"
    numbers = "cores: 16\nclock_mhz: 900\nhbm: {bytes_per_second: 6.0e+11}\n"
    Path("chip.yaml").write_text(head + numbers)
    refused = cli("devices", "check", "chip.yaml")
    assert refused.code == 2 and refused.err.count("missing source") == 1
    said = "chip.yaml:4:1: cores: missing source and evidence, here and of 2 more: write {value, source, evidence}, or"
    form = 'source: "NONE; my own design" and evidence: assumption'
    assert said in refused.err and refused.err.rstrip().endswith(form)
    Path("chip.yaml").write_text(head + form.replace(" and ", "\n") + "\n" + numbers)
    assert cli("devices", "check", "chip.yaml").code == 0


def test_a_file_without_sources_is_the_definition_of_its_design(cli):
    """No chip gives other bits than a design that is nobody else's; a file that extends a chip's speaks of the chip."""
    assert cli("devices", "new", "mine.yaml", "--template", "accelerator").code == 0
    sizes = ("--m", 16, "--n", 16, "--k", 16, "--format", "fp16", "--no-exact")
    own = " ".join(cli("run", "--device", "mine.yaml", *sizes).out.split())
    for what in ("numerics", "timing"):
        assert f"{what}: assumption (the device file is the definition: it cites no sources)" in own
    assert "chip may" not in own.partition("verdict")[2].partition("cycles ")[0]
    assert checked_variant(cli, "cores: 16").code == 0
    variant = cli("run", "--device", "chip.yaml", *sizes).out
    assert "a chip may give other last" in variant and "definition" not in variant


def test_a_product_without_a_program_is_named_with_its_place(cli):
    assert cli("devices", "new", "mine.yaml", "--template", "accelerator").code == 0
    text = Path("mine.yaml").read_text().replace("SRAM: {capacity_bytes: 524288}", "SRAM: {capacity_bytes: 1024}")
    Path("mine.yaml").write_text(text)
    line = next(at for at, words in enumerate(text.splitlines(), 1) if words.startswith("native:"))
    refused = cli("devices", "check", "mine.yaml")
    assert refused.code == 2
    for fmt in ("bf16", "fp16", "fp32"):
        assert re.search(
            rf"^mine.yaml:{line}:\d+: native.{fmt}: .* bytes of SRAM, which holds 1024$", refused.err, re.M
        )


@pytest.mark.parametrize("engine", ["LOAD", "SECOND"])
def test_links_of_one_engine_do_not_add_up(cli, engine):
    """192 bytes a cycle: both links together would give DRAM's rate, and one engine does one transfer at a time."""
    assert cli("devices", "new", "mine.yaml", "--template", "accelerator").code == 0
    text = Path("mine.yaml").read_text()
    text = text.replace("cores: 16", "cores: 2").replace("bytes_per_second: 2.0e+12", "bytes_per_second: 6.0e+11")
    for link, of_link in (("GM_SRAM", "LOAD"), ("GM_ACC", engine)):
        line = next(line for line in text.splitlines() if line.strip().startswith(f"{link}: {{engine: LOAD,"))
        rate = re.sub("bytes_per_cycle: [0-9]+", "bytes_per_cycle: 192", line)
        text = text.replace(line, rate.replace("engine: LOAD", f"engine: {of_link}"))
    first = next(line for line in text.splitlines() if line.strip().startswith("LOAD: {queue_depth"))
    text = text.replace(first, f"{first}\n{first.replace('LOAD', 'SECOND')}")
    Path("mine.yaml").write_text(text)
    checked = cli("devices", "check", "mine.yaml")
    said = "links that read global memory (GM_SRAM, GM_ACC; an engine does one transfer at a time) carry 384 GB/s"
    assert checked.code == 0 and (said in checked.out) == (engine == "LOAD")
    assert ("never reached" in checked.out) == (engine == "LOAD")


def test_a_rate_that_was_meant_in_gigabytes_is_named(cli):
    refused = checked_variant(cli, "hbm: {bytes_per_second: 600}")
    assert "hbm.bytes_per_second: got 600; must be at least 1000; 600 GB/s is 6.0e+11" in refused.err
    small = checked_variant(cli, "hbm: {bytes_per_second: 600000}", "l2: {bytes_per_second: 9e8}")
    for path, rate in (("hbm", "600000"), ("l2", "9e+08")):
        assert f"is it meant? {path}.bytes_per_second is {rate}, less than one byte in a cycle" in small.out
    assert small.code == 0 and small.out.count("600 GB/s is 6.0e+11") == 2
    beyond = checked_variant(cli, "hbm: {bytes_per_second: 2e18}")
    assert "must be at most 1e+18" in beyond.err and "GB/s is" not in beyond.err


def test_a_level_that_the_family_has_not_is_named_with_the_devices_that_have_it(cli):
    assert cli("devices", "new", "mine.yaml", "--template", "accelerator").code == 0
    text = Path("mine.yaml").read_text()
    level = "memories: [L0A, L0B, ACC]"
    line = next(line for line in text.splitlines() if "mma.m16n16k16.f32.fp16.fp16: {" in line)
    assert line.count("memories: [SRAM, SRAM, ACC]") == 1
    memory = next(line for line in text.splitlines() if line.strip().startswith("SRAM: {"))
    more = "\n".join([memory, memory.replace("SRAM:", "L0A:"), memory.replace("SRAM:", "L0B:")])
    text = text.replace(line, line.replace("memories: [SRAM, SRAM, ACC]", level)).replace(memory, more)
    Path("mine.yaml").write_text(text)
    refused = cli("devices", "check", "mine.yaml")
    said = " ".join(refused.err.split())
    assert refused.code == 2 and "takes A from L0A; kernels of family tiled fill SRAM and ACC alone" in said
    assert "a device file may extend them: ascend910a" in said


def test_shipped_devices_have_no_numbers_that_are_hardly_meant():
    assert [note for name in shipped() for note in notes_on(hwsim.device(name))] == []


def mine_without_native(cli):
    """mine.yaml, the template without `native`; returns its text."""
    assert cli("devices", "new", "mine.yaml", "--template", "accelerator").code == 0
    text, removed = re.subn(r"(?m)^native: .*$", "", Path("mine.yaml").read_text())
    assert removed == 1
    Path("mine.yaml").write_text(text)
    return text


def test_a_device_without_native_is_named_and_told_what_to_add(cli):
    mine_without_native(cli)
    checked = cli("devices", "check", "mine.yaml")
    add = "add native: {bf16: mma.m16n16k16.f32.bf16.bf16, fp16: mma.m16n16k16.f32.fp16.fp16,"
    assert checked.code == 0 and "is it meant? no instruction is native" in checked.out and add in checked.out
    refused = cli("run", "--device", "mine.yaml", "--format", "fp16", "--m", 64, "--n", 64, "--k", 64, "--no-exact")
    assert refused.code == 2 and add in " ".join(refused.err.split())
    without = next(note for note in notes_on(hwsim.device("mine.yaml")) if "native" in note)
    Path("mine.yaml").write_text(f"{Path('mine.yaml').read_text()}\n{without.partition('add ')[2]}\n")
    assert "native" not in cli("devices", "check", "mine.yaml").out


def test_a_device_without_native_is_checked_for_tiles_too(cli):
    small, count = re.subn(r"(?m)^  ACC: {capacity_bytes: \d+", "  ACC: {capacity_bytes: 64", mine_without_native(cli))
    assert count == 1
    Path("mine.yaml").write_text(small)
    refused = cli("devices", "check", "mine.yaml")
    assert refused.code == 2 and "there is no program: " in refused.err and "native.fp16" in refused.err


def test_a_capacity_that_is_too_large_has_its_unit(cli):
    assert cli("devices", "new", "mine.yaml", "--template", "accelerator").code == 0
    text = re.sub(r"SRAM: {capacity_bytes: \d+", "SRAM: {capacity_bytes: 34359738368", Path("mine.yaml").read_text())
    Path("mine.yaml").write_text(text)
    said = " ".join(cli("devices", "check", "mine.yaml").err.split())
    assert "capacity_bytes: got 34359738368; must be at most 1e+09 bytes (more than any chip has" in said
    Path("mine.yaml").write_text(text.replace("34359738368", "0"))
    assert "must be at least 1" in (low := cli("devices", "check", "mine.yaml").err) and "any chip" not in low


def test_schemes(cli):
    assert {"native", "sgemm-cube"} <= {line.split()[0] for line in cli("schemes").out.splitlines()}
    text = " ".join(cli("schemes", "show", "sgemm-cube").out.split())
    assert "--scaling-exponent" in text and "termwise, elementwise" in text and "default: 12" in text
    shown = cli("schemes", "show", "sgemm-cube", "--json").json
    assert [x["name"] for x in shown["options"]] == ["scaling_exponent", "accumulation", "k_group", "scale"]


def test_schemes_on_a_device(cli, tmp_path):
    lines = {
        line.split()[0]: line.split(maxsplit=1)[1] for line in cli("schemes", "--device", "ascend910a").out.splitlines()
    }
    assert lines["sgemm-cube"] == "runs" and lines["tf32x3"].startswith("does not run")
    device = cli("devices", "show", "ascend910a", "--json").json["device"]
    del device["instructions"]["mmad.m16n16k16.f32.f16.f16"], device["native"]["fp16"]
    device["default_format"] = "int8"
    (tmp_path / "chip.yaml").write_text(json.dumps(device))  # JSON is YAML
    found = {x["name"]: x for x in cli("schemes", "--device", "chip.yaml", "--json").json["schemes"]}
    assert found["sgemm-cube"]["runs"] is False
    assert "no matrix instruction for fp16 x fp16" in found["sgemm-cube"]["why_not"]


def test_program(cli):
    words = ("program", "ascend910a", "sgemm-cube", "--m", 400, "--n", 300, "--k", 500, "--tile", "176,64,176")
    text = cli(*words, "--n-fused", 2).out
    for part in (
        "kernel split_a",
        "kernel gemm",
        "kernel combine",
        "for ",
        "MTE2",
        "mma ",
        "by mmad.m16n16k16.f32.f16.f16",
        "wait ",
        "signal ",
        "cores ",
        "of 1,048,576 bytes",
        "A.in  400 x 500  fp32  input",
        "n_fused 2",
    ):
        assert part in text, part
    assert "2 slots" in text and "1 slot " in cli(*words, "--buffering", "single").out


def test_program_has_the_instructions_of_every_kernel(cli):
    from hwsim.api import program
    from hwsim.program.ir import Instr, Loop

    _, lowered = program(device="ascend910a", scheme="sgemm-cube", m=400, n=300, k=500, accumulation="elementwise")

    def count(body):
        return sum(isinstance(x, Instr) + (count(x.body) if isinstance(x, Loop) else 0) for x in body)

    expected = sum(count(s.body) for kernel in lowered.kernels for group in kernel.groups for s in group.streams)
    words = ("program", "ascend910a", "sgemm-cube", "--m", 400, "--n", 300, "--k", 500, "--accumulation", "elementwise")
    lines = cli(*words).out.splitlines()
    engines = hwsim.device("ascend910a").engines
    assert sum(line.split()[0] in engines and line.startswith("      ") for line in lines if line) == expected > 50


@pytest.mark.parametrize("verb", OWN)
def test_help_mentions_every_option(cli, verb):
    sub = parser_for(verb)._subparsers._group_actions[0].choices[verb]
    done = cli(verb, "--help-all" if sub.long_groups else "--help")
    assert done.code == 0 and "exit codes" in done.out
    for action in sub._actions:
        assert action.help or action.dest == "action", action
        for option in action.option_strings:
            assert option in done.out


def test_the_first_help_lists_the_verbs(cli):
    text = cli("--help").out
    assert all(verb in text for verb in OWN)


def failing(error):
    def run(*_, **__):
        raise error

    return run


def test_exit_code_of_a_mismatch(cli, monkeypatch):
    monkeypatch.setattr("hwsim.cli.run.run", failing(MismatchError("c[0, 0]: 3f800000, expected 3f800001")))
    done = cli(*RUN)
    assert (done.code, done.out) == (1, "") and "3f800001" in done.err


def test_exit_code_of_an_internal_error(cli, monkeypatch, tmp_path):
    monkeypatch.setattr("hwsim.cli.run.run", failing(ZeroDivisionError("our mistake")))
    done = cli(*RUN)
    assert (done.code, done.out) == (3, "") and "Please report it" in done.err and "Traceback" not in done.err
    (file,) = tmp_path.glob("hwsim-error-*.txt")
    assert str(file) in done.err
    text = file.read_text()
    assert "Traceback" in text and "our mistake" in text and "--scheme sgemm-cube" in text and hwsim.__version__ in text


def test_a_deadlock_of_an_own_program_is_an_internal_error(cli, monkeypatch, tmp_path):
    monkeypatch.setattr("hwsim.cli.run.run", failing(DeadlockError("deadlock: nothing can proceed")))
    done = cli(*RUN)
    assert (done.code, done.out) == (3, "") and "Please report it" in done.err


def test_exit_code_of_an_interrupt(cli, monkeypatch):
    monkeypatch.setattr("hwsim.cli.run.run", failing(KeyboardInterrupt()))
    assert cli(*RUN).code == 130


def test_no_memory_is_the_problems_size(cli, monkeypatch):
    monkeypatch.setattr("hwsim.cli.run.run", failing(MemoryError("Unable to allocate 8.00 EiB")))
    done = cli(*RUN)
    assert done.code == 2 and "not enough memory" in done.err and "8.00 EiB" in done.err


def test_warnings_go_to_stderr(cli, tmp_path, monkeypatch):
    from hwsim.devices.registry import package_folder

    monkeypatch.setenv("HWSIM_CONFIG_PATH", str(tmp_path / "mine"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "ascend910a.yaml").write_text("# mine\n" + (package_folder() / "ascend910a.yaml").read_text())
    done = cli(*RUN, "--json")
    assert done.code == 0 and done.json["device"] == "ascend910a"
    assert "hwsim: warning: device 'ascend910a' is taken from" in done.err


def test_counts_of_1_have_no_plural(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("HWSIM_CACHE", str(tmp_path / "cache"))
    done = cli("sweep", "--device", "tf64", "--m", "1", "--n", "1", "--k", "1", "--jobs", "1", "--json")
    assert "hwsim: 1 point, 1 computed" in done.err
    text = cli("run", "--device", "tf64", "--m", "1", "--n", "1", "--k", "1", "--no-timing").out
    assert " 1 MAC; A and B random" in text


def test_sweep(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("HWSIM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "study.yaml").write_text("devices: [h200, v100]\nshapes: [[64, 64, 64]]\noptions: {format: bf16}\n")
    done = cli("sweep", "study.yaml", "--jobs", "1", "--json")
    assert done.code == 0 and done.json["schema"] == "hwsim.sweep/1" and done.json["refused"] == 1
    assert "2 points, 2 computed, 0 from the cache, 1 refused" in done.err
    written = cli("sweep", "study.yaml", "--out", "table.csv", "-q")
    assert (written.code, written.out, written.err) == (0, "", "")
    assert cli("sweep", "study.yaml").out == (tmp_path / "table.csv").read_text()
    (tmp_path / "study.yaml").write_text("devices: [h200]\nshape: [[64, 64, 64]]\n")
    wrong = cli("sweep", "study.yaml")
    assert (wrong.code, wrong.out) == (2, "") and "study.yaml:2:1: shape: unknown key" in wrong.err
