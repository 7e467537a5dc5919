"""What is kept of objects: found by their identity, bounded by number and by weight."""

from hwsim.program.kept import Kept


def test_by_identity():
    kept, one, same = Kept(8, 8), [1, 2], [1, 2]
    kept.put("x", 1, one, kept)
    assert kept.get(one, kept) == "x" and one == same
    assert kept.get(same, kept) is None and kept.get(one) is None


def test_bounded_by_number_least_recently_used_first():
    kept, of = Kept(3, 100), [object() for _ in range(4)]
    for i in range(3):
        kept.put(i, 1, of[i])
    assert kept.get(of[0]) == 0
    kept.put(3, 1, of[3])
    assert [kept.get(one) for one in of] == [0, None, 2, 3]


def test_bounded_by_weight():
    kept, of = Kept(100, 10), [object() for _ in range(4)]
    for i, weight in enumerate((4, 4, 4)):
        kept.put(i, weight, of[i])
    assert [kept.get(one) for one in of] == [None, 1, 2, None] and kept.weight == 8
    kept.put(3, 50, of[3])
    assert [kept.get(one) for one in of] == [None, None, None, 3] and kept.weight == 50


def test_the_objects_live_as_long():
    kept = Kept(2, 2)
    kept.put("x", 1, object())
    assert all(kept.get(object()) is None for _ in range(100))
