"""Which file a name means."""

from pathlib import Path

import pytest

from hwsim import devices
from hwsim.devices import registry
from hwsim.errors import InputError, UnsupportedError


class Point:
    """An entry point as importlib.metadata gives it."""

    def __init__(self, name, value, given):
        self.name, self.value, self.given = name, value, given

    def load(self):
        if isinstance(self.given, Exception):
            raise self.given
        return self.given


def plugins(monkeypatch, *points):
    monkeypatch.setattr(registry, "entry_points", lambda group: points)


def cores(text, n):
    return text.replace("cores: 2", f"cores: {n}")


def test_a_plugin_is_seen_when_it_is_installed_and_gone_when_it_is_not(small, tmp_path, monkeypatch):
    """Also in a process that has looked before."""
    place, outside = tmp_path / "site", tmp_path / "tiny.yaml"
    place.mkdir()
    outside.write_text(small)
    (tmp_path / "tiny_plugin.py").write_text(f"FILE = {str(outside)!r}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(place))
    with pytest.raises(UnsupportedError):
        registry.read("tiny_chip")
    made = tmp_path / "made"
    made.mkdir()
    (made / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny\nVersion: 1\n")
    (made / "entry_points.txt").write_text("[hwsim.devices]\ntiny_chip = tiny_plugin:FILE\n")
    made.rename(place / "tiny-1.dist-info")
    assert registry.read("tiny_chip") == (small, str(outside))
    (place / "tiny-1.dist-info").rename(made)
    with pytest.raises(UnsupportedError):
        registry.read("tiny_chip")


def test_the_order_of_places(write, small, tmp_path, monkeypatch):
    mapping = {"schema_version": 1}
    plugins(monkeypatch, Point("ascend910a", "some.plugin", lambda: mapping))
    monkeypatch.setenv("HWSIM_CONFIG_PATH", f"{tmp_path / 'one'}:{tmp_path / 'two'}")
    with pytest.warns(UserWarning, match=r"taken from plugin some.plugin, not .*ascend910a.yaml"):
        assert registry.read("ascend910a") == (mapping, "plugin some.plugin")
    for n, folder in ((4, "home/hwsim/devices"), (3, "configs/devices"), (2, "two"), (1, "one")):
        write(f"{folder}/ascend910a.yaml", cores(small, n))
        with pytest.warns(UserWarning, match=f"'ascend910a' is taken from .*{folder}.*, not "):
            assert devices.load("ascend910a").cores == n
    assert devices.load("two/ascend910a.yaml").cores == 2
    assert devices.load(tmp_path / "two" / "ascend910a.yaml").cores == 2


def test_a_copy_of_the_same_file_hides_nothing(write, recwarn):
    shipped = (registry.package_folder() / "v100.yaml").read_text(encoding="utf-8")
    path = write("configs/devices/v100.yaml", shipped)
    assert devices.load("v100").name == "v100" and not recwarn.list
    assert "v100" in registry.shipped()
    write(path, shipped + "# changed\n")
    assert "v100" not in registry.shipped() and "a100" in registry.shipped()
    with pytest.warns(UserWarning, match="'v100' is taken from configs/devices/v100.yaml, not"):
        devices.load("v100")


def test_the_shipped_files_are_those_of_the_hwsim_that_runs():
    """Also where another hwsim, whose `hwsim.configs` Python would find, is installed beside this source tree."""
    folder, package = registry.package_folder(), Path(registry.__file__).parents[1]
    assert folder in (package / "configs" / "devices", package.parent / "configs" / "devices")


def test_without_any_other_place_the_package_has_it(write):
    write("unrelated.txt", "")
    assert devices.load("ascend910a").name == "ascend910a"


def test_names_lists_each_once_with_its_place(write, small):
    write("configs/devices/mine.yaml", small)
    write("configs/devices/ascend910a.yaml", small)
    found = dict(devices.names())
    assert found["mine"] == "configs/devices/mine.yaml"
    assert found["ascend910a"] == "configs/devices/ascend910a.yaml"
    assert len(found) == len(devices.names())


def test_an_unknown_name_lists_the_known_and_the_nearest(write):
    write("unrelated.txt", "")
    with pytest.raises(UnsupportedError, match=r"no device 'ascend91a'; known: .*ascend910a.*; did you mean"):
        devices.load("ascend91a")


def test_a_file_that_cannot_be_read(write, tmp_path):
    with pytest.raises(InputError, match=r"cannot read the device file nothing.yaml: No such file"):
        devices.load(write("unrelated.txt", "") and "nothing.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"name: \xff\n")
    with pytest.raises(InputError, match="not UTF-8"):
        devices.load("binary.yaml")
    (tmp_path / "folder.yaml").mkdir()
    with pytest.raises(InputError, match="it is a folder"):
        devices.load("folder.yaml")


def test_a_broken_plugin_is_left_out_and_the_others_serve(write, small, monkeypatch):
    path = write("somewhere/else.yaml", small)
    plugins(
        monkeypatch,
        Point("bad", "bad.plugin", ImportError("no such module")),
        Point("odd", "odd.plugin", lambda: 5),
        Point("good", "good.plugin", lambda: path),
        Point("good", "second.plugin", lambda: path),
        Point("good", "good.plugin", lambda: path),  # the same package in another folder
    )
    with pytest.warns(UserWarning) as caught:
        assert devices.load("good").name == "small"
    assert sorted(str(w.message).split(" is ")[0] for w in caught) == [
        "device plug-in bad (bad.plugin)",
        "device plug-in good (second.plugin)",
        "device plug-in odd (odd.plugin)",
    ]


def test_the_shipped_folder_is_found_with_and_without_the_installed_package(monkeypatch):
    import importlib.resources

    names = {item.name for item in registry.package_folder().iterdir()}
    assert "ascend910a.yaml" in names

    def absent(_):
        raise ModuleNotFoundError

    monkeypatch.setattr(importlib.resources, "files", absent)
    assert "ascend910a.yaml" in {item.name for item in registry.package_folder().iterdir()}
