"""Semaphores of peers in time: a core waits for one of another group, at times worked out by hand."""

from dataclasses import replace

import pytest
from timing_device import device, kernel, program, sync

from hwsim.errors import ProgramError
from hwsim.machines.timing import run
from hwsim.program.ir import Semaphore

TICKS = 1024


def of_peers(made, *names):
    """The kernel with semaphores of peers."""
    return replace(made, semaphores=(*made.semaphores, *(Semaphore(name, peers=True) for name in names)))


def rows(made, dev=None):
    trace = run(program(made), dev or device(), trace=100).trace
    return sorted(
        (int(r["core"]), int(r["start"]) / TICKS, int(r["end"]) / TICKS, int(r["signaller"])) for r in trace.rows
    )


def test_a_core_waits_until_its_peer_has_signalled():
    giver = (sync("M", repeat=3), sync("M", signals="f"))
    taker = (sync("V", waits="f"),)
    made = of_peers(kernel(giver, taker, counts=(4, 4)), "f")
    assert rows(made) == [(0, 1, 31, -1), (0, 31, 41, -1), (4, 41, 51, 1)]
    time = run(program(made), device())
    assert time.cycles == 51
    assert time.kernels[0].engines["V"].stall_cycles["semaphore:f"] == 4 * 40


def test_the_order_of_groups_does_not_matter():
    giver, taker = (sync("M", repeat=3), sync("M", signals="f")), (sync("V", waits="f"),)
    assert run(program(of_peers(kernel(taker, giver), "f")), device()).cycles == 51


def test_several_groups_wait_for_one_and_one_for_several():
    """Two sums stored one after the other; what waits takes all of its waits at once or none."""
    first, second = (sync("M", signals="f", repeat=2),), (sync("M", signals="g*2", repeat=5),)
    both, other = (sync("V", waits="f g"), sync("V")), (sync("IN", waits="g"),)
    made = of_peers(kernel(first, second, both, other, counts=(2, 2, 2, 2)), "f", "g")
    assert rows(made) == [(0, 1, 21, -1), (2, 1, 51, -1), (4, 51, 61, 1), (4, 61, 71, -1), (6, 51, 61, 1)]


def test_a_peer_that_never_signals_is_a_deadlock_and_a_signal_too_many_leaks():
    with pytest.raises(ProgramError, match=r"waits for semaphore 'f': has 0, needs 1"):
        run(program(of_peers(kernel((sync("M"),), (sync("V", waits="f"),)), "f")), device())
    with pytest.raises(ProgramError, match=r"semaphore 'f' ends at 1, began at 0"):
        run(program(of_peers(kernel((sync("M", signals="f*2"),), (sync("V", waits="f"),)), "f")), device())


def test_a_semaphore_of_a_core_is_its_own():
    made = kernel((sync("M", signals="own"),), (sync("V", waits="own"),))
    with pytest.raises(ProgramError, match="deadlock"):
        run(program(replace(made, semaphores=(*made.semaphores, Semaphore("own")))), device())
