"""SGLang's token pool and radix cache: what is found, what is split, what goes first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipelines.replay.radix import RadixPool, Span, alike, cut


def text(*parts: tuple[str, int]) -> tuple[Span, ...]:
    return tuple(Span(name, 0, tokens) for name, tokens in parts)


def kept(pool: RadixPool, *sequences: tuple[tuple[str, int], ...]) -> None:
    """Sequences that ended, one after another: the tree has them."""
    for each in sequences:
        tokens = sum(tokens for _, tokens in each)
        assert pool.has_room(tokens)
        pool.free -= tokens
        _, had = pool.insert(text(*each), tokens)
        pool.free += had


def test_spans_are_cut_and_compared_by_tokens():
    spans = text(("a", 10), ("b", 5))
    assert cut(spans, 8, 12) == (Span("a", 8, 2), Span("b", 0, 2))
    assert alike(spans, text(("a", 10), ("c", 5))) == 10
    assert alike(spans, text(("a", 7), ("b", 9))) == 7


def test_what_two_begin_with_is_found_and_stored_once():
    pool = RadixPool(100, 1)
    kept(pool, (("shared", 20), ("one", 10)), (("shared", 20), ("two", 10)))
    assert pool.match(text(("shared", 20), ("three", 10)), 29)[1] == 20
    assert pool.match(text(("shared", 12), ("three", 10)), 21)[1] == 12
    assert (pool.free, pool.evictable) == (60, 40)


def test_only_whole_pages_are_found():
    pool = RadixPool(128, 16)
    kept(pool, (("shared", 20), ("one", 12)))
    assert pool.match(text(("shared", 20), ("two", 12)), 31)[1] == 16
    assert pool.match(text(("shared", 20), ("one", 12)), 31)[1] == 16  # one token has to be computed


def test_the_leaf_used_least_recently_goes_first_and_whole():
    pool = RadixPool(100, 1)
    kept(pool, (("shared", 20), ("one", 30)), (("shared", 20), ("two", 30)))
    pool.match(text(("shared", 20), ("one", 30)), 50)
    assert pool.has_room(21)
    assert (pool.free, pool.evicted_tokens) == (20 + 30, 30)
    assert pool.match(text(("shared", 20), ("one", 30)), 50)[1] == 50
    assert pool.match(text(("shared", 20), ("two", 30)), 50)[1] == 20


def test_no_more_leaves_go_than_are_needed():
    pool = RadixPool(100, 1)
    kept(pool, (("one", 10),), (("two", 10),), (("three", 10),))
    pool.evict(0)
    assert pool.evicted_tokens == 0
    pool.evict(10)
    assert (pool.evicted_tokens, pool.match(text(("two", 10)), 10)[1]) == (10, 10)
    pool.evict(11)
    assert (pool.evicted_tokens, pool.free, pool.evictable) == (30, 100, 0)


def test_what_a_request_runs_on_stays():
    pool = RadixPool(100, 1)
    kept(pool, (("shared", 20), ("one", 30)), (("other", 40),))
    node, _ = pool.match(text(("shared", 20), ("two", 30)), 49)
    pool.lock(node)
    assert not pool.has_room(81)
    assert pool.free == 80
    pool.unlock(node)
    assert pool.has_room(100)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 30), st.integers(0, 40), st.booleans()), min_size=1, max_size=40),
    st.sampled_from([1, 4]),
)
def test_no_token_is_lost_or_found_twice(requests, page):
    pool = RadixPool(200, page)
    held = []
    for i, (prefix, shared, own, stays) in enumerate(requests):
        spans = (Span(prefix, 0, shared), Span(("own", i), 0, own + 1))
        tokens = (shared + own + 1) // page * page
        node, found = pool.match(spans, shared + own)
        pool.lock(node)
        if pool.has_room(tokens - found):
            pool.free -= tokens - found
            leaf, had = pool.insert(spans, tokens)
            pool.free += had - found
            pool.lock(leaf)
            held.append(leaf)
        pool.unlock(node)
        if held and not stays:
            pool.unlock(held.pop(0))
        locked = sum_of_locked(pool)
        assert pool.free + pool.evictable + locked == 200
    for leaf in held:
        pool.unlock(leaf)
    assert pool.has_room(200)


def sum_of_locked(pool: RadixPool) -> int:
    nodes, locked = list(pool.root.children.values()), 0
    while nodes:
        node = nodes.pop()
        locked += node.tokens if node.users else 0
        nodes += node.children.values()
    return locked
