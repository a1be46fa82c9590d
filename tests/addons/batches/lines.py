"""Lines of a batch file, as a client writes them."""

import json
from typing import Any

CHAT = "/v1/chat/completions"


def line(custom_id: str, url: str = CHAT, **body: Any) -> dict[str, Any]:
    """One request in the format of a batch file."""
    wanted = {"model": "m", "messages": [{"role": "user", "content": custom_id}], **body}
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": wanted}


def jsonl(*lines: Any) -> bytes:
    """Lines of a file; bytes are not changed."""
    return b"".join(
        (found if isinstance(found, bytes) else json.dumps(found).encode()) + b"\n"
        for found in lines
    )


def numbered(count: int) -> bytes:
    return jsonl(*(line(f"r{n}") for n in range(count)))
