"""The command line as a process: entry point, clean streams, broken pipes, full streams."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from command_line import without_problem

from hwsim import _kernels

HWSIM = (sys.executable, "-m", "hwsim")
ROOT = Path(__file__).parents[2]
RUN = (*HWSIM, "run", "--scheme", "sgemm-cube", "--m", "40", "--n", "30", "--k", "20")


def test_json_from_the_shell():
    done = subprocess.run([*RUN, "--json"], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["m"] == 40


def test_exit_code_from_the_shell():
    done = subprocess.run([*RUN, "--k", "0"], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "hwsim: error: k = 0; allowed: an integer of at least 1 and at most 1000000000\n"


def test_a_reader_that_goes_away_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*HWSIM, "devices", "show", "ascend910a", "--sources"],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_stdout_is_one_error():
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*RUN, "--json"], stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (2, "hwsim: error: standard output: No space left on device\n")


def test_text_survives_a_plain_ascii_terminal(tmp_path):
    text = (ROOT / "configs/devices/ascend910a.yaml").read_text(encoding="utf-8")
    (tmp_path / "chip.yaml").write_text(text.replace("title: ", "title: \u00b5\u2192 ", 1), encoding="utf-8")
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "NO_COLOR": "1"}
    done = subprocess.run(
        [*HWSIM, "devices", "show", str(tmp_path / "chip.yaml")], capture_output=True, cwd=ROOT, env=environment
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\\xb5\\u2192 Huawei" in done.stdout and b"\x1b" not in done.stdout


def test_a_kernel_that_this_machine_has_not_is_the_users_error():
    done = subprocess.run([*RUN], capture_output=True, text=True, cwd=ROOT, env=os.environ | {"HWSIM_KERNEL": "sse9"})
    assert (done.returncode, done.stdout) == (2, "")
    assert "HWSIM_KERNEL" in done.stderr and "baseline" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.skipif(len(_kernels.variants) < 2, reason="one kernel here")
def test_all_kernels_give_the_same_bits():
    found = set()
    for variant in _kernels.variants:
        environment = os.environ | {"HWSIM_KERNEL": variant}
        done = subprocess.run([*RUN, "--json"], capture_output=True, text=True, cwd=ROOT, env=environment)
        result = json.loads(done.stdout)
        assert result["kernel"] == variant
        found.add(result["result_sha256"])
    assert len(found) == 1


def test_help_and_version_do_not_load_what_they_do_not_need():
    code = (
        "import sys; from hwsim.cli import main; code = main(['--help']); "
        "late = {'numpy', 'pydantic', 'yaml', 'tqdm', 'hwsim.cli.run'} & set(sys.modules)\n"
        "sys.exit(str(late) if late else code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_interrupt_ends_with_130():
    code = (
        "import os, signal, sys; from hwsim.cli import main; import hwsim.machines.functional as functional\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background jobs ignore it
        "panel = functional._KernelRun._panel\n"
        "def interrupted(self, *of): os.kill(os.getpid(), signal.SIGINT); return panel(self, *of)\n"
        "functional._KernelRun._panel = interrupted\n"
        f"sys.exit(main({list(RUN[3:])} + ['--threads', '2', '--functional']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.startswith("problem ") and without_problem(done.stderr) == "hwsim: interrupted\n"


@pytest.mark.parametrize("module", ["argparse", "hwsim.cli.command", "numpy", "hwsim.cli.info"])
def test_an_interrupt_while_modules_are_imported_ends_with_130(module):
    """From the first import on, of the script that pip makes and of python -m."""
    code = (
        "import runpy, sys\n"
        "class Interrupt:\n"
        f"    def find_spec(self, name, *rest):\n        if name == {module!r}: raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\nsys.modules.pop('argparse', None)\nsys.argv = ['hwsim', 'info']\n"
    )
    script = "from hwsim.cli import main\nsys.exit(main())"
    for start in (script, "runpy.run_module('hwsim', run_name='__main__')"):
        done = subprocess.run([sys.executable, "-c", code + start], capture_output=True, text=True, cwd=ROOT)
        assert (done.returncode, done.stdout, done.stderr) == (130, "", "hwsim: interrupted\n")


def test_import_hwsim_needs_no_numpy_and_gives_every_name():
    """In a new process, as only there nothing is imported yet; among the names are modules of installed frameworks."""
    code = (
        "import sys, hwsim\nassert 'numpy' not in sys.modules\n"
        "from importlib.util import find_spec\n"
        "for name in (*hwsim.__all__, *hwsim._MODULES):\n"
        "    assert name in dir(hwsim) or '.' in name or name.startswith('_')\n"
        "    if name not in ('torch', 'jax', 'triton') or find_spec(name): assert getattr(hwsim, name) is not None\n"
        "assert not [name for name in dir(hwsim) if '.' in name or name in ('TYPE_CHECKING', 'import_module')]\n"
        "from hwsim import matmul, program\nassert not callable(program)\n"
        "try: hwsim.nothing\nexcept AttributeError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (done.stdout, done.stderr) == ("module 'hwsim' has no attribute 'nothing'\n", "")


def test_sources_that_were_not_built_say_so(tmp_path):
    """What Python finds in a checkout after `pip install .`: the sources without the compiled parts."""
    for folder in ("hwsim", "configs"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONSAFEPATH")}
    done = subprocess.run([*RUN], capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"hwsim: error: {tmp_path} has hwsim's sources, but not its compiled parts")
    assert "pip install -e ." in done.stderr and done.stderr.count("\n") == 1
    code = (
        "import hwsim\n"
        "try: hwsim.run(m=16, n=16, k=16)\n"
        "except hwsim.HwsimError as error: assert isinstance(error, ImportError); print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert (done.returncode, done.stderr) == (0, "") and "run from another folder" in done.stdout


def closed(*descriptors):
    """What to do in a new process so that these are closed from its start."""
    return lambda: [os.close(descriptor) for descriptor in descriptors]


def test_a_closed_stdout_is_refused_before_anything_is_written(tmp_path):
    words = [*RUN, "--out", str(tmp_path / "c.npy")]
    for descriptors in ((1,), (0, 1)):
        done = subprocess.run(words, stderr=subprocess.PIPE, text=True, cwd=ROOT, preexec_fn=closed(*descriptors))
        assert done.returncode == 2 and list(tmp_path.iterdir()) == []
        assert done.stderr == "hwsim: error: standard output is closed; to do without it, write > /dev/null\n"
    assert subprocess.run(words, cwd=ROOT, preexec_fn=closed(1, 2)).returncode == 2


def test_a_closed_stderr_keeps_notes_out_of_stdout(tmp_path):
    words = [*RUN, "--json", "--out", str(tmp_path / "c.npy")]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, cwd=ROOT, preexec_fn=closed(2))
    assert done.returncode == 0 and json.loads(done.stdout)["m"] == 40
    assert np.load(tmp_path / "c.npy").shape == (40, 30)
