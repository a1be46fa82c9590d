"""The header fields and body members in which clients name a session.

A session is one conversation of a client, whose requests have a common prefix. Coding agents name
it without any configuration. The first usable value of the two tables counts, headers first.

A value comes from the client, so it is only a key: it selects a replica and a target of a split,
and the access log has its hash. It gives no right. Two clients with the same value only share a
replica.
"""

from __future__ import annotations

from typing import Final

MAX_SESSION: Final = 256  # maximum characters of a session key; a longer one is ignored

# Header fields: the name, whether the field is forwarded, and the clients that send it. A field
# with an underscore in its name is not forwarded, because a server may take it for another field.
SESSION_HEADERS: Final = (
    (b"x-session-id", True, "this router; OpenCode 1.17"),
    (b"x-claude-code-session-id", True, "Claude Code 2.1"),
    (b"session-id", True, "Codex CLI 0.14x"),
    (b"session_id", False, "Codex CLI 0.4x to 0.13x"),
    (b"conversation_id", False, "Codex CLI 0.4x"),
    (b"x-session-affinity", True, "OpenCode, pi"),
    (b"x-opencode-session", True, "OpenCode at its own gateways"),
    (b"x-amp-thread-id", True, "Amp"),
)

# Members of the body: the name, the member inside it ("": the value itself), and what sends it.
SESSION_MEMBERS: Final = (
    ("session_id", "", "clients of this router"),
    ("prompt_cache_key", "", "OpenAI's API; Codex CLI writes its session"),
    ("user", "", "OpenAI's API before prompt_cache_key: the end user"),
    ("metadata", "user_id", "Anthropic's API; Claude Code writes its session into it"),
)
