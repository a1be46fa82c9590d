"""One request as a trace or a generator tells of it. A file of its own, because it is compiled."""

from __future__ import annotations

from math import inf, nan

from mypy_extensions import mypyc_attr

from router.simulator.logged import Logged


@mypyc_attr(allow_interpreted_subclasses=True)
class Arrival:
    """One request as a trace tells of it.

    Two requests share KV for the common leading run of their `blocks`, each of which stands for the
    whole prompt up to its end (chained), and holds `Traffic.block_tokens` tokens. Only full blocks
    are in it; empty: the source does not know.
    """

    __slots__ = (
        "answer_blocks",
        "at",
        "blocks",
        "deadline_s",
        "hedging",
        "is_known",
        "kind",
        "leaves_s",
        "logged",
        "max_tokens",
        "model",
        "number",
        "output_tokens",
        "priority",
        "priority_number",
        "prompt_tokens",
        "session",
        "stream",
        "tenant",
        "user",
        "within",
    )

    def __init__(
        self,
        number: int,
        at: float,
        prompt_tokens: int,
        output_tokens: int,
        blocks: tuple[int, ...] = (),
        *,
        tenant: str = "",
        within: str = "",
        user: int = 0,
        is_known: bool = False,
        priority: str = "",
        session: str | None = None,
        model: str | None = None,
        stream: bool = True,
        kind: str = "chat",
        answer_blocks: tuple[int, ...] = (),
        priority_number: float = nan,
        deadline_s: float = inf,
        leaves_s: float = inf,
        max_tokens: int = -1,
        hedging: str = "",
        logged: Logged | None = None,
    ) -> None:
        self.number = number  # unique in its traffic; its order in the source
        self.at = at  # seconds since the beginning of the traffic, >= 0
        self.prompt_tokens = prompt_tokens  # >= 1
        self.output_tokens = output_tokens  # >= 0; 0: nothing is generated
        self.blocks = blocks
        self.tenant = tenant  # who pays, "" where nobody is told apart
        self.within = within  # the address whose share it uses, as in `intake.flow`
        self.is_known = is_known  # its tenant has a known key
        self.user = user  # a number among its tenant's; 0: none is named
        self.priority = priority  # its class by name, "" for none
        self.session = session  # the conversation it belongs to
        self.model = model
        self.stream = stream
        self.kind = kind  # the route, as in `policies.contract.RequestView`
        # Full blocks that end within the answer, where the source knows that somebody will come
        # for them (the next turn). Engines cache them; routers cannot know of them.
        self.answer_blocks = answer_blocks
        # Its urgency on the router's scale (`core/urgency.py`); NaN: that of its class.
        self.priority_number = priority_number
        # Seconds after its arrival: its client wants content by then; infinity: it does not say.
        self.deadline_s = deadline_s
        # Seconds after its arrival: its client leaves then, answered or not; infinity: it stays.
        self.leaves_s = leaves_s
        self.max_tokens = max_tokens  # the client's limit of output tokens; below 0: none
        self.hedging = hedging  # its client asks for a second copy ("on") or forbids it ("off")
        self.logged = logged  # how it ended in the access log it comes from; None: there is none
