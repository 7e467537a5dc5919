"""Physical ranges of the numbers in device files: wide enough for any chip, narrow enough for the simulator's integers.

The module knows quantities; it knows no key of a device file. A number outside is a slip (a unit, a missing point), and
would overflow a time or an index later, or never end.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

# counts
Cores = Annotated[int, Field(ge=1, le=10**5)]
Elements = Annotated[int, Field(ge=1, le=10**5)]  # m, n or k of one instruction, elements
SmallCount = Annotated[int, Field(ge=1, le=10**6)]  # entries of a queue, flags, cores
BinaryPlaces = Annotated[int, Field(ge=1, le=255)]  # binary places of a shift
# sizes
SmallBytes = Annotated[int, Field(ge=1, le=10**9)]  # requests, lines, alignments
CoreBytes = Annotated[int, Field(ge=1, le=10**9)]  # of one core's memory
ChipBytes = Annotated[int, Field(ge=1, le=10**15)]  # of a memory of all cores
# times
Cycles = Annotated[int, Field(ge=0, le=10**7)]
PartialCycles = Annotated[float, Field(ge=0, le=1e7)]
IssueInterval = Annotated[float, Field(ge=1e-6, le=1e7)]  # cycles
Milliseconds = Annotated[float, Field(ge=1e-6, le=1e6)]
Microseconds = Annotated[float, Field(ge=0, le=1e6)]
Nanoseconds = Annotated[float, Field(ge=0, le=1e6)]
# rates
PerCycle = Annotated[float, Field(ge=1e-6, le=1e9)]  # bytes, multiply-accumulates
PerSecond = Annotated[float, Field(ge=1e3, le=1e18)]  # bytes
LEAST_MHZ, MOST_MHZ = 0.001, 100_000  # beyond 100 GHz a number is of another unit, or a slip
Mhz = Annotated[float, Field(ge=LEAST_MHZ, le=MOST_MHZ)]
Watts = Annotated[float, Field(ge=1e-3, le=1e6)]
Factor = Annotated[float, Field(ge=1, le=1e6)]
