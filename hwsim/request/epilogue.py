"""A schedule with the values that a caller gives for its epilogue. It knows schedules alone."""

from __future__ import annotations

import dataclasses
from typing import Any

from hwsim.errors import InputError
from hwsim.gemm.schedule import Epilogue, Schedule


def with_epilogue(
    schedule: Schedule, *, alpha: float | None = None, beta: float | None = None, output: str | None = None
) -> Schedule:
    """The schedule with these values in its epilogue. Raises InputError where it already has others."""
    plain, of_schedule = Epilogue(), schedule.epilogue
    wanted = {"alpha": alpha, "beta": beta, "output_format": output}
    values: dict[str, Any] = {name: value for name, value in wanted.items() if value is not None}
    if not values:
        return schedule
    for name, value in values.items():
        already = getattr(of_schedule, name)
        if already not in (getattr(plain, name), value):
            raise InputError(
                f"{name.removesuffix('_format')} = {value!r}, but the schedule says {already!r}; leave one out"
            )
    return dataclasses.replace(schedule, epilogue=dataclasses.replace(of_schedule, **values))  # checks the whole again
