"""The engine's block pool: free queue, content table and reference counts, in the order the engine takes and gives blocks.

Beside vLLM's own `v1/core/block_pool.py`: `take` is get_new_blocks, `touch` and `free` have its names, `cached_prefix` is the
lookup of the longest cached prefix. A block's content is a key: what makes two blocks equal is the caller's to say (the hash
chain of the tokens in the engine; here a request and a position, or a shared prefix and a position).

By version: a block freed with no content goes to the front of the free queue from 0.23.0 on (reused first), to its tail before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence

Key = Hashable


class BlockPool:
    """`blocks` usable blocks (the engine's own count less its null block), all free and empty at first."""

    def __init__(self, blocks: int, *, is_caching: bool = True, is_unhashed_first: bool = True) -> None:
        self.blocks = blocks
        self.evictions = 0
        self._is_caching = is_caching
        self._is_unhashed_first = is_unhashed_first
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(blocks))
        self._users = [0] * blocks
        self._content: list[Key | None] = [None] * blocks
        self._cached: dict[Key, int] = {}
        self._copies: dict[Key, list[int]] = {}  # further blocks of the same content, which stay until they are taken

    @property
    def free_blocks(self) -> int:
        """Blocks no request holds; reusable cached ones are among them."""
        return len(self._free)

    @property
    def usage(self) -> float:
        """Share of the pool that requests hold: the engine's kv_cache_usage gauge."""
        return 1 - len(self._free) / self.blocks

    def cached_prefix(self, keys: Iterable[Key]) -> list[int]:
        """The blocks that hold the longest prefix of `keys`, still in the pool; they stay where they are until touched."""
        found = []
        for key in keys:
            block = self._cached.get(key)
            if block is None:
                break
            found.append(block)
        return found

    def idle(self, blocks: Iterable[int]) -> int:
        """How many of these blocks no request holds: touching them takes them out of the free queue."""
        return sum(self._users[block] == 0 for block in blocks)

    def touch(self, blocks: Iterable[int]) -> None:
        """A request holds these cached blocks, too."""
        for block in blocks:
            if self._users[block] == 0:
                del self._free[block]
            self._users[block] += 1

    def take(self, count: int) -> list[int]:
        """New blocks from the front of the free queue; what they held is evicted. The caller has seen that there are enough."""
        taken = []
        for _ in range(count):
            block, _ = self._free.popitem(last=False)
            self._forget(block)
            self._users[block] = 1
            taken.append(block)
        return taken

    def hold(self, block: int, key: Key) -> None:
        """The block is full and its content known from now on. Of several copies of a content a lookup finds the oldest."""
        if self._is_caching:
            self._content[block] = key
            if self._cached.setdefault(key, block) != block:
                self._copies.setdefault(key, []).append(block)

    def free(self, blocks: Sequence[int]) -> None:
        """A request lets go of its blocks, its last first: so a sequence loses its tail before its head."""
        for block in reversed(blocks):
            self._users[block] -= 1
            if self._users[block] == 0:
                self._free[block] = None
                if self._content[block] is None and self._is_unhashed_first:
                    self._free.move_to_end(block, last=False)

    def _forget(self, block: int) -> None:
        key = self._content[block]
        if key is None:
            return
        self._content[block] = None
        self.evictions += 1
        copies = self._copies.get(key)
        if copies is None:
            del self._cached[key]
            return
        if self._cached[key] == block:
            self._cached[key] = copies.pop(0)
        else:
            copies.remove(block)
        if not copies:
            del self._copies[key]
