"""Footprints of tiles are kept: what a search takes for a tile's bytes is what its buffers need."""

import pytest

from hwsim.dataflows.registry import dataflow
from hwsim.dataflows.tiled import choice
from hwsim.dataflows.tiled.choice import TileChooser
from hwsim.devices import load
from hwsim.gemm.problem import Problem
from hwsim.resolve.choice.cost import plan_input
from hwsim.resolve.gemm_record import record_of
from hwsim.resolve.mapping_choice import mapped
from hwsim.resolve.planning import plan_for
from hwsim.schemes import scheme_of

SIZES = 96, 80, 512


@pytest.mark.parametrize(
    ("device", "scheme"),
    [("a100", "native"), ("a100", "bf16x9"), ("t4", "ape-fp32-f"), ("h200", "ootomo-tf32"), ("mi250", "quantensor")],
)
def test_a_kept_footprint_is_that_of_the_buffers(device, scheme, monkeypatch):
    chip = load(device)
    plan = plan_for(chip, scheme_of(scheme), Problem.of("fp32", *SIZES), None, {}, None).plan
    gemm = record_of(plan, chip, Problem.of(plan_input(plan), *SIZES))
    kept, made, asked = TileChooser._footprint, [], []

    def compared(self, design):
        asked.append(design)
        found = kept(self, design)
        assert found == own(design)
        return found

    own = choice.footprint
    monkeypatch.setattr(choice, "footprint", lambda design: made.append(design) or own(design))
    monkeypatch.setattr(TileChooser, "_footprint", compared)
    flow = dataflow(chip)
    tile = mapped(gemm, chip, {}).mapping.kernels[0].tile.to_dict()
    for stages in (1, 2, 3, 4):
        list(flow.alternatives(gemm, chip, {"stages": stages}))
        mapped(gemm, chip, {"tile": tile, "stages": min(stages, 2)})
        if device == "a100" and stages < 3:  # whose fragments alone wait in registers
            mapped(gemm, chip, {"staging": "none", "stages": stages})
    assert len(made) < 0.7 * len(asked)  # three and four stages need what two need
