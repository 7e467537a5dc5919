"""Records that the resolver could not have made are refused, and the message names the place."""

import functools
import json
import re
from dataclasses import replace

import pytest

import hwsim
from hwsim.cli import main
from hwsim.errors import InputError
from hwsim.gemm.record import Gemm

SIZES = {"m": 32, "n": 32, "k": 32}
REQUESTS = {
    "separated": {"device": "ascend910b1", "scheme": "ape-fp32-f"},
    "coupled": {"device": "ascend910a", "scheme": "sgemm-cube"},
    "tiled": {"device": "a100", "scheme": "le-gemm"},
    "native": {"device": "h200", "format": "fp16"},
    "mixed": {"device": "a100", "scheme": "ape"},
    "slices": {"device": "h200", "scheme": "ozaki-int8"},
}
REMOVED = "(removed)"


@functools.cache
def saved(name):
    """A record as JSON text, without its digest."""
    data = hwsim.run(**SIZES, **REQUESTS[name]).gemm.to_dict()
    del data["digest"]
    return json.dumps(data)


def damaged(name, path, value):
    """The record with another value at a path."""
    data = json.loads(saved(name))
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    if value is REMOVED:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return data


KERNEL = ("mapping", "kernels", 0)
TERM = ("plan", "terms", 0, "stages", 0)


@pytest.mark.parametrize(
    ("name", "path", "value", "message"),
    [
        ("separated", ("plan", "combine", "is"), {}, "plan.combine: is = {}"),
        ("separated", ("plan", "combine"), {"is": []}, "plan.combine: is = []"),
        ("tiled", ("schedule", "epilogue", "alpha"), {"is": "float", "value": []}, "epilogue.alpha: is = 'float'"),
        ("tiled", ("plan", "terms"), [], "plan.terms: there are no terms"),
        ("tiled", ("plan", "terms", 0), REMOVED, "plan.combine: term = 1; allowed: at most 0"),
        ("tiled", ("plan", "terms", 0, "stages"), [], "plan.terms[0].stages: there are no stages"),
        ("tiled", (*TERM, "products"), [], "terms[0].stages[0].products: there are no products"),
        ("tiled", (*TERM, "products", 0, 0), 2, "products[0]: piece of A = 2; allowed: at most 1"),
        ("tiled", (*TERM, "products", 0, 1), 10**30, "piece of B = 1e+30"),
        ("tiled", (*TERM, "products", 0, 1), -1, "piece of B = -1; allowed: at least 0"),
        ("tiled", (*TERM, "scale_exponent"), 10**30, "stages[0].scale_exponent = 1e+30"),
        ("separated", ("plan", "b_pieces"), [], "plan.b_pieces: there are no pieces"),
        ("separated", ("plan", "a_pieces", 1, "scale_exponent"), 10**30, "a_pieces[1].scale_exponent = 1e+30"),
        ("separated", ("plan", "a_pieces", 1, "rounding"), "RNX", "a_pieces[1].rounding = 'RNX'"),
        ("separated", ("plan", "a_pieces", 1, "format"), "fp17", "a_pieces[1].format: 'fp17' is not a format"),
        ("separated", ("plan", "combine", "right", "exponent"), -(10**6), "plan.combine: exponent = -1000000"),
        ("tiled", ("plan", "combine", "left", "term"), 1 << 63, "plan.combine: term = 9223372036854775808"),
        ("slices", ("plan", "slice_bits"), 0, "plan.slice_bits = 0; allowed: at least 1"),
        ("mixed", ("plan", "ranges"), [], "plan.ranges: 0 of them"),
        ("mixed", ("plan", "block", 0), 0, "plan.block: m = 0; allowed: at least 1"),
        ("mixed", ("plan", "strategy"), "fp32", "plan.strategy = 'fp32'; allowed: 'hybrid', 'decide'"),
        ("mixed", ("parts",), REMOVED, "gemm record.parts: there are none"),
        ("mixed", ("plan", "blocks"), REMOVED, "plan.blocks: none"),
        ("native", ("problem", "m"), 10**30, "problem.m = 1e+30"),
        ("native", ("schedule", "sum"), {"is": "Reduction", "parts": []}, "schedule.sum: there are no parts"),
        ("native", ("schedule", "epilogue", "beta"), None, "schedule.epilogue: beta is left open"),
        ("native", ("output",), "fp31", "output: 'fp31' is not a format"),
        ("native", KERNEL, REMOVED, "mapping.kernels: there are no kernels"),
        ("native", (*KERNEL, "terms"), [], "kernels[0].terms: there are no terms"),
        ("native", (*KERNEL, "terms"), [0, 0], "they compute the terms [0, 0]"),
        ("native", (*KERNEL, "tile", "m"), -1, "kernels[0].tile.m = -1; allowed: at least 1"),
        ("native", (*KERNEL, "warp", 0), 0, "kernels[0].warp = 0; allowed: at least 1"),
        ("native", (*KERNEL, "stages"), 0, "kernels[0].stages = 0; allowed: at least 1"),
        ("native", (*KERNEL, "settings", 0), REMOVED, "kernel gemm lacks the settings k_group"),
        ("native", (*KERNEL, "settings", 0, "value"), 0, "setting: k_group = 0; allowed: an integer of at least 1"),
        ("native", (*KERNEL, "settings", 0, "name"), "k_grup", "setting 'k_grup'; allowed: k_group"),
        ("coupled", (*KERNEL, "settings", 0, "value"), "x", "setting: n_fused = 'x'; allowed: an integer"),
        ("separated", (*KERNEL, "settings", 0, "value"), 0, "setting: step_ka = 0; allowed: an integer of at least 1"),
        ("separated", (*KERNEL, "settings", 2), REMOVED, "lacks the settings distribution"),
        ("separated", (*KERNEL, "settings", 2, "value"), "block", "lacks the settings grid_rows, grid_cols"),
        ("separated", (*KERNEL, "tile", "k"), 17, "k = 17 is not a positive multiple of 16"),
        ("native", ("scheme_options", 0, "value"), 1.5, "scheme native: format = 1.5; allowed: a name"),
        ("native", ("scheme_options", 0, "name"), "formt", "scheme native has no option 'formt'"),
        ("native", ("scheme_options", 0), REMOVED, "scheme_options lack format"),
        ("tiled", ("scheme_options", 1, "name"), "residual_rounding", "residual_rounding is there twice"),
    ],
    ids=str,
)
def test_a_damaged_record_is_refused_with_its_place(name, path, value, message):
    with pytest.raises(InputError, match=re.escape(message)):
        hwsim.run(gemm=damaged(name, path, value))


@pytest.mark.parametrize("name", REQUESTS)
def test_a_record_as_it_was_saved_is_run(name):
    assert hwsim.run(gemm=json.loads(saved(name))).gemm.scheme


def test_a_record_made_by_hand_is_checked_too():
    one = hwsim.run(**SIZES, **REQUESTS["native"]).gemm
    plan = hwsim.run(**SIZES, **REQUESTS["tiled"]).gemm.plan
    with pytest.raises(InputError, match="they compute the terms"):
        hwsim.run(gemm=replace(one, plan=plan))


def test_the_digest_does_not_hide_a_wrong_place():
    data = json.loads(saved("separated")) | {"digest": "0" * 64}
    data["plan"]["combine"]["is"] = {}
    with pytest.raises(InputError, match=re.escape("plan.combine: is = {}")):
        Gemm.from_dict(data)


def test_a_record_nested_too_deep_is_refused():
    data = json.loads(saved("native"))
    for _ in range(5000):
        data["plan"]["combine"] = {"is": "Scaled", "value": data["plan"]["combine"], "exponent": 0}
    with pytest.raises(InputError, match="nested deeper"):
        Gemm.from_dict(data)


def test_the_command_line_refuses_it_with_2(tmp_path, capsys):
    file = tmp_path / "record.json"
    file.write_text(json.dumps(damaged("native", (*KERNEL, "warp", 0), 0)))
    assert main(["run", "--gemm", str(file)]) == 2
    assert "kernels[0].warp = 0" in capsys.readouterr().err


def test_a_record_of_native_fp32_in_place_of_a_scheme_keeps_that_scheme_s_options():
    one = hwsim.run(**SIZES, device="h200", scheme="bf16x9", hybrid=True)
    assert one.gemm.scheme == "native"
    assert (hwsim.run(gemm=one.gemm).c == one.c).all()
