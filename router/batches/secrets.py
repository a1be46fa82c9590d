"""The clients' credentials with which the lines of some owners are sent, held only in memory.

Credentials are needed only if replicas require the client's credentials. An owner whose key the
router knows is identified by name and needs no credentials. Credentials are kept while a batch of
the owner needs them. After a restart no credentials are known, and lines wait until their owner
sends a request, such as a poll of the batch.
"""

from __future__ import annotations

Secret = dict[str, str]  # header fields


class Secrets:
    """Credentials by owner. Each `hold` needs one `release`."""

    def __init__(self) -> None:
        self._known: dict[str, Secret] = {}
        self._users: dict[str, int] = {}

    def hold(self, owner: str) -> None:
        """Record that a batch begins that needs its owner's credentials."""
        self._users[owner] = self._users.get(owner, 0) + 1

    def release(self, owner: str) -> None:
        """Record that a batch has ended that needed its owner's credentials."""
        self._users[owner] -= 1
        if not self._users[owner]:
            del self._users[owner]
            self._known.pop(owner, None)

    def learn(self, owner: str, secret: Secret) -> bool:
        """Store the owner's credentials. Returns whether lines waited for them."""
        if owner not in self._users:
            return False
        is_news = owner not in self._known
        # The newest credentials count: the owner may have changed the key.
        self._known[owner] = secret
        return is_news

    def find(self, owner: str) -> Secret | None:
        return self._known.get(owner)
