"""Parts of the blind sets of docs/library.md, each recorded once a model was finished; the whole is a command's."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "lab" / "tools" / "library"))
import compare  # noqa: E402

EVERY = 25
GOLDEN = ROOT / "tests" / "golden" / "h200_library"


@pytest.mark.parametrize(
    ("name", "device", "expected"),
    [
        ("blind", "h200", 72),
        ("blind", "h100", 34),
        ("blind2", "h200", 70),
        ("blind2", "h100", 36),
        ("blind3", "h200", 70),
        ("blind3", "h100", 33),
        ("blind4", "h200", 12),
        ("blind4", "h100", 12),
        ("columns6", "h200", 16),
        ("columns6", "h100", 16),
        ("batches6", "h200", 16),
        ("batches6", "h100", 16),
        ("columns7", "h200", 19),
        ("columns7", "h100", 20),
        ("batches7", "h200", 20),
        ("batches7", "h100", 20),
        ("mixed", "h100", 13),
        ("bias8", "h100", 6),
        ("bias9", "h100", 12),
    ],
)
def test_as_many_blocks_are_equal_in_every_bit_as_the_page_says(name: str, device: str, expected: int) -> None:
    """expected: of every 25th GEMM. More is better, and then the page is behind as well."""
    equal, count = compared(name, device, "cublas", 0)
    others = {
        "blind4": 12,
        "columns6": 16,
        "batches6": 16,
        "columns7": 20,
        "batches7": 20,
        "mixed": 13,
        "bias8": 7,
        "bias9": 12,
    }
    assert count == others.get(name, {"h200": 72, "h100": 36}[device]) and equal == expected


@pytest.mark.parametrize(("name", "device"), [("blind3", "h200"), ("blind3", "h100"), ("blind4", "h100")])
def test_told_the_librarys_own_answers_every_bit_is_its(name: str, device: str) -> None:
    """What cuBLASLt answered beside these GEMMs: an order of sums that is wrong would show."""
    answers = GOLDEN / f"{name}_answers_{device}.npz"
    equal, count = compared(name, device, str(answers), 7)
    assert equal == count > 10


def compared(name: str, device: str, library: str, first: int) -> tuple[int, int]:
    """Of every 25th GEMM: those equal in every bit, and how many there are."""
    with np.load(GOLDEN / f"{name}_{device}.npz") as archive:
        said = json.loads(str(archive["meta"]))
        entries = [x for x in said["entries"] if f"{x.get('index')}/d" in archive][first::EVERY]
        equal = 0
        for entry in entries:
            d = archive[f"{entry['index']}/d"]
            got = compare.block(entry, said["seed"], d.shape, device, library)
            equal += np.array_equal(np.ascontiguousarray(got).view(d.dtype), d)
    return equal, len(entries)
