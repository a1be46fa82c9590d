"""The admin routes that show and change one replica of the fleet.

An ID may take several segments of a path, because an ID may contain slashes. The default ID of a
replica whose URL has a path prefix contains slashes.

Import only through `listener.py`: this module imports aiohttp.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Annotated, Final

import msgspec
from aiohttp import web

from router.core.unreadable import NOT_JSON
from router.fleet.membership import ACTIONS
from router.observe.admin.actions import AdminActions, Refused
from router.observe.admin.answers import answered

MEMBERS = """\
GET  /replicas/ID  one replica; also while it finishes requests after its removal
POST /replicas  add a replica; the body is an entry of `replicas` in the configuration, as JSON:
                {"url": "http://gpu-3:8000"}
DELETE /replicas/ID  remove a replica; it finishes its requests
POST /replicas/ID/cordon  send no new requests to a replica; it finishes those that it has
POST /replicas/ID/drain  the same; the state becomes `drained` when the last request has ended
POST /replicas/ID/uncordon  send requests again
POST /replicas/ID/reclaim  drain a replica whose machine goes away, and move its requests; the body
                may be {"seconds": 30}
"""


def add_member_routes(router: web.UrlDispatcher, actions: AdminActions) -> None:
    """Adds the routes to `router`. A handler raises Refused if the router refuses the request."""

    async def show(request: web.Request) -> web.Response:
        with _action_paths(request):
            return answered(actions.members.show(request.match_info["id"]))

    async def add(request: web.Request) -> web.Response:
        return answered(actions.members.add(await _entry(request)), HTTPStatus.CREATED)

    async def remove(request: web.Request) -> web.Response:
        with _action_paths(request):
            return answered(actions.members.remove(request.match_info["id"]), HTTPStatus.ACCEPTED)

    async def set_duty(request: web.Request) -> web.Response:
        found = request.match_info
        return answered(actions.members.set_duty(found["id"], found["action"]))

    async def reclaim(request: web.Request) -> web.Response:
        found = actions.members.reclaim(request.match_info["id"], await _seconds(request))
        return answered(found, HTTPStatus.ACCEPTED)

    router.add_post("/replicas", add)
    router.add_post("/replicas/{id:.+}/reclaim", reclaim)
    router.add_post(f"/replicas/{{id:.+}}/{{action:{'|'.join(ACTIONS)}}}", set_duty)
    router.add_get("/replicas/{id:.+}", show)
    router.add_delete("/replicas/{id:.+}", remove)


@contextmanager
def _action_paths(request: web.Request) -> Iterator[None]:
    """Turns 404 into 405 if the path is that of an action, whose last part was read as an ID's."""
    try:
        yield
    except Refused as no:
        last = request.match_info["id"].rpartition("/")[2]
        if no.status == HTTPStatus.NOT_FOUND and last in (*ACTIONS, "reclaim"):
            raise web.HTTPMethodNotAllowed(request.method, ["POST"]) from None
        raise


_ENTRY_BYTES: Final = 64 * 1024  # an entry with more would take long to check


class _Reclaim(msgspec.Struct, forbid_unknown_fields=True):
    seconds: Annotated[float, msgspec.Meta(ge=0, le=1e7)] | None = None


async def _entry(request: web.Request) -> object:
    raw = await request.read()
    if len(raw) > _ENTRY_BYTES:
        status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        raise Refused(status, "entry_too_large", f"the body is over {_ENTRY_BYTES} bytes")
    try:
        return msgspec.json.decode(raw)
    except NOT_JSON as err:
        raise _bad_json(err) from None


async def _seconds(request: web.Request) -> float | None:
    raw = await request.read()
    try:
        return msgspec.json.decode(raw, type=_Reclaim).seconds if raw.strip() else None
    except msgspec.ValidationError as err:
        status = HTTPStatus.UNPROCESSABLE_ENTITY
        raise Refused(status, "bad_reclaim", "the body is invalid", [str(err)]) from None
    except NOT_JSON as err:
        raise _bad_json(err) from None


def _bad_json(err: Exception) -> Refused:
    return Refused(HTTPStatus.BAD_REQUEST, "bad_json", f"the body is not JSON: {err}")
