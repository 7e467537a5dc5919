"""The option `buffering`, common to both DaVinci dataflows, and the values of the coupled one's `convert_a`."""

from __future__ import annotations

BUFFERS = {"single": 1, "double": 2}  # slots of L1, L0A and L0B per stage of the pipeline, by `buffering`
DEFAULT_BUFFERING = "double"
BEFORE, IN_KERNEL = "before", "kernel"  # values of `convert_a`: who splits A


def buffering_of(buffers: int) -> str:
    """The word ("single" or "double") for this number of buffers per stage."""
    return next(name for name, count in BUFFERS.items() if count == buffers)
