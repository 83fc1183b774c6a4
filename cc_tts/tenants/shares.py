"""A bounded place that several owners, tenants or tokens, share: who fills it loses what is their own first."""

from collections.abc import Callable, Hashable, Iterator
from itertools import islice
from typing import Final, Generic, TypeVar

MAX_LOOKED_AT: Final = 1000
"""The most entries of one owner that are looked at to find one that may go: those in use stand in front (unmeasured)."""

K = TypeVar("K", bound=Hashable)


class SharedRoom(Generic[K]):
    """Entries kept for each owner, oldest first. Runs on: the event loop."""

    def __init__(self) -> None:
        self._by_owner: dict[str, dict[K, None]] = {}
        self._owners: dict[K, str] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def __iter__(self) -> Iterator[K]:
        return iter(self._owners)

    def owner(self, key: K) -> str:
        """Return whose this is; raises ``KeyError`` if it is not kept."""
        return self._owners[key]

    def count(self, owner: str) -> int:
        """Return how much is kept for one owner."""
        return len(self._by_owner.get(owner, ()))

    def add(self, key: K, owner: str) -> None:
        """Keep one more entry."""
        self.discard(key)
        self._owners[key] = owner
        self._by_owner.setdefault(owner, {})[key] = None

    def discard(self, key: K) -> str:
        """Keep this no longer; returns whose it was, an empty text if it was not kept."""
        owner = self._owners.pop(key, None)
        if owner is None:
            return ""
        keys = self._by_owner[owner]
        del keys[key]
        if not keys:
            del self._by_owner[owner]
        return owner

    def next_out(self, may_go: Callable[[K], bool] = lambda _key: True) -> K | None:
        """Return what has to make room: the oldest that may go of the owner with the most; ``None`` if nothing may go."""
        for keys in sorted(self._by_owner.values(), key=len, reverse=True):
            for key in islice(keys, MAX_LOOKED_AT):
                if may_go(key):
                    return key
        return None
