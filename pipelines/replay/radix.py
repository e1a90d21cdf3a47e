"""SGLang's token pool and radix cache: what is free, what the tree holds, and what of it may be evicted.

Beside SGLang's own `mem_cache/radix_cache.py`: `match`, `insert`, `evict`, `lock` and `unlock` are match_prefix, insert, evict,
inc_lock_ref and dec_lock_ref; `free` is the allocator's available_size. Other than in vLLM's pool (`pool.py`), a request's own
tokens are freed at once or given to the tree, and the tree loses whole leaves, the one that was used least recently first.

Tokens are not kept one by one. What a sequence is made of is said in spans: so many tokens of a text, from a place in it. Two
sequences begin alike as far as their spans do.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

Text = Hashable


@dataclass(frozen=True)
class Span:
    """Tokens of a text from `start` on, `tokens` of them."""

    text: Text
    start: int
    tokens: int


Spans = tuple[Span, ...]


def cut(spans: Sequence[Span], start: int, end: int) -> Spans:
    """What lies from `start` to `end`."""
    found, at = [], 0
    for each in spans:
        begin, stop = max(start - at, 0), min(end - at, each.tokens)
        if begin < stop:
            found.append(Span(each.text, each.start + begin, stop - begin))
        at += each.tokens
        if at >= end:
            break
    return tuple(found)


def alike(one: Sequence[Span], other: Sequence[Span]) -> int:
    """Tokens with which both begin; neither has two spans in a row that are one."""
    tokens = 0
    for mine, its in zip(one, other, strict=False):
        if (mine.text, mine.start) != (its.text, its.start):
            break
        tokens += min(mine.tokens, its.tokens)
        if mine.tokens != its.tokens:
            break
    return tokens


@dataclass(eq=False)
class Node:
    """An edge of the tree and what follows it. `users` are the requests that run on it or on something below."""

    parent: Node | None
    spans: Spans
    tokens: int
    users: int = 0
    used_at: int = 0
    children: dict[Spans, Node] = field(default_factory=dict)


class RadixPool:
    """`tokens` of room in pages of `page` tokens. With `is_caching` false nothing is ever inserted."""

    def __init__(self, tokens: int, page: int, *, is_caching: bool = True) -> None:
        self.tokens = tokens // page * page
        self.free = self.tokens
        self.evictable = 0
        self.evicted_tokens = 0
        self.root = Node(None, (), 0, users=1)
        self._page = page
        self._is_caching = is_caching
        self._clock = 0
        self._leaves: set[Node] = set()  # that nobody uses
        self._heap: list[tuple[int, int, Node]] = []  # of these, when each was used as far as that was seen, and how many before
        self._entries = count()

    def match(self, spans: Sequence[Span], limit: int) -> tuple[Node, int]:
        """The node at which the longest cached beginning of so many tokens ends, and its tokens. Nodes on the way are used."""
        self._clock += 1
        node, found = self.root, 0
        for child, tokens in self._descend(spans, limit // self._page * self._page):
            node, found = child, found + tokens
        return node, found

    def insert(self, spans: Sequence[Span], tokens: int) -> tuple[Node, int]:
        """Give the tree so many tokens, whole pages: the node they end at, and how many of them it had already."""
        self._clock += 1
        node, found = self.root, 0
        for child, matched in self._descend(spans, tokens):
            node, found = child, found + matched
        if found < tokens and self._is_caching:
            rest = cut(spans, found, tokens)
            leaf = Node(node, rest, tokens - found, used_at=self._clock)
            node.children[cut(rest, 0, self._page)] = leaf
            self.evictable += leaf.tokens
            self._leaves.discard(node)
            self._enter(leaf)
            node = leaf
        return node, found

    def lock(self, node: Node) -> None:
        """A request runs on this node: neither it nor what is above can be evicted."""
        each: Node | None = node
        while each is not None and each.parent is not None:
            if not each.users:
                self.evictable -= each.tokens
                self._leaves.discard(each)
            each.users += 1
            each = each.parent

    def unlock(self, node: Node) -> None:
        """The request is done with it."""
        each: Node | None = node
        while each is not None and each.parent is not None:
            each.users -= 1
            if not each.users:
                self.evictable += each.tokens
                if not each.children:
                    self._enter(each)
            each = each.parent

    def has_room(self, tokens: int) -> bool:
        """Whether so many tokens are free, once what is needed for that has been evicted."""
        if self.free < tokens:
            self.evict(tokens - self.free)
        return self.free >= tokens

    def evict(self, tokens: int) -> None:
        """Drop leaves nobody uses until so many tokens came free; one that loses its last child is a leaf itself."""
        dropped = 0
        while dropped < tokens and self._heap:
            seen_at, _, leaf = heapq.heappop(self._heap)
            if leaf not in self._leaves:
                continue
            if seen_at < leaf.used_at:
                self._enter(leaf)
                continue
            self._leaves.discard(leaf)
            dropped += leaf.tokens
            assert leaf.parent is not None  # noqa: S101 - for the type checker: the root always has a user, and is no leaf
            del leaf.parent.children[cut(leaf.spans, 0, self._page)]
            if not leaf.parent.children and not leaf.parent.users:
                self._enter(leaf.parent)
        self.evictable -= dropped
        self.evicted_tokens += dropped
        self.free += dropped

    def _enter(self, leaf: Node) -> None:
        self._leaves.add(leaf)
        heapq.heappush(self._heap, (leaf.used_at, next(self._entries), leaf))

    def _descend(self, spans: Sequence[Span], limit: int) -> Iterator[tuple[Node, int]]:
        """The nodes along the beginning of so many tokens, the last one split where the sequences part."""
        node, rest = self.root, cut(spans, 0, limit)
        while (child := node.children.get(cut(rest, 0, self._page))) is not None:
            child.used_at = self._clock
            same = alike(child.spans, rest) // self._page * self._page
            if same < child.tokens:
                yield self._split(node, child, same), same
                return
            yield child, same
            node, rest = child, cut(rest, same, limit)

    def _split(self, parent: Node, child: Node, tokens: int) -> Node:
        """A node for the beginning of a child, which keeps the rest."""
        head = Node(parent, cut(child.spans, 0, tokens), tokens, child.users, child.used_at)
        parent.children[cut(child.spans, 0, self._page)] = head
        child.parent, child.spans, child.tokens = head, cut(child.spans, tokens, child.tokens), child.tokens - tokens
        head.children[cut(child.spans, 0, self._page)] = child
        return head
