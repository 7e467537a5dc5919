"""Device files and mappings that are too large, too deep or no files are refused at once, with one message."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import hwsim
from hwsim.datafiles.yaml_text import MOST_NODES


def message(device: object) -> str:
    with pytest.raises(hwsim.HwsimError) as found:
        hwsim.device(device)  # type: ignore[arg-type]
    return str(found.value)


def test_a_cyclic_mapping_is_refused():
    device: dict[str, object] = {"schema_version": 1}
    device["cores"] = device
    assert "nested more than 20 deep" in message(device)
    items: list[object] = []
    items.append(items)
    assert "nested more than 20 deep" in message({"schema_version": 1, "cores": items})


def test_numbers_of_many_digits_are_refused():
    assert "clock_mhz: got a number of more than 100 digits" in message({"schema_version": 1, "clock_mhz": 10**5000})
    assert "a number of more than 100 digits" in message({10**5000: 1})


def test_more_values_than_any_device_has_are_refused(tmp_path):
    text = f"has more than {MOST_NODES} values"
    assert message({f"k{i}": 1 for i in range(MOST_NODES + 1)}) == f"<mapping>: {text}"
    file = tmp_path / "large.yaml"
    file.write_text("".join(f"k{i}: 1\n" for i in range(MOST_NODES + 1)))
    assert f"more than {MOST_NODES} values" in message(file)


def test_unknown_keys_are_listed_to_a_hundred():
    lines = message({f"k{i}": 1 for i in range(2000)}).splitlines()
    assert len(lines) == 101
    assert re.fullmatch(r"and \d{4} more problems", lines[-1])


def test_long_and_odd_keys_are_refused(tmp_path):
    assert "a key is text of at most 200 characters" in message({"k" * 201: 1})
    assert "the key (1, 2)" in message({(1, 2): 1})
    file = tmp_path / "key.yaml"
    file.write_text(f"{'k' * 201}: 1\n")
    assert "a key of 201 characters; at most 200" in message(file)


def test_an_object_that_cannot_be_shown_is_named_by_its_type():
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError

    assert "an object of Broken" in message({"schema_version": 1, "clock_mhz": Broken()})


def test_files_over_the_limit_and_no_files_are_refused(tmp_path):
    file = tmp_path / "large.yaml"
    file.write_bytes(b"#" * ((4 << 20) + 1))
    assert "has more than 4194304 bytes" in message(file)
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    assert "it is a pipe; give the name of a regular file" in message(pipe)
    assert "it is a folder" in message(tmp_path)
    assert "no regular file" in message(Path("/dev/zero"))
    assert "embedded null " in message(Path("a\0b.yaml"))
