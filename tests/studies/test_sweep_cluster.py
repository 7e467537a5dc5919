"""A sweep on a real dask.distributed cluster of two processes, one of which is killed midway."""

import os
import signal
import sys

import pytest

import hwsim
from hwsim.errors import InputError, UnsupportedError
from hwsim.studies import sweep_cluster, sweep_journal

STUDY = {
    "devices": ["h200", "v100"], "m": [64, 128], "n": [64, 96, 128, 160, 192], "k": [64, 96, 128, 160],
    "options": {"format": "fp16", "tile": "64,64,64"},  # with a tile nothing is searched, here and in the workers
}  # fmt: skip
POINTS = 80


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HWSIM_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def cluster():
    distributed = pytest.importorskip("distributed", reason="needs hwsim[sweep]")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as found:
        yield found


def test_a_killed_worker_loses_and_repeats_nothing(cluster, monkeypatch):
    distributed = pytest.importorskip("distributed", reason="needs hwsim[sweep]")
    alone = hwsim.sweep(STUDY, jobs=1, cache=False)
    with distributed.Client(cluster.scheduler_address, set_as_default=False) as client:
        victims = list(client.run(os.getpid).values())
    appended, killed = [], []
    plain = sweep_journal.SweepJournal.append
    monkeypatch.setattr(
        sweep_journal.SweepJournal,
        "append",
        lambda self, device, key, row: appended.append(key) or plain(self, device, key, row),
    )

    def kill_one(share):
        if share > 0.1 and not killed:
            killed.append(share)
            os.kill(victims[0], signal.SIGKILL)

    table = hwsim.sweep(STUDY, scheduler=cluster.scheduler_address, progress=kill_one)
    assert killed and killed[0] < 0.9
    assert table.rows == alone.rows and table.computed == len(alone.rows) == POINTS
    assert len(appended) == len(set(appended)) == POINTS
    again = hwsim.sweep(STUDY, jobs=1)  # from the journal that the cluster's rows went to
    assert (again.computed, again.cached, again.rows) == (0, POINTS, alone.rows)


def test_an_address_that_does_not_answer(monkeypatch):
    pytest.importorskip("distributed", reason="needs hwsim[sweep]")
    monkeypatch.setattr(sweep_cluster, "CONNECT_SECONDS", 0.5)
    with pytest.raises(InputError, match="does not answer"):
        hwsim.sweep(STUDY, scheduler="tcp://127.0.0.1:9")
    with pytest.raises(InputError, match="leave one out"):
        hwsim.sweep(STUDY, scheduler="tcp://127.0.0.1:9", jobs=2)


def test_workers_with_another_hwsim_are_refused(cluster, monkeypatch):
    monkeypatch.setattr(sweep_cluster, "sources_digest", lambda: "another")
    with pytest.raises(UnsupportedError, match="another hwsim on"):
        hwsim.sweep(STUDY, scheduler=cluster.scheduler_address)


def test_without_distributed_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UnsupportedError, match=r"hwsim\[sweep\]"):
        hwsim.sweep(STUDY, scheduler="tcp://127.0.0.1:9")
