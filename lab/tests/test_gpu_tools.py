"""lab/tools/gpu: what the comparisons of the engine `cuda` find, with the CPU's kernels in the GPU's place."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hwsim.backend import by_name
from hwsim.backend.cpu import CPU
from hwsim.backend.cuda import backend as cuda_backend
from hwsim.backend.cuda import on_device
from hwsim.backend.cuda.backend import CudaBackend

TOOLS = Path(__file__).parents[1] / "tools" / "gpu"
EFFORT = {"results": 1e5, "seconds": 1e3, "budget": 1e3, "threads": 2, "seed": 1}


@pytest.fixture(params=[False, True], ids=["equal", "a planted fault"])
def planted(request, monkeypatch):
    """The tools' modules, and whether the product in the GPU's place has a fault."""
    monkeypatch.syspath_prepend(str(TOOLS))
    for name in ("comparison", "recorded", "every_product", "engine", "instructions"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import comparison
    import every_product

    class Array(np.ndarray):
        def get(self, out=None):
            if out is None:
                return np.array(self)
            out[...] = self
            return out

    def product(spec, operands):
        codes = CPU.gemm(spec, operands)
        codes[..., -1, -1] ^= request.param
        return codes.view(Array)

    monkeypatch.setattr(comparison, "product", product)
    monkeypatch.setattr(comparison, "to_gpu", np.array)
    monkeypatch.setattr(comparison, "cupy", lambda: np)
    monkeypatch.setattr(comparison, "pinned", lambda size, dtype: np.empty((size, size), dtype))
    monkeypatch.setattr(comparison, "SIZES", (32, 64, 128))
    monkeypatch.setattr(cuda_backend, "product", product)
    monkeypatch.setattr(cuda_backend, "to_gpu", np.array)
    monkeypatch.setattr(cuda_backend, "failures", lambda: (MemoryError,))
    for name in ("LEAST_MACS", "LEAST_MACS_PER_BYTE", "LEAST_WHOLE_MACS"):
        monkeypatch.setattr(cuda_backend, name, getattr(cuda_backend, name))
    for name in ("product", "add_chains"):
        monkeypatch.setattr(on_device, name, getattr(on_device, name))
    return SimpleNamespace(comparison=comparison, every_product=every_product, is_faulty=request.param)


def test_every_kind_has_every_depth_and_what_is_known_is_not_computed_again(planted, tmp_path, capsys):
    tool, file = planted.comparison, tmp_path / "compare.json"
    first = ("a100", "mma.m16n8k16.f32.f16.f16.f32")
    chosen = dict(list(tool.units([first]).items())[:2])
    assert next(iter(chosen.values())) == " ".join(first)
    differ = tool.compare(chosen, tool.Effort(**EFFORT), file)
    known = json.loads(file.read_text())
    assert set(known) == set(chosen.values()) and (differ > 0) == planted.is_faulty
    for unit in known.values():
        assert set(unit["kinds"]) == set(tool.KINDS)
        assert sum(unit["kinds"].values()) == unit["results"] >= EFFORT["results"]
        assert all(results >= len(tool.DEPTHS) * 32**2 for results in unit["kinds"].values())
    text = file.read_text()
    assert tool.compare(chosen, tool.Effort(**EFFORT), file) == differ and file.read_text() == text
    other, name = known
    file.write_text(json.dumps(known | {name: known[name] | {"results": 5, "kinds": {"normal": 5}}}))
    tool.compare(chosen, tool.Effort(**EFFORT), file)
    again = json.loads(file.read_text())
    assert again[name]["results"] >= EFFORT["results"] and again[other] == known[other]
    assert "no time is left for 2 units" not in capsys.readouterr().out
    file.unlink()
    assert tool.compare(chosen, tool.Effort(**EFFORT | {"budget": 0.0}), file) == 0 and not file.exists()
    assert "no time is left for 2 units" in capsys.readouterr().out


def test_units_of_each_model_and_pair_of_formats_come_before_others(planted):
    tool = planted.comparison
    groups = [tool._group(spec) for spec in tool.units()]
    assert len(groups) > len(set(groups)) and len(set(groups[: len(set(groups))])) == len(set(groups))


def test_a_run_of_the_manifest_sends_every_product_to_the_gpu(planted, monkeypatch):
    monkeypatch.setenv("HWSIM_ENGINE", "cpu")  # what the run sets goes with the test
    import recorded

    gpu = CudaBackend.__new__(CudaBackend)
    gpu.variant, gpu.for_whole = "sm_90", lambda macs: None
    monkeypatch.setattr(by_name, "_cuda", lambda: gpu)
    record = recorded._record()
    want = record.expected()
    case = next(case for case in record.listed.cases() if case["id"].startswith("scheme/h200/bf16x9"))
    row = recorded.manifest_run(case)
    assert row["product"] > 1 and not row["said"]
    assert (row["c"] == want[case["id"]]["c"]) != planted.is_faulty


SASS = """
.text.sizes:
        /*0000*/                   BRA `(.L_x_0);
\t.section\t.text.tiles,"ax",@progbits
.text.tiles:
.L_x_1:
        /*0000*/                   LDS R1, [R2] ;
.L_x_2:
        /*0010*/                   LOP3.LUT R4, R5, R6, RZ, 0x3c, !PT ;
        /*0020*/                   DFMA R8, R10, R12, R8 ;
        /*0030*/               @P0 BRA `(.L_x_4) ;
        /*0040*/                   DFMA R8, R10, R12, R8 ;
.L_x_4:
        /*0050*/              @!P1 BRA `(.L_x_2) ;
.L_x_5:
        /*0060*/                   VIADDMNMX.U16x2 R1, R2, R3, R4, !PT ;
        /*0070*/               @P1 BRA `(.L_x_5) ;
        /*0080*/               @P2 BRA `(.L_x_1) ;
\t.section\t.text.scalar,"ax",@progbits
.L_x_9:
        /*0000*/                   BRA `(.L_x_9);
"""


def test_instructions_are_those_of_inner_loops(planted):
    import instructions

    product, largest = instructions.inner_loops(SASS)
    assert product == ["LOP3", "DFMA", "BRA", "DFMA", "BRA"] and largest == ["VIADDMNMX", "BRA"]
    assert instructions.line_of(product, "fused.cuh").startswith("5 instructions for 2 products, 2.50 each: 2 DFMA")
    assert instructions.line_of(product, "exact.cuh").startswith("5 instructions for 1 products, 5.00 each")
    assert instructions.line_of(["IDP", "BRA"], "integer.cuh").startswith("2 instructions for 4 products, 0.50 each")
    assert instructions.line_of(largest, "fused.cuh").startswith("2 instructions for 2 products, 1.00 each")
    assert instructions.line_of(["BRA"], "fused.cuh") == ""
