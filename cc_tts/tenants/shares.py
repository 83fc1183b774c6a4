"""A bounded space that several owners, tenants or tokens, share: the owner with the most loses its own entries first."""

from collections.abc import Callable, Hashable, Iterator
from itertools import islice
from typing import Final, Generic, TypeVar

MAX_LOOKED_AT: Final = 1000
"""The most entries of one owner that are examined to find a removable one (unmeasured); those in use come first."""

K = TypeVar("K", bound=Hashable)


class SharedRoom(Generic[K]):
    """The entries of each owner, oldest first. Runs on: the event loop."""

    def __init__(self) -> None:
        self._by_owner: dict[str, dict[K, None]] = {}
        self._owners: dict[K, str] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def __iter__(self) -> Iterator[K]:
        return iter(self._owners)

    def owner(self, key: K) -> str:
        """Return the owner of an entry; raises ``KeyError`` if it is not kept."""
        return self._owners[key]

    def count(self, owner: str) -> int:
        """Return the number of entries of one owner."""
        return len(self._by_owner.get(owner, ()))

    def add(self, key: K, owner: str) -> None:
        """Add an entry for an owner."""
        self.discard(key)
        self._owners[key] = owner
        self._by_owner.setdefault(owner, {})[key] = None

    def discard(self, key: K) -> str:
        """Remove an entry; return its owner, an empty text if it was not kept."""
        owner = self._owners.pop(key, None)
        if owner is None:
            return ""
        keys = self._by_owner[owner]
        del keys[key]
        if not keys:
            del self._by_owner[owner]
        return owner

    def next_out(self, may_go: Callable[[K], bool] = lambda _key: True) -> K | None:
        """Return the next entry to remove: the oldest removable one of the owner with the most; ``None`` if
        there is none.
        """
        for keys in sorted(self._by_owner.values(), key=len, reverse=True):
            for key in islice(keys, MAX_LOOKED_AT):
                if may_go(key):
                    return key
        return None
