"""The aiohttp application of the batch server: its endpoints, and rules for all responses.

Responses and errors have OpenAI's formats. Only small JSON bodies are kept completely in memory.
Import only through `server.py`: this module imports aiohttp.
"""

from __future__ import annotations

import errno
import logging
import sqlite3
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import hdrs, web

from router.addons.batches.api.asked import Refused, error_answer, owner_of, secret_of
from router.addons.batches.api.batch_api import BatchApi
from router.addons.batches.api.file_api import FileApi
from router.addons.batches.run.runner import Runner
from router.observe.events import log_event

BODY_MAX: Final = 1024 * 1024  # maximum bytes of a JSON body

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def build(files: FileApi, batches: BatchApi, runner: Runner) -> web.Application:
    @web.middleware
    async def greet(request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Passes the credentials of each request to the runner.

        Batch lines that wait for their owner's credentials then continue.
        """
        secret = secret_of(request)
        if secret is not None:
            runner.met(owner_of(request), secret)
        return await handler(request)

    app = web.Application(client_max_size=BODY_MAX, middlewares=[_guard, _plain, greet])
    app.on_response_prepare.append(_dress)
    files.join(app.router)
    batches.join(app.router)
    return app


@web.middleware
async def _guard(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Turns every error into a JSON response."""
    try:
        return await handler(request)
    except Refused as err:
        return error_answer(err.status, err.code, err.message, err.param)
    except web.HTTPException as err:
        if err.status < 400:
            raise
        code = err.reason.lower().replace(" ", "_")
        response = error_answer(err.status, code, err.reason)
        if isinstance(err, web.HTTPMethodNotAllowed):
            response.headers[hdrs.ALLOW] = err.headers[hdrs.ALLOW]
        return response
    except sqlite3.Error as err:
        log_event(logging.ERROR, "the batch store failed", error=str(err))
        if getattr(err, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL:
            return _full()
        return error_answer(500, "storage_failed", "The router could not write to its batch store.")
    except ConnectionError:
        return error_answer(499, "client_gone", "The client has disconnected.")
    except OSError as err:
        log_event(logging.ERROR, "the batch folder failed", error=str(err))
        if err.errno in _FULL:
            return _full()
        return error_answer(500, "storage_failed", "The router could not use its batch folder.")
    except Exception as err:
        log_event(logging.ERROR, "a batch request failed", key=request.path, error=repr(err))
        return error_answer(500, "internal", "The router failed on this request; see its log.")


@web.middleware
async def _plain(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Refuses compressed bodies, because their decompressed size is unknown in advance."""
    if request.headers.get(hdrs.CONTENT_ENCODING, "identity").lower() != "identity":
        raise Refused(415, "unsupported_encoding", "Content-Encoding is not supported here.")
    return await handler(request)


async def _dress(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.pop(hdrs.SERVER, None)
    name = request.headers.get("X-Request-Id")
    if name is not None:
        response.headers["X-Request-Id"] = name


def _full() -> web.Response:
    return error_answer(507, "storage_full", "The router has no space left for files.")
