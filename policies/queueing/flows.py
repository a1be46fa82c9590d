"""A class queue that shares service by flow: first among keys, then among the users of a key, then
by urgency.

A client that invents user names takes service only from its own key. One mechanism implements four
orders. The orders differ in the cost of a request and in how finely counters are compared:

- Exact counters: the flow that was served least goes next (VTC).
- Counters in steps of a quantum: a flow has its turn until its quantum of this round is used, then
  the next flow has its turn. This is deficit round robin (Shreedhar and Varghese, SIGCOMM'95), in
  the form in which a flow may exceed its quantum once; the excess is subtracted in later rounds.
  The time of a choice does not depend on the size of the excess.

Must never: compare flows of different classes.
"""

from __future__ import annotations

from math import ceil, floor
from typing import Final

from policies.queueing.accounts import Account, Accounts, Node
from policies.queueing.base import BaseLine
from policies.queueing.ranked import FRONT, Ranked
from policies.queueing.ticket import INFINITY, NOT_CHARGED, Ticket

_EMPTY: Final = 32  # maximum number of nodes without tickets that are kept for reuse
_ROUNDING: Final = 1e-9  # tolerance, in quanta, for sums of costs that are rounded down


class Tariff:
    """The cost of a request, and how counters are compared."""

    __slots__ = ("input", "output", "quantum", "request", "width")

    def __init__(
        self,
        *,
        request: float = 0.0,
        input: float = 0.0,
        output: float = 0.0,
        quantum: float = 0.0,
        width: float = 0.0,
    ) -> None:
        """`request`, `input`, `output`: the charges for a request, an uncached prompt token and an
        output token. `quantum`: the step in which counters are compared; 0: exactly. `width`: a
        flow may go first if its counter is at most this far above the lowest counter; with a
        quantum, the unit is a round.
        """
        self.request = request
        self.input = input
        self.output = output
        self.quantum = quantum
        self.width = width

    def cost(self, tokens: int, output: int) -> float:
        return self.request + self.input * tokens + self.output * output

    def key(self, counter: float) -> float:
        """Return the sort key of a flow that has this counter."""
        if self.quantum > 0.0:
            return float(floor(counter / self.quantum + _ROUNDING))
        return counter


class Book:
    """The accounts of one class, shared by all class queues (lines) of that class."""

    __slots__ = ("keys", "tariff")

    def __init__(self, tariff: Tariff) -> None:
        self.tariff = tariff
        self.keys = Accounts()

    def user(self, ticket: Ticket) -> tuple[Account, Account]:
        """Return the accounts of the ticket's API key and of its user."""
        flow = ticket.flow
        key = self.keys.of(flow.account, flow.weight)
        return key, _users_of(key).of(flow.member, 1.0)

    def yields(self, ticket: Ticket) -> bool:
        """Whether an account that waits at another router goes before the account of a ticket.

        Its counter must be lower by more than `width`, so that a slot does not pass from router to
        router with every request.
        """
        keys, tariff = self.keys, self.tariff
        least = keys.least_elsewhere()
        if least == INFINITY:
            return False
        account = keys.by_name.get(ticket.flow.account)
        counter = keys.time if account is None else max(account.counter, keys.time)
        return tariff.key(least) + tariff.width < tariff.key(counter)

    def charge(self, ticket: Ticket, key: Account, user: Account) -> None:
        view = ticket.view
        cost = self.tariff.cost(view.prompt_tokens, view.output_tokens)
        ticket.charged = cost
        user.add(cost)
        key.add(cost)

    def passed(self, ticket: Ticket) -> None:
        """Charge a ticket that did not wait."""
        key, user = self.user(ticket)
        self.charge(ticket, key, user)
        users = user.within
        if not user.waiting:
            users.idles(user)
        if not key.waiting:
            self.keys.idles(key)

    def correct(self, ticket: Ticket, cost: float) -> None:
        """Replace the charge of a ticket, which was a prediction, by its true cost."""
        charged = ticket.charged
        if charged < 0.0:
            return
        ticket.charged = NOT_CHARGED
        amount = cost - charged
        if amount != 0.0:
            flow = ticket.flow
            key = self.keys.correct(flow.account, flow.weight, amount)
            _users_of(key).correct(flow.member, 1.0, amount)


def _users_of(key: Account) -> Accounts:
    users = key.users
    if users is None:
        users = key.users = Accounts()
    return users


class _UserNode(Node):
    """A user's tickets in one class queue."""

    __slots__ = ("above", "tickets")

    def __init__(self, account: Account, above: _KeyNode) -> None:
        super().__init__(account)
        self.above = above
        self.tickets = Ranked()

    def moved(self) -> None:
        self.above.place(self)


class _KeyNode(Node):
    """A key's users in one class queue."""

    __slots__ = ("by_name", "line", "users")

    def __init__(self, account: Account, line: FlowQueue) -> None:
        super().__init__(account)
        self.line = line
        self.users = Ranked()
        self.by_name: dict[str, _UserNode] = {}

    def place(self, node: _UserNode) -> None:
        account = node.account
        self.users.move(node, self.line.book.tariff.key(account.counter), account.number)

    def moved(self) -> None:
        self.line.place(self)


class FlowQueue(BaseLine):
    """The tickets of one class and lane; the flows share the service."""

    __slots__ = ("_by_name", "_keys", "book")

    def __init__(self, book: Book) -> None:
        self.book = book
        self._keys = Ranked()
        self._by_name: dict[str, _KeyNode] = {}

    def place(self, node: _KeyNode) -> None:
        """Rank an API key again, because its counter has changed or it is new in this class
        queue."""
        account = node.account
        self._keys.move(node, self.book.tariff.key(account.counter), account.number)

    def push(self, ticket: Ticket, now: float) -> None:
        book = self.book
        key_account, account = book.user(ticket)
        book.keys.begins(key_account)
        account.within.begins(account)
        flow = ticket.flow
        above = self._by_name.get(flow.account)
        if above is None:
            above = self._by_name[flow.account] = _KeyNode(key_account, self)
        if above.entry is None:
            above.account = key_account  # an empty node may refer to an account that was dropped
            key_account.nodes.append(above)
            self.place(above)
        node = above.by_name.get(flow.member)
        if node is None:
            node = above.by_name[flow.member] = _UserNode(account, above)
        if node.entry is None:
            node.account = account
            account.nodes.append(node)
            above.place(node)
        ticket.node = node
        node.tickets.add(ticket, ticket.number, ticket.order)

    def drop(self, ticket: Ticket) -> None:
        self._leave(ticket, False)

    def take(self, ticket: Ticket, now: float) -> None:
        self._leave(ticket, True)

    def _leave(self, ticket: Ticket, is_served: bool) -> None:
        node: _UserNode = ticket.node
        ticket.node = None
        above = node.above
        user, key = node.account, above.account
        if is_served:
            tariff = self.book.tariff
            # The virtual time is the lowest counter. A flow that is served for its cached prefix
            # may have a higher counter.
            first: Node = above.users.first()
            user.within.reaches(_begin(first, tariff))
            first = self._keys.first()
            key.within.reaches(_begin(first, tariff))
        node.tickets.remove(ticket)
        if not node.tickets.count:
            above.users.remove(node)
            user.nodes.remove(node)
            if len(above.by_name) > _EMPTY:
                del above.by_name[user.name]
            if not above.users.count:
                self._keys.remove(above)
                key.nodes.remove(above)
                if len(self._by_name) > _EMPTY:
                    del self._by_name[key.name]
        if is_served:
            self.book.charge(ticket, key, user)
        user.within.ends(user)
        key.within.ends(key)

    def first(self, now: float) -> Ticket | None:
        above: _KeyNode | None = self._keys.first()
        if above is None:
            return None
        node: _UserNode = above.users.first()
        ticket: Ticket = node.tickets.first()
        return ticket

    def leading(self, most: int) -> list[Account]:
        """Return the accounts with the lowest counters, at most `most`."""
        return [above.account for above in self._keys.leading(most, INFINITY)]

    def rank(self, now: float) -> tuple[float, ...]:
        above: _KeyNode = self._keys.first()
        return self._keys.first_key(), float(above.account.number)

    def band(self, most: int, now: float) -> list[Ticket]:
        """Return tickets of all flows within `width`, the same number for each flow with enough
        tickets."""
        found: list[Ticket] = []
        if not self._keys.count:
            return found
        width = self.book.tariff.width
        keys = self._keys.leading(FRONT, self._keys.first_key() + width)
        keys_left = len(keys)
        is_cut = False
        for above in keys:
            of_keys = len(found) + ceil((most - len(found)) / keys_left)
            keys_left -= 1
            users: Ranked = above.users
            nodes = users.leading(of_keys - len(found), users.first_key() + width)
            is_cut = is_cut or users.count > len(nodes)
            nodes_left = len(nodes)
            for node in nodes:
                share = ceil((of_keys - len(found)) / nodes_left)
                nodes_left -= 1
                tickets: Ranked = node.tickets
                is_cut = is_cut or tickets.count > share
                if share == 1 or tickets.count == 1:
                    found.append(tickets.first())
                else:
                    found.extend(tickets.leading(share, tickets.first_key()))
        return self._filled(found, keys, most) if is_cut and len(found) < most else found

    def _filled(self, found: list[Ticket], keys: list[_KeyNode], most: int) -> list[Ticket]:
        """Fill the rest of the result of `band` with tickets of the flows that have more waiting
        tickets."""
        known = set(found)
        width = self.book.tariff.width
        for above in keys:
            users: Ranked = above.users
            for node in users.leading(FRONT, users.first_key() + width):
                tickets: Ranked = node.tickets
                for ticket in tickets.leading(most, tickets.first_key()):
                    if ticket not in known:
                        found.append(ticket)
                        if len(found) >= most:
                            return found
        return found

    def within(self, ticket: Ticket, now: float) -> bool:
        node: _UserNode = ticket.node
        above = node.above
        users, width = above.users, self.book.tariff.width
        of_key, of_user, of_ticket = above.entry, node.entry, ticket.entry
        assert of_key is not None and of_user is not None and of_ticket is not None
        return (
            of_key.key <= self._keys.first_key() + width
            and of_user.key <= users.first_key() + width
            and of_ticket.key <= node.tickets.first_key()
        )


def _begin(node: Node, tariff: Tariff) -> float:
    """Return the counter of a node; with a quantum, the counter at the start of the node's
    round."""
    counter = node.account.counter
    return tariff.key(counter) * tariff.quantum if tariff.quantum > 0.0 else counter
