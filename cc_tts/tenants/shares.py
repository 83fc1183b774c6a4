"""A bounded space that several owners, tenants or tokens, share: the owner with the most loses its own entries first."""

from collections.abc import Callable, Hashable, Iterator, Mapping
from itertools import islice
from typing import Final, TypeVar

MAX_LOOKED_AT: Final = 1000
"""The most entries of one owner that are examined to find a removable one (unmeasured); those in use come first."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SharedRoom(Mapping[K, V]):
    """Entries by key, oldest first, each of an owner. Runs on: the event loop."""

    def __init__(self) -> None:
        self._by_owner: dict[str, dict[K, V]] = {}
        self._owners: dict[K, str] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def __iter__(self) -> Iterator[K]:
        return iter(self._owners)

    def __getitem__(self, key: K) -> V:
        return self._by_owner[self._owners[key]][key]

    def owner(self, key: K) -> str:
        """Return the owner of an entry; raises ``KeyError`` if it is not kept."""
        return self._owners[key]

    def count(self, owner: str) -> int:
        """Return the number of entries of one owner."""
        return len(self._by_owner.get(owner, ()))

    def add(self, key: K, value: V, owner: str) -> None:
        """Add an entry for an owner."""
        self.discard(key)
        self._owners[key] = owner
        self._by_owner.setdefault(owner, {})[key] = value

    def discard(self, key: K) -> str:
        """Remove an entry; return its owner, an empty text if it was not kept."""
        owner = self._owners.pop(key, None)
        if owner is None:
            return ""
        entries = self._by_owner[owner]
        del entries[key]
        if not entries:
            del self._by_owner[owner]
        return owner

    def clear(self) -> None:
        self._owners.clear()
        self._by_owner.clear()

    def next_out(self, may_go: Callable[[V], bool] = lambda _value: True) -> K | None:
        """Return the key of the next entry to remove: the oldest removable one of the owner with the most; ``None`` if there
        is none.
        """
        for entries in sorted(self._by_owner.values(), key=len, reverse=True):
            for key, value in islice(entries.items(), MAX_LOOKED_AT):
                if may_go(value):
                    return key
        return None
