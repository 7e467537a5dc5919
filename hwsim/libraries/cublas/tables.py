"""Tables beside the library files (.csv): their rows, each turned into a record, or the line that is wrong.

It knows columns and lines; not what they mean.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from hwsim.errors import ConfigError
from hwsim.host.places import package_folder, text_of

TableRecord = TypeVar("TableRecord")


def records(
    name: str, kind: str, columns: Sequence[str], record: Callable[[Mapping[str, str]], TableRecord]
) -> Iterator[TableRecord]:
    """The records of a table. kind: the word for it in messages. record: makes one of a row, or raises ValueError.

    Raises InputError where the file cannot be read, ConfigError where columns are missing or a row is none.
    """
    reader = csv.DictReader(text_of(package_folder("libraries") / name, kind).splitlines())
    missing = [column for column in columns if column not in (reader.fieldnames or ())]
    if missing:
        raise ConfigError([f"{name}:1: no column {', '.join(missing)}; allowed: {', '.join(columns)}"], kind=kind)
    for row in reader:
        try:
            if None in row or None in row.values():
                raise ValueError(f"{len(reader.fieldnames or ())} columns are named, and it has others")
            yield record(row)
        except ValueError as error:
            raise ConfigError([f"{name}:{reader.line_num}: {error}"], kind=kind) from None
