"""What is kept of objects: found by their identity, bounded by number and by weight."""

from hwsim.program.identity_cache import IdentityCache


def test_by_identity():
    identity_cache, one, same = IdentityCache(8, 8), [1, 2], [1, 2]
    identity_cache.put("x", 1, one, identity_cache)
    assert identity_cache.get(one, identity_cache) == "x" and one == same
    assert identity_cache.get(same, identity_cache) is None and identity_cache.get(one) is None


def test_bounded_by_number_least_recently_used_first():
    identity_cache, of = IdentityCache(3, 100), [object() for _ in range(4)]
    for i in range(3):
        identity_cache.put(i, 1, of[i])
    assert identity_cache.get(of[0]) == 0
    identity_cache.put(3, 1, of[3])
    assert [identity_cache.get(one) for one in of] == [0, None, 2, 3]


def test_bounded_by_weight():
    identity_cache, of = IdentityCache(100, 10), [object() for _ in range(4)]
    for i, weight in enumerate((4, 4, 4)):
        identity_cache.put(i, weight, of[i])
    assert [identity_cache.get(one) for one in of] == [None, 1, 2, None] and identity_cache.weight == 8
    identity_cache.put(3, 50, of[3])
    assert [identity_cache.get(one) for one in of] == [None, None, None, 3] and identity_cache.weight == 50


def test_the_objects_live_as_long():
    identity_cache = IdentityCache(2, 2)
    identity_cache.put("x", 1, object())
    assert all(identity_cache.get(object()) is None for _ in range(100))
