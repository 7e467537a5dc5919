"""Parts of the blind sets of docs/library.md, each recorded once a model was finished; the whole is a command's."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools" / "library"))
import compare  # noqa: E402

EVERY = 25


@pytest.mark.parametrize(
    ("name", "device", "expected"),
    [
        ("blind", "h200", 72),
        ("blind", "h100", 34),
        ("blind2", "h200", 70),
        ("blind2", "h100", 36),
        ("blind3", "h200", 70),
        ("blind3", "h100", 33),
    ],
)
def test_as_many_blocks_are_equal_in_every_bit_as_the_page_says(name: str, device: str, expected: int) -> None:
    """expected: of every 25th GEMM. More is better, and then the page is behind as well."""
    with np.load(ROOT / "tests" / "golden" / "h200_library" / f"{name}_{device}.npz") as archive:
        said = json.loads(str(archive["meta"]))
        entries = [x for x in said["entries"] if f"{x.get('index')}/d" in archive][::EVERY]
        equal = 0
        for entry in entries:
            d = archive[f"{entry['index']}/d"]
            got = compare.block(entry, said["seed"], d.shape, device)
            equal += np.array_equal(np.ascontiguousarray(got).view(d.dtype), d)
    assert len(entries) == {"h200": 72, "h100": 36}[device] and equal == expected
