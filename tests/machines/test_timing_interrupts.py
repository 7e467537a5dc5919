"""A signal's handler runs while the timing engine does, and what it raises stops it: Ctrl-C in a long program."""

import signal

import pytest

import hwsim


class StoppedError(Exception):
    pass


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timers here")
def test_what_a_handler_raises_stops_the_engine():
    """It came only after the kernel's end, 2.5 s after Ctrl-C for 65536^3."""

    def handler(number, frame):
        if frame is not None and frame.f_code.co_name == "_executed":  # the function that calls the engine
            raise StoppedError

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    try:
        with pytest.raises(StoppedError) as caught:
            hwsim.run(m=49152, n=49152, k=49152, device="h200", format="fp16", exact=False, tile=(128, 256, 64))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert any("engine.pyx" in str(entry.path) for entry in caught.traceback)  # not after it
