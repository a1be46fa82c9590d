"""Identifies the account, and the member of that account, whose share of the fleet a request uses.

The proxy derives the flow identity of a request in a subclass with further fields
(`router/intake/flow.py`). Requests of the same member may share one object.

Must never: change, or hold a secret or the name of a user.
"""

from __future__ import annotations


class FlowIdentity:
    """An account, which competes with all other accounts, and a member of the account, which
    competes within that account only.
    """

    __slots__ = ("account", "is_known", "is_member_counted", "member", "weight")

    def __init__(
        self,
        account: str = "",
        member: str = "",
        *,
        is_known: bool = False,
        is_member_counted: bool = False,
        weight: float = 1.0,
    ) -> None:
        self.account = account
        self.member = member
        self.is_known = is_known  # the request's key is in the keys file
        # True: limits count the requests of the member alone. False: they count the requests of the
        # whole account, because a client can invent members.
        self.is_member_counted = is_member_counted
        self.weight = weight  # weight of the account's share, > 0
