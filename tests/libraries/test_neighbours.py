"""Answers for weights of the same n and nearly the same k: found, joined, right on weights that were not shipped."""

import sys
from pathlib import Path

import pytest

import hwsim
from hwsim.libraries.cublas.answers.neighbours import near
from hwsim.libraries.cublas.answers.sweeps import CallKind, read, shipped, write
from hwsim.libraries.cublas.versions import versions
from hwsim.libraries.model import load

sys.path.insert(0, str(Path(__file__).parents[2] / "lab" / "tools" / "library"))
sys.path.append(str(Path(__file__).parents[2] / "lab" / "tools" / "record"))
import compare_sweeps
import neighbours
from cublaslt_layers import span_weights

KNOWN = versions()[0].neighbours
BOTH_RIGHT, ONE_RIGHT = KNOWN.right.both, dict(KNOWN.right.one)
KIND = CallKind("bf16", "bf16", False, None, "rows", "columns", 32 << 20, 2)
SPLIT, PLAIN, CUTLASS = (66, 35, 3, 2, 0, -1, -1, -1), (66, 35, 1, 0, 0, -1, -1, -1), (21, 12, 3, 2, 0, 20, 2, 0)
DRAWN = Path(__file__).parents[1] / "golden" / "h200_library" / "drawn_h100.npz"


def sweep_of(tmp_path, weights):
    """Answers by (n, k): runs of m."""
    entries = [(KIND, ("h200",), weights)]
    write(tmp_path / "x.npz", library="cublas", version="13.1", source="a test", cores={"h200": 132}, entries=entries)
    return read(tmp_path / "x.npz").sweep("h200", KIND)


def test_spans_are_the_least_slices() -> None:
    """A slice has more than so many tiles, so that one more is possible where K passes whole so many: found in answers
    for the nearest K and in the lengths of slices, and the same number.
    """
    assert load("cublas-13").calls.rules["nvjet"].slice_tiles == KNOWN.span_tiles


def test_two_that_agree_one_alone_and_none(tmp_path) -> None:
    # spans of K of 20 tiles of 64: 1281 .. 2560, 2561 .. 3840
    weights = {
        (512, 1280): [(1, PLAIN)],
        (512, 1536): [(1, SPLIT), (8, PLAIN)],
        (512, 2560): [(1, SPLIT), (4, PLAIN)],
        (512, 2624): [(1, CUTLASS), (4, SPLIT)],
        (576, 2048): [(1, SPLIT)],
    }
    sweep = sweep_of(tmp_path, weights)
    assert sweep.beside(512, 1536) == (1280, 2560)
    assert (sweep.beside(512, 1000), sweep.beside(512, 9000)) == ((None, 1280), (2624, None))
    assert sweep.beside(544, 2048) == (None, None)

    agreed = near(KNOWN, sweep, "bf16", [1, 5, 9], 512, 2048)  # between 1536 and 2560
    assert [one and (one.answer, one.neighbours, one.tiles) for one in agreed] == [
        (SPLIT, 2, 8.0), None, (PLAIN, 2, 8.0),
    ]  # fmt: skip
    assert agreed[0].confidence == BOTH_RIGHT
    # 10 tiles above 2624; kernels of others do not stand for nvjet's
    alone = near(KNOWN, sweep, "bf16", [1, 4], 512, 3264)
    assert alone[0] is None and (alone[1].answer, alone[1].neighbours, alone[1].tiles) == (SPLIT, 1, 10.0)
    assert alone[1].confidence == ONE_RIGHT[10]
    (far,) = near(KNOWN, sweep, "bf16", [4], 512, 3328)
    assert far.confidence == 0.0  # too far away to say
    (other,) = near(KNOWN, sweep, "bf16", [1], 512, 1344)  # 1280 is of the span before
    assert other.neighbours == 1 and other.tiles == 3.0
    assert near(KNOWN, sweep, "bf16", [1], 512, 2044) == [None]  # rows of no whole 16 bytes
    assert near(KNOWN, sweep, "bf16", [1], 640, 2048) == near(KNOWN, sweep, "bf16", [1], 512, 3904) == [None]
    (wide,) = near(KNOWN, sweep, "e4m3", [1], 576, 1936)  # a span of 8-bit operands has 2560 elements, a tile 128
    assert (wide.answer, wide.tiles) == (SPLIT, 0.875)


@pytest.mark.parametrize("device", ["h100", "h200"])
def test_shares_right_are_those_of_recorded_weights(device) -> None:
    """Each recorded weight by the others: no share that is said is above what is found."""
    (kind, sweep) = next(
        (kind, sweep)
        for (name, kind), sweep in shipped(versions()[0].layers).by_kind.items()
        if name == device and (kind.operand, kind.bias) == ("fp16", False)
    )
    found = neighbours.right_answers(KNOWN, sweep, kind.operand)
    assert found[2, 0, "all"] > 60_000 and found[1, 4, "all"] > 40_000 and found[1, 10, "all"] > 40_000
    for key, said in {(2, 0): BOTH_RIGHT, (1, 4): ONE_RIGHT[4], (1, 10): ONE_RIGHT[10]}.items():
        share = found[(*key, "right")] / found[(*key, "all")]
        assert said - 0.0001 <= share <= said + 0.005, (key, share)
    moved = neighbours.changes(KNOWN, sweep, kind.operand)
    within, across = (moved[crosses, "other"] / moved[crosses, "all"] for crosses in (False, True))
    assert across > 5 * within > 0


def test_drawn_weights_between_two_that_agree_are_right() -> None:
    """Weights drawn at random, to which nothing was fitted (an H100), that stand between two recorded ones."""
    answers, checked = shipped(versions()[0].layers), 0
    for (device, kind), sweep in read(DRAWN).by_kind.items():
        if device != "h100" or kind.operand not in ("bf16", "fp16", "e4m3"):
            continue
        known = answers.sweep(device, kind)
        for n, k in (divmod(int(key), 1 << 32) for key in sweep.keys):
            if answers.kinds(device, n, k):
                continue
            true = sweep.at(compare_sweeps.SIZES, n, k)
            for one, own in zip(near(KNOWN, known, kind.operand, compare_sweeps.SIZES, n, k), true, strict=True):
                if one is not None and one.neighbours == 2:
                    checked += 1
                    assert one.answer[:5] == own[:5], (kind.text, n, k)
    assert checked > 6000


def test_a_choice_takes_what_two_agree_on() -> None:
    """A drawn weight between two recorded ones, at each m of the batch classes."""
    library, sweep = hwsim.library("cublas", device="h100"), read(DRAWN).sweep("h100", KIND)
    answers = shipped(versions()[0].layers).sweep("h100", KIND)
    call = {"format": "bf16", "output": "bf16", "b_layout": "columns", "reductions": "compute"}
    taken = 0
    for n, k in (divmod(int(key), 1 << 32) for key in sweep.keys):
        found = near(KNOWN, answers, "bf16", compare_sweeps.SIZES, n, k)
        if answers.at([1], n, k) != [None] or not any(one is not None and one.neighbours == 2 for one in found):
            continue
        choices, index, sure = library.orders(compare_sweeps.SIZES, n=n, k=k, **call)
        for one, place, share in zip(found, index, sure, strict=True):
            if one is not None and one.neighbours == 2:
                choice = choices[place]
                assert (choice.algorithm, choice.split_k, share) == (one.answer[0], one.answer[2], BOTH_RIGHT)
                assert choice.evidence == "fitted"
                taken += 1
    assert taken > 1900


def test_batches_take_nothing_from_single_products() -> None:
    library, sweep = hwsim.library("cublas", device="h100"), read(DRAWN).sweep("h100", KIND)
    call = {"m": 48, "format": "bf16", "output": "bf16", "b_layout": "columns", "reductions": "compute"}
    taken, shares = 0, (BOTH_RIGHT, *ONE_RIGHT.values())
    for n, k in (divmod(int(key), 1 << 32) for key in sweep.keys[:40]):
        taken += library.choose(n=n, k=k, **call).confidence in shares
        assert library.choose(n=n, k=k, batch=3, **call).confidence not in shares
    assert taken > 9


@pytest.mark.parametrize("operand", ["bf16", "e4m3"])
def test_a_recording_by_spans_leaves_no_weight_without_neighbours(tmp_path, operand) -> None:
    """Both ends of each span: every k of whole tiles of 16 bits has one on each side, but for those themselves."""
    weights = span_weights(range(512, 577, 64))
    sweep = sweep_of(tmp_path, {weight: [(1, SPLIT)] for weight in weights})
    assert {n for n, _ in weights} == {512, 576}
    for k in range(64, 32769, 64):
        (one,) = near(KNOWN, sweep, operand, [1], 576, k)
        assert sweep.at([1], 576, k) == [SPLIT] or one.neighbours == 2, k
