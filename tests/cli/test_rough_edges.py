"""Messages and defaults that users stumbled over, each by the command that showed it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import hwsim
from hwsim.gemm.schedule import Schedule
from hwsim.host import files
from hwsim.report.text.run_text import run_text

ROOT = Path(__file__).parents[2]
STUDY = "devices: [h200]\nm: [32, 64, 96, 128]\noptions: {format: bf16}\n"


def test_formats_without_an_action_lists(cli: Any) -> None:
    assert cli("formats").out == cli("formats", "list").out != ""
    assert cli("formats", "--json").json == cli("formats", "list", "--json").json


def test_tune_says_that_a_chip_has_no_times(cli: Any) -> None:
    done = cli("tune", "--device", "mi100", "--format", "fp16", "--m", 64, "--n", 64, "--k", 64)
    assert done.code == 2 and "tune needs cycles: device mi100 has no timing data: no engines" in done.err


def test_extras_are_quoted_for_every_shell() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "hwsim").rglob("*.py")]
    assert not [text for text in texts if "pip install hwsim[" in text]


def test_the_report_on_a_device_of_ones_own_speaks_of_no_vendor(cli: Any, tmp_path: Path) -> None:
    assert cli("devices", "new", "mine.yaml").code == 0
    said = " ".join(run_text(hwsim.run(m=16, n=16, k=16, device=tmp_path / "mine.yaml")).split())
    assert "numerics: assumption (" in said and "timing: assumption (" in said
    assert "vendor" not in said and "sibling" not in said and "public" not in said


def test_the_clocks_help_says_what_becomes_of_l2(cli: Any) -> None:
    said = " ".join(cli("run", "--help-all").out.split())
    assert "whatever the load (default: under load); L2 before the run stays as --l2 says" in said
    words = ("run", "--device", "b200", "--format", "e4m3", "--m", 512, "--n", 512, "--k", 512, "--no-exact", "--json")
    clock = cli(*words).json["state"]["clock_mhz"]
    for state in ("series", "cold"):
        free, fixed = (cli(*words, "--l2", state, *more).json for more in ((), ("--clock-mhz", clock)))
        assert (free["cycles"], free["traffic_bytes"]) == (fixed["cycles"], fixed["traffic_bytes"])


@pytest.mark.parametrize(("text", "name"), [("4090", "rtx4090"), ("A-100", "a100"), ("A10", "a10"), ("h20", "h20")])
def test_chips_are_known_by_the_names_that_people_type(text: str, name: str) -> None:
    assert hwsim.device(text).name == name


@pytest.mark.parametrize("fmt", ["nvfp4", "mxfp4", "mxfp8"])
def test_formats_with_scales_name_the_scheme(cli: Any, fmt: str) -> None:
    done = cli("run", "--device", "b200", "--format", fmt, "--m", 64, "--n", 64, "--k", 64)
    assert done.code == 2 and f"scheme='{fmt}'" in done.err and "no native" not in done.err


@pytest.mark.parametrize(
    "fields", [{"merge_order": [2, 0, 3, 1], "split_k": 4}, {"slice_k": [64, 192]}, {"k_permutation": [1, 0]}]
)
def test_orders_may_be_lists(fields: dict[str, Any]) -> None:
    tuples = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
    assert Schedule(**fields) == Schedule(**tuples) and hash(Schedule(**fields)) == hash(Schedule(**tuples))


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_sweep_goes_on_without_its_journal(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    (tmp_path / "study.yaml").write_text(STUDY)
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("HWSIM_CACHE", str(tmp_path / "file"))
    done = cli("sweep", "study.yaml", "--jobs", jobs)
    assert done.code == 0 and len(done.out.splitlines()) == 5
    assert done.err.count("results of this sweep are not stored") == 1 and "--no-cache" in done.err

    monkeypatch.setenv("HWSIM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("os.open", _full(os.open))
    full = cli("sweep", "study.yaml", "--jobs", jobs)
    assert full.code == 0 and full.out == done.out
    assert full.err.count("results of this sweep are not stored") == 1 and "No space left" in full.err


def _full(opened: Any) -> Any:
    def fail(path: Any, flags: int, *more: Any, **how: Any) -> int:
        if str(path).endswith(".jsonl"):
            raise OSError(28, "No space left on device", str(path))
        return int(opened(path, flags, *more, **how))

    return fail


KILLED = """
import sys
from pathlib import Path
from hwsim.host.files import whole_file
with whole_file(Path(sys.argv[1])) as file:
    file.write(b"half")
    file.flush()
    print("half", flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="the system has no files without a name")
def test_a_kill_leaves_no_part_of_a_file(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    if files._nameless(folder) is None:
        pytest.skip("the file system has no files without a name")
    (folder / "c.npy").write_bytes(b"before")
    command = [sys.executable, "-c", KILLED, str(folder / "c.npy")]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"half\n"
        process.send_signal(signal.SIGKILL)
        process.wait()
    time.sleep(0.05)
    assert [(path.name, path.read_bytes()) for path in folder.iterdir()] == [("c.npy", b"before")]


@pytest.mark.parametrize("has_nameless", [True, False])
def test_a_whole_file_takes_the_place_with_its_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_nameless: bool
) -> None:
    if not has_nameless:
        monkeypatch.setattr(files, "_nameless", lambda folder: None)
    path = tmp_path / "c.txt"
    for text in ("one", "two"):
        files.write_text(path, text)
        path.chmod(0o640)
        assert path.read_text() == text
    files.write_text(path, "three")
    assert path.stat().st_mode & 0o777 == 0o640 and [found.name for found in tmp_path.iterdir()] == ["c.txt"]


def test_the_problem_stands_once_where_both_streams_are_one_file(tmp_path: Path) -> None:
    words = [
        sys.executable,
        "-m",
        "hwsim",
        "run",
        "--device",
        "h200",
        "--m",
        "64",
        "--n",
        "64",
        "--k",
        "64",
        "--no-exact",
    ]
    one, out, err = (tmp_path / name for name in ("one", "out", "err"))
    with one.open("w") as file:
        subprocess.run(words, stdout=file, stderr=subprocess.STDOUT, check=True)
    with out.open("w") as first, err.open("w") as second:
        subprocess.run(words, stdout=first, stderr=second, check=True)
    counts = [path.read_text().count("problem   C[") for path in (one, out, err)]
    assert counts == [1, 1, 1]


def test_a_library_s_assumed_order_is_not_called_the_order_asked_for(cli: Any) -> None:
    words = ("--device", "l40s", "--format", "fp16", "--m", "112", "--n", "6144", "--k", "10240", "--no-exact")
    with_library = " ".join(cli("run", *words, "--library", "cublas").out.split())
    assert "schedule: assumption (the library's order is assumed" in with_library
    assert "schedule: assumption (one chain over K, or the schedule" in " ".join(cli("run", *words).out.split())


def test_products_that_sparsity_skips_are_not_counted_as_work(cli: Any) -> None:
    words = ("run", "--device", "h200", "--format", "bf16", "--m", "128", "--n", "128", "--k", "256", "--no-exact")
    half, whole = 128 * 128 * 128, 128 * 128 * 256
    sparse = " ".join(cli(*words, "--sparsity", "2:4").out.split())
    assert f"work {half:,} products in the matrix units, {half:,} with padding; {half:,} are skipped (2:4)" in sparse
    assert f"work {whole:,} products in the matrix units, {whole:,} with padding tiles" in " ".join(
        cli(*words).out.split()
    )
