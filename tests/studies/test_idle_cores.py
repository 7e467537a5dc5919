"""What a run says that leaves more than half of the cores idle."""

import pytest

import hwsim
from hwsim.resolve.choice.idle_cores import CODE


def said(**arguments):
    found = hwsim.run(**{"exact": False} | arguments).warnings
    return [one for one in found if one["code"] == CODE]


@pytest.mark.parametrize(
    ("arguments", "busy", "cores", "remedy"),
    [
        ({"device": "ascend910a", "format": "fp16", "grid": (4, 2)}, 8, 32, "leave out grid, or cut K"),
        ({"device": "ascend910a", "format": "fp16", "tile": (176, 64, 176), "grid": (1, 3)}, 3, 32, "tile and grid"),
        ({"device": "h200", "format": "fp16", "tile": (128, 128, 64)}, 64, 132, "leave out tile, or multiply a stack"),
        ({"device": "h200", "format": "fp32", "tile": (128, 128, 8), "k": 8192}, 64, 132, "leave out tile, or cut K"),
        ({"device": "ascend910b3", "format": "fp16", "m": 256, "tile": (128, 256, 64)}, 8, 20, "leave out tile"),
    ],
)
def test_the_notice_counts_idle_cores_and_says_what_to_do(arguments, busy, cores, remedy):
    (notice,) = said(**{"m": 1024, "n": 1024, "k": 1024} | arguments)
    assert notice["count"] == cores - busy
    assert notice["message"].startswith(f"{busy} of {cores} cores") and remedy in notice["message"]
    assert ("split_k" in notice["message"]) == ("cut K" in remedy or arguments["device"] == "ascend910a")


def test_half_of_the_cores_is_enough():
    given = {"device": "ascend910a", "format": "fp16", "m": 1024, "n": 1024, "k": 64}
    assert said(**given, grid=(5, 3)) and not said(**given, grid=(4, 4))
    assert not said(**given)


def test_slices_of_k_are_named_only_where_they_are_faster():
    given = {"device": "h200", "format": "fp16", "m": 1024, "n": 1024, "k": 1024, "tile": (128, 128, 64)}
    whole, cut = (hwsim.run(**given, exact=False, split_k=count).seconds for count in (1, 2))
    assert cut > whole and "split_k" not in said(**given)[0]["message"]


def test_slices_of_k_are_named_only_where_k_is_whole():
    given = {"device": "h200", "format": "fp16", "m": 64, "n": 64, "k": 4096}
    assert "split_k" in said(**given)[0]["message"]
    assert "split_k" not in said(**given, split_k=4)[0]["message"]


def test_without_cycles_nothing_is_said():
    assert not said(device="h200", format="fp16", m=64, n=64, k=64, timing=False)


@pytest.mark.parametrize(
    ("device", "sizes", "is_said"),
    [
        ("ascend910a", (16, 16, 64), False),  # one block of C, one slice of K
        ("ascend910a", (48, 64, 64), False),  # the default deals its blocks to 12 of 32 cores, of which it has no more
        ("ascend910a", (16, 16, 4096), True),  # one block, 64 slices
        ("h200", (64, 64, 64), False),
        ("h200", (128, 128, 128), False),
        ("h200", (256, 128, 256), True),
        ("ascend910b3", (16, 16, 4096), False),  # whose programs do not cut K
    ],
)
def test_a_product_of_too_few_blocks_for_half_of_the_cores_gets_no_notice(device, sizes, is_said):
    m, n, k = sizes
    assert bool(said(device=device, format="fp16", m=m, n=n, k=k)) == is_said


@pytest.mark.parametrize(
    ("device", "tile", "sizes", "beyond", "said"),
    [
        ("h200", (128, 256, 64), (512, 128), 128 * 128, "the tile is 128 x 256 and C 512 x 128: 128 x 128 of the tile"),
        ("h200", (128, 256, 64), (64, 256), 64 * 256, "64 x 256 of the tile"),
        ("h200", (128, 128, 64), (100, 121), 0, ""),  # of whole instructions of 64 x 8
        ("h200", (128, 128, 64), (512, 300), 0, ""),  # the last tile is smaller, as of any kernel here
        ("ascend910a", (32, 32, 32), (16, 32), 16 * 32, "16 x 32 of the tile"),
    ],
)
def test_a_given_tile_beyond_c_is_said(device, tile, sizes, beyond, said):
    call = {"device": device, "format": "fp16", "exact": False, "m": sizes[0], "n": sizes[1], "k": 256}
    notices = [
        one
        for one in hwsim.run(**call, tile=dict(zip("mnk", tile, strict=True))).warnings
        if one["code"] == "tile_beyond_c"
    ]
    assert [notice["count"] for notice in notices] == ([beyond] if beyond else [])
    assert all(said in notice["message"] for notice in notices)
    assert "tile_beyond_c" not in [one["code"] for one in hwsim.run(**call).warnings]
