"""Emission of elementwise instructions: a wait runs as often as what it was asked for."""

import pytest

from hwsim.dataflows.vector_ops import VectorOps
from hwsim.program.builder import StreamBuilder
from hwsim.program.ir import LocalTile, Sync


def test_a_wait_is_not_carried_into_a_loop():
    stream = StreamBuilder("main")
    ops = VectorOps(stream, "VECTOR")
    ops.wait(Sync("lines.full"))
    with pytest.raises(RuntimeError, match=r"lines\.full: its wait is in another loop"), stream.loop("part", 2):
        ops.op("fill", LocalTile("total", 1, 1, "fp32"))
