"""A small device file that is right, to be spoilt one way at a time."""

import pytest

SMALL = """\
schema_version: 1
name: small
title: a device for tests
family: none
default_format: fp16
source: test
evidence: paper
cores: 2
clock_mhz: 1000
dot_units:
  unit:
    model: exact
    terms: 4
instructions:
  mm:
    engine: M
    unit: unit
    m: 16
    n: 16
    k: 16
    a: fp16
    b: fp16
    c: fp32
    d: fp32
    memories: [L1, L1, L1]
    timing: {issue_interval_cycles: 1}
native: {fp16: mm}
memories:
  L1: {capacity_bytes: 1024}
links:
  GM_L1: {engine: M, from: GM, to: L1, bytes_per_cycle: {value: 64, source: other, evidence: assumption}}
engines:
  M: {queue_depth: 32}
"""


@pytest.fixture
def small():
    return SMALL


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a device file into an empty current folder; the user's own folders are out of sight."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HWSIM_CONFIG_PATH", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))

    def write_file(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return name

    return write_file
