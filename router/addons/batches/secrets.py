"""Keeps the credentials of clients whose batch requests need them, only in memory.

Credentials are needed only if replicas require the client's credentials. An owner whose key the
router knows is identified by name and needs no credentials. Credentials are kept while a batch of
the owner needs them. After a restart no credentials are known. Then the lines of a batch wait until
the batch's owner sends any request, such as a poll of the batch.
"""

from __future__ import annotations

Secret = dict[str, str]  # the header fields with a client's credentials, by name


class Secrets:
    """The credentials by owner. Each call of `hold` needs one call of `release`."""

    def __init__(self) -> None:
        self._known: dict[str, Secret] = {}
        self._users: dict[str, int] = {}

    def hold(self, owner: str) -> None:
        """Called when a batch begins that needs its owner's credentials."""
        self._users[owner] = self._users.get(owner, 0) + 1

    def release(self, owner: str) -> None:
        """Called when a batch has ended that needed its owner's credentials."""
        self._users[owner] -= 1
        if not self._users[owner]:
            del self._users[owner]
            self._known.pop(owner, None)

    def learn(self, owner: str, secret: Secret) -> bool:
        """Stores the owner's credentials if a batch needs them.

        Returns whether batch lines waited for them.
        """
        if owner not in self._users:
            return False
        is_news = owner not in self._known
        # New credentials replace the old ones, because the owner may have changed the key.
        self._known[owner] = secret
        return is_news

    def find(self, owner: str) -> Secret | None:
        return self._known.get(owner)
