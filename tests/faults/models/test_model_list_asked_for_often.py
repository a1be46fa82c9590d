"""Clients that repeatedly request a long list of models: it is encoded once per change."""

from pathlib import Path

import pytest

from router.config.model import Keys, Tls
from tests.app.test_keys_at_the_door import BEARER, acme, file_of
from tests.harness.behaviours import json_ok
from tests.harness.client import RawClient
from tests.harness.control import Control
from tests.harness.messages import request
from tests.harness.over_tls import TlsClient
from tests.harness.replica import HostileReplica, eventually
from tests.harness.running import running, scenario
from tests.places import CERT, KEY

NAMES = tuple(f"m{n:04}" for n in range(4000))


@scenario
async def test_it_is_encoded_once(tmp_path: Path) -> None:
    one = HostileReplica(json_ok, control=Control(models=NAMES))
    keys = Keys(file=file_of(tmp_path, acme(models=["m0001", "m3000"])))
    async with running(one, keys=keys) as router:
        fleet = router.app.parts.fleet
        before = fleet.listing.of(None)
        client = await router.send(*[request("/v1/models")] * 20)
        for _ in range(20):
            answer = await client.recv_response()
            assert [entry["id"] for entry in answer.json()["data"]] == list(NAMES)
        for _ in range(2):
            answer = await router.ask(request("/v1/models", BEARER))
            assert [entry["id"] for entry in answer.json()["data"]] == ["m0001", "m3000"]
        for name, status in (("m3000", 200), ("m0002", 404)):
            answer = await router.ask(request(f"/v1/models/{name}", BEARER))
            assert answer.status == status
        answer = await router.ask(request("/v1/models/m0002"))
        assert answer.json()["id"] == "m0002"
        assert fleet.listing.of(None) is before
        one.control.models = ("m0002", "new")
        await eventually(lambda: fleet.listing.of(None) is not before, "the list is read anew")
        answer = await router.ask(request("/v1/models"))
        assert [entry["id"] for entry in answer.json()["data"]] == ["m0002", "new"]


@pytest.mark.parametrize("tls", [None, Tls(cert=CERT, key=KEY)], ids=["plain", "tls"])
@pytest.mark.parametrize("ends", [False, True], ids=["stays", "half-closes"])
@scenario
async def test_a_client_that_does_not_read_holds_only_a_piece(tls: Tls | None, ends: bool) -> None:
    """The list has 3.8 MB, more than the kernel buffers."""
    names = tuple(f"{name}-{'x' * 850}" for name in NAMES)
    one = HostileReplica(json_ok, control=Control(models=names))
    async with running(one, tls=tls) as router:
        front = router.app.parts.front
        kind = RawClient if tls is None else TlsClient
        client = await kind.connect(router.port, receive_buffer=4096)
        router.clients.append(client)
        await client.send(request("/v1/models"))
        if ends and tls is None:
            client.fin()
        await eventually(lambda: any(one.paused for one in front.clients), "it stops reading")
        (waiting,) = front.clients
        unsent = waiting.transport.get_write_buffer_size()
        assert unsent < (128 if tls is None else 768) * 1024  # uvloop's TLS buffers 512 KiB
        answer = await client.recv_response()
        assert [entry["id"] for entry in answer.json()["data"]] == list(names)
        if not ends:
            await client.send(request("/v1/models"))
            assert (await client.recv_response()).body == answer.body
