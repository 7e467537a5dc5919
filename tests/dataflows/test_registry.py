"""The registry of dataflows: hwsim's own are imported when used, and their options are known before."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hwsim.dataflows.davinci.coupled import COUPLED
from hwsim.dataflows.options import STAGES
from hwsim.dataflows.protocol import Dataflow
from hwsim.dataflows.registry import OWN, OwnFamily, dataflows
from hwsim.request.declarations import declared

#: Runs `statement` and prints which of hwsim's own dataflows have been imported.
LOADED = """
import sys
from hwsim.dataflows.registry import OWN, TILED_DATAFLOW, dataflows
{statement}
modules = dict({{name: family.where for name, family in OWN.items()}}, tiled=TILED_DATAFLOW)
print(*(name for name, where in modules.items() if where.partition(":")[0] in sys.modules))
"""


@pytest.mark.parametrize("name", OWN)
def test_a_row_says_what_its_dataflow_has(name: str) -> None:
    flow = OWN[name].load()
    assert isinstance(flow, Dataflow) and flow is dataflows()[name]
    assert flow.name == name and flow.options == OWN[name].declared


@pytest.mark.parametrize(
    ("statement", "loaded"),
    [
        ("import hwsim; hwsim.run", ""),
        ("from hwsim.request.declarations import declared; assert len(declared()) > 30", ""),
        ("assert len(dataflows()) >= len(OWN) and 'sm90' in dataflows()", ""),
        ("import hwsim; hwsim.run(m=16, n=16, k=16, device='ascend910a', scheme='sgemm-cube')", "davinci"),
        ("import hwsim; hwsim.run(m=16, n=16, k=16, device='h200', exact=False)", "tiled"),
        ("dataflows()['cdna']", "tiled"),
    ],
)
def test_a_dataflow_is_imported_when_used(statement: str, loaded: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED.format(statement=statement)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == loaded.split()


def test_options_of_an_imported_dataflow_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(COUPLED), "options", (*COUPLED.options, STAGES))
    assert OWN["davinci"].options == dataflows().options()["davinci"] == COUPLED.options
    owners = {entry.option.name: entry.owners for entry in declared()}
    assert "davinci" in owners["stages"]


def test_options_of_a_dataflow_that_is_not_imported_are_as_declared() -> None:
    assert OwnFamily("hwsim.dataflows.nowhere:NOTHING", (STAGES,)).options == (STAGES,)
