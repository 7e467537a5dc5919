"""Units of a device file's numbers, as their names say them."""

from __future__ import annotations

#: Endings of names, the longest first where one is the end of another.
UNITS = (
    ("bytes_per_second", "bytes/s"),
    ("bytes_per_cycle", "bytes/cycle"),
    ("macs_per_cycle", "MAC/cycle"),
    ("elements_per_cycle", "elements/cycle"),
    ("_cycles", "cycles"),
    ("_bytes", "bytes"),
    ("fraction_bits", "bits"),
    ("_ns", "ns"),
    ("_us", "us"),
    ("_ms", "ms"),
    ("_mhz", "MHz"),
)


def unit_of(path: str) -> str:
    """The unit of the number at a dotted path, "" where it has none. An entry of a table has the table's."""
    for name in reversed(path.split(".")):
        for ending, unit in UNITS:
            if name.endswith(ending):
                return unit
    return ""
