"""The commands `hedgerow fleet`, `cordon`, `drain` and `uncordon`, which ask a running router.

They use the admin port of the router, and need no curl, which small containers lack.

Must never: follow a redirect or use a proxy, because the token of the admin port would be sent
there.
"""

from __future__ import annotations

import argparse
import json
import ssl
import sys
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

_ADMIN: Final = "127.0.0.1:9901"
_TIMEOUT_S: Final = 10.0
_OK, _CANNOT_RUN, _MISTAKE = 0, 1, 2
FLEET: Final = "fleet"
_TEXTS: Final = {
    FLEET: "Print the replicas and the queue of a running router, like GET /fleet.",
    "cordon": "Send no new requests to a replica. It finishes the requests that it has.",
    "drain": "Send no new requests to a replica; `hedgerow fleet` shows `drained` when it has "
    "finished its requests. Then it can be stopped.",
    "uncordon": "Send requests to a replica again, after `cordon` or `drain`.",
}


class _Failed(Exception):
    """The command could not run. The text is for people."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    action = parser.prog.rpartition(" ")[2]
    parser.description = _TEXTS[action]
    parser.set_defaults(action=action)
    if action != FLEET:
        parser.add_argument("id", metavar="ID", help="the replica's ID, as `hedgerow fleet` prints")
    parser.add_argument(
        "--admin",
        metavar="[https://]HOST:PORT",
        default=_ADMIN,
        help=f"the admin port of the router (default: {_ADMIN})",
    )
    parser.add_argument("--token-file", metavar="FILE", help="a file with admin.token")
    parser.add_argument("--ca", metavar="FILE", help="authorities (PEM) of an https admin port")


def main(args: argparse.Namespace) -> int:
    try:
        if args.action == FLEET:
            print(_ask(args, "GET", "/fleet").decode("utf-8", "replace"), end="")
            return _OK
        path = f"/replicas/{quote(args.id, safe='/:@')}/{args.action}"
        found = json.loads(_ask(args, "POST", path))
        print(f"{found['id']}: {found['state']}, {found['inflight']} requests in flight")
        return _OK
    except _Failed as err:
        print(f"hedgerow: {err}", file=sys.stderr)
        return _CANNOT_RUN
    except ValueError as err:  # An invalid address, or an answer of another server.
        print(f"hedgerow: --admin {args.admin}: {err}", file=sys.stderr)
        return _MISTAKE


def _ask(args: argparse.Namespace, method: str, path: str) -> bytes:
    """Return the body of a successful answer. Raises _Failed, or ValueError for the address."""
    headers = {}
    try:
        if args.token_file is not None:
            headers["Authorization"] = f"Bearer {Path(args.token_file).read_text().strip()}"
        connection = _connection(args)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
    except (OSError, HTTPException) as err:
        why = getattr(err, "strerror", None) or str(err) or type(err).__name__
        raise _Failed(f"no answer from the admin port {args.admin}: {why}; see --admin") from None
    if answer.status >= 300:
        raise _Failed(_problem(answer, body))
    return body


def _connection(args: argparse.Namespace) -> HTTPConnection:
    """Raises ValueError, or OSError if the file with the authorities cannot be used."""
    url = urlsplit(args.admin if "://" in args.admin else f"http://{args.admin}")
    if url.scheme not in ("http", "https") or not url.hostname or url.port is None:
        raise ValueError("must be HOST:PORT or https://HOST:PORT")
    if url.scheme == "http":
        return HTTPConnection(url.hostname, url.port, timeout=_TIMEOUT_S)
    context = ssl.create_default_context(cafile=args.ca)
    return HTTPSConnection(url.hostname, url.port, timeout=_TIMEOUT_S, context=context)


def _problem(answer: HTTPResponse, body: bytes) -> str:
    """Return the message of a refusal."""
    try:
        found: Any = json.loads(body)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        found = f"the admin port answered {answer.status} {answer.reason}"
    return f"{found}; see --token-file" if answer.status == 401 else str(found)
