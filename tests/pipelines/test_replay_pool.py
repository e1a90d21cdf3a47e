"""The block pool: what is taken first, what is found again, what is evicted."""

from pipelines.replay.pool import BlockPool


def filled(pool: BlockPool, name: str, count: int) -> list[int]:
    blocks = pool.take(count)
    for position, block in enumerate(blocks):
        pool.hold(block, (name, position))
    return blocks


def keys(name: str, count: int) -> list[tuple[str, int]]:
    return [(name, position) for position in range(count)]


def test_a_freed_sequence_is_found_again_until_its_blocks_are_taken():
    pool = BlockPool(4)
    pool.free(filled(pool, "a", 3))
    assert len(pool.cached_prefix(keys("a", 3))) == 3
    pool.take(2)  # the empty block and the tail of the sequence
    assert len(pool.cached_prefix(keys("a", 3))) == 2
    assert pool.evictions == 1


def test_an_unhashed_block_is_reused_before_any_cached_one_from_0_23_on():
    pool = BlockPool(2)
    blocks = filled(pool, "a", 1) + pool.take(1)
    pool.free(blocks)
    pool.take(1)
    assert pool.evictions == 0

    before = BlockPool(2, is_unhashed_first=False)
    unhashed = before.take(1)
    cached = filled(before, "a", 1)
    before.free(cached)
    before.free(unhashed)
    before.take(1)
    assert before.evictions == 1

    since = BlockPool(2)
    unhashed, cached = since.take(1), filled(since, "a", 1)
    since.free(cached)
    since.free(unhashed)
    assert since.take(1) == unhashed
    assert since.evictions == 0


def test_of_two_copies_one_is_found_while_any_is_there():
    pool = BlockPool(3)
    first, second = filled(pool, "a", 1), filled(pool, "a", 1)  # computed at the same time, by two requests
    assert pool.cached_prefix(keys("a", 1)) == first
    pool.free(first)
    pool.take(2)  # the empty block, and the first copy
    assert pool.cached_prefix(keys("a", 1)) == second
    pool.free(second)
    pool.take(1)
    assert pool.cached_prefix(keys("a", 1)) == []


def test_a_touched_block_is_not_taken():
    pool = BlockPool(2)
    pool.free(filled(pool, "a", 1))
    hit = pool.cached_prefix(keys("a", 1))
    assert pool.idle(hit) == 1
    pool.touch(hit)
    assert pool.free_blocks == 1
    assert pool.usage == 0.5
    pool.take(1)
    assert pool.cached_prefix(keys("a", 1)) == hit


def test_a_block_two_requests_hold_is_free_when_both_let_go():
    pool = BlockPool(1)
    blocks = filled(pool, "a", 1)
    pool.touch(blocks)
    pool.free(blocks)
    assert pool.free_blocks == 0
    pool.free(blocks)
    assert pool.free_blocks == 1


def test_without_prefix_caching_nothing_is_found():
    pool = BlockPool(2, is_caching=False)
    pool.free(filled(pool, "a", 2))
    assert pool.cached_prefix(keys("a", 2)) == []
