"""The configuration in force, for code that does not run for each request.

Such code keeps the `InForce` of its router, and reads a setting where it uses it. A reload replaces
the configuration by one assignment. What every request reads is compiled beforehand
(`dispatch/rules.py`).
"""

from __future__ import annotations

from router.config.model import Config


class InForce:
    """The configuration of one router, and what it sends to replicas to be let in."""

    __slots__ = ("config", "token")

    def __init__(self, config: Config, token: str | None = None) -> None:
        self.config = config
        # The secret of `upstream`, for replicas without a credential of their own.
        self.token = token

    @property
    def bearer(self) -> dict[str, str]:
        """The header with the token; empty without one."""
        return {"authorization": f"Bearer {self.token}"} if self.token else {}
