"""What the lines of some owners are sent with: their own credentials, in memory and nowhere else.

Only where replicas ask for them: an owner whose key the router knows is named, and needs none.
Kept while a batch of the owner needs them. After a restart nothing is known, and lines wait until
their owner is heard of again; whoever polls his batch is.
"""

from __future__ import annotations

Secret = dict[str, str]  # header fields


class Secrets:
    """By owner. Every `hold` has one `release`."""

    def __init__(self) -> None:
        self._known: dict[str, Secret] = {}
        self._users: dict[str, int] = {}

    def hold(self, owner: str) -> None:
        """A batch of his begins that needs them."""
        self._users[owner] = self._users.get(owner, 0) + 1

    def release(self, owner: str) -> None:
        """It is over."""
        self._users[owner] -= 1
        if not self._users[owner]:
            del self._users[owner]
            self._known.pop(owner, None)

    def learn(self, owner: str, secret: Secret) -> bool:
        """The owner is here. Whether that was waited for."""
        if owner not in self._users:
            return False
        is_news = owner not in self._known
        self._known[owner] = secret  # the newest counts: he may have changed his key
        return is_news

    def find(self, owner: str) -> Secret | None:
        return self._known.get(owner)
