"""`hwsim info` shows the folder of cached results, which is HWSIM_CACHE where that is set."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hwsim.cli.command import main
from hwsim.studies.sweep_journal import journal_folder


def test_info_shows_the_cache_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HWSIM_CACHE", str(tmp_path / "named"))
    assert main(["info", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cache"] == str(tmp_path / "named")
    assert journal_folder().is_relative_to(tmp_path / "named" / "sweep")
    monkeypatch.delenv("HWSIM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    assert main(["info"]) == 0
    assert f"{tmp_path / 'user' / 'hwsim'} (HWSIM_CACHE chooses)" in " ".join(capsys.readouterr().out.split())
