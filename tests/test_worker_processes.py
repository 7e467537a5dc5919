"""Worker processes end with what asked for them: a run that never ends would hang these tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

from hwsim.host.files import whole_file
from hwsim.host.processes import WorkerGroup

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="signals and /proc of Linux")


def run_for_ever(folder: Path) -> None:
    """Write a file that is never whole."""
    with whole_file(folder / "result") as file:
        (folder / f"{os.getpid()}.pid").touch()
        while file:
            time.sleep(0.01)


def begun(folder: Path, count: int) -> list[int]:
    while len(found := [int(path.stem) for path in folder.glob("*.pid")]) < count:
        time.sleep(0.02)
    return found


def has_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def wait_until_gone(pids: list[int]) -> None:
    limit = time.monotonic() + 60
    while not all(map(has_gone, pids)):
        assert time.monotonic() < limit, "workers go on"
        time.sleep(0.05)


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_workers_end_when_the_block_raises(tmp_path: Path, method: str) -> None:
    with pytest.raises(KeyboardInterrupt), WorkerGroup(method) as group:  # type: ignore[arg-type]
        pool = group.pool(2)
        waiting = [pool.submit(run_for_ever, tmp_path) for _ in range(8)]
        pids = begun(tmp_path, 2)
        raise KeyboardInterrupt
    assert all(map(has_gone, pids)) and len(begun(tmp_path, 2)) == 2  # none took another task
    assert all(one.cancelled() or isinstance(one.exception(), BrokenProcessPool) for one in waiting)
    assert {path.suffix for path in tmp_path.iterdir()} == {".pid"}  # nothing half-written


def test_groups_beside_each_other_end_by_themselves(tmp_path: Path) -> None:
    """A forked worker has copies of what the process holds for other groups."""
    for name in "ab":
        (tmp_path / name).mkdir()
    with pytest.raises(KeyboardInterrupt), WorkerGroup("fork") as later:
        with pytest.raises(ZeroDivisionError), WorkerGroup("fork") as first:
            first.pool(1).submit(run_for_ever, tmp_path / "a")
            begun(tmp_path / "a", 1)
            later.pool(1).submit(run_for_ever, tmp_path / "b")
            (pid,) = begun(tmp_path / "b", 1)
            raise ZeroDivisionError
        assert not has_gone(pid)
        raise KeyboardInterrupt
    assert has_gone(pid)


def test_a_worker_that_is_terminated_takes_no_other_task(tmp_path: Path) -> None:
    with WorkerGroup() as group:
        pool = group.pool(1)
        waiting = [pool.submit(run_for_ever, tmp_path) for _ in range(3)]
        (pid,) = begun(tmp_path, 1)
        os.kill(pid, signal.SIGTERM)
        with pytest.raises(BrokenProcessPool):
            waiting[0].result()
        with pytest.raises(BrokenProcessPool):
            waiting[2].result()
        wait_until_gone([pid])


@pytest.mark.parametrize("method", ["spawn", "fork"])
@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_their_parent(tmp_path: Path, method: str, stop: signal.Signals) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import signal, sys; from pathlib import Path\n"
        "from hwsim.host.processes import WorkerGroup; from test_worker_processes import run_for_ever\n"
        "if __name__ == '__main__':\n"
        "    signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background jobs ignore it
        f"    with WorkerGroup({method!r}) as group:\n"
        "        pool = group.pool(2)\n"
        "        for one in [pool.submit(run_for_ever, Path(sys.argv[1])) for _ in range(2)]: one.result()\n"
    )
    (folder := tmp_path / "workers").mkdir()
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), str(Path(__file__).parent)])
    }
    with subprocess.Popen(
        [sys.executable, str(script), str(folder)], env=environment, stderr=subprocess.DEVNULL
    ) as run:
        pids = begun(folder, 2)
        run.send_signal(stop)
    assert run.returncode != 0
    wait_until_gone(pids)


def test_results_and_the_initializer(tmp_path: Path) -> None:
    with WorkerGroup() as group:
        pool = group.pool(2, os.umask, (0o077,))
        assert [pool.submit(os.umask, 0o077).result() for _ in range(3)] == [0o077] * 3
