"""Requests whose answers have no token counts cost what `usage.charges` states."""

from math import ceil
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec
import pytest

from router.config.load import parse
from router.config.model import (
    AudioCharge,
    Charge,
    Charges,
    OtherCharge,
    TokenizeCharge,
    Usage as UsageConfig,
)
from router.core.errors import ConfigError, Reason
from tests.app.tenants.acme import ACME, keys, tenants
from tests.harness.behaviours import hang
from tests.harness.messages import json_response, post_json, request, response
from tests.harness.replica import ReplicaConnection, eventually
from tests.harness.running import Router, running, scenario

AUDIO = b"\x00" * 40_000
FORM = (
    b'--b\r\ncontent-disposition: form-data; name="model"\r\n\r\nm\r\n'
    b'--b\r\ncontent-disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
    + AUDIO
    + b"\r\n--b--\r\n"
)
LONG = "word " * 4000


async def used(router: Router) -> int:
    """The tokens for which the tenant has been charged."""
    told = (await tenants(router))["acme"]
    return int(told["prompt_tokens"] + told["output_tokens"])


def transcription(path: str = "/v1/audio/transcriptions") -> bytes:
    fields = "Content-Type: multipart/form-data; boundary=b"
    return request(path, fields, ACME, method="POST", body=FORM)


async def works(connection: ReplicaConnection) -> None:
    """Answers as engines do, without token counts in the answer."""
    while asked := await connection.recv_request():
        if asked.target.startswith(("/v1/images/", "/v1/videos", "/v1/audio/speech")):
            sent = response(200, "Content-Type: application/octet-stream", body=b"\x89PNG" * 1000)
        elif asked.target.endswith("/count_tokens"):
            sent = json_response({"input_tokens": 5000})
        elif asked.target == "/tokenize":
            sent = json_response({"count": 3, "tokens": [1, 2, 3]})
        else:
            sent = json_response({"text": "hello"})
        await connection.send(sent)


CASES = [
    (transcription(), 10 + len(FORM) * 0.0005),
    (transcription("/v1/audio/translations"), 10 + len(FORM) * 0.0005),
    (post_json("/v1/images/generations", {"model": "m", "prompt": "a cat"}, ACME), 10),
    (post_json("/v1/videos", {"model": "m", "prompt": "a cat"}, ACME), 10),
    (post_json("/v1/audio/speech", {"model": "m", "input": "hello"}, ACME), 10),
    (post_json("/tokenize", {"model": "m", "prompt": LONG}, ACME), 1 + len(LONG) / 1000),
    (
        post_json(
            "/v1/messages/count_tokens",
            {"model": "m", "messages": [{"role": "user", "content": LONG}]},
            ACME,
        ),
        1 + len(LONG) / 1000,
    ),
]


@pytest.mark.parametrize(("asked", "least"), CASES)
@scenario
async def test_a_request_without_token_counts_costs_its_charge(
    tmp_path: Path, asked: bytes, least: float
) -> None:
    rules = keys(tmp_path, tokens_per_minute=2000)
    async with running(works, keys=rules) as router:
        began = monotonic()
        assert (await router.ask(asked, "POST")).status == 200
        await router.log()
        cost = await used(router)
        # Seconds count, too: at most 100 tokens each.
        assert ceil(least) <= cost <= least + 1000
        for account in router.app.parts.dispatcher.tenants._accounts.values():
            left = account.left(0.0)[1]
            assert left is not None
            # The limit refills by 33 tokens a second.
            assert cost - 1 - 34 * (monotonic() - began) <= 2000 - left <= cost + 1


def charged(charge: Charge, **paths: Charge) -> dict[str, Any]:
    same = msgspec.structs.asdict(charge)
    charges = Charges(
        audio=AudioCharge(**same),
        tokenize=TokenizeCharge(**same),
        other=OtherCharge(**same),
        paths=paths,
    )
    return {"usage": UsageConfig(charges=charges)}


@pytest.mark.parametrize("asked", [case[0] for case in CASES])
@scenario
async def test_the_tokens_of_a_minute_limit_requests_without_token_counts(
    tmp_path: Path, asked: bytes
) -> None:
    rules = keys(tmp_path, tokens_per_minute=2000)
    async with running(works, keys=rules, **charged(Charge(request=1000))) as router:
        for _ in range(2):
            assert (await router.ask(asked, "POST")).status == 200
        answer = await router.ask(asked, "POST")
        assert answer.json()["error"]["code"] == Reason.KEY_TOKENS


@scenario
async def test_a_path_has_its_own_charge(tmp_path: Path) -> None:
    images = {"/v1/images/generations": Charge(request=500)}
    settings = charged(Charge(), **images)
    async with running(works, keys=keys(tmp_path, tokens_per_minute=1e6), **settings) as router:
        for path in ("/v1/images/generations", "/v1/images/edits"):
            sent = post_json(path, {"model": "m", "prompt": "x"}, ACME)
            assert (await router.ask(sent, "POST")).status == 200
        await router.log(2)
        assert 500 <= await used(router) < 600


@pytest.mark.parametrize("asked", [CASES[0][0], CASES[2][0], CASES[5][0]])
@scenario
async def test_a_client_that_leaves_pays_the_charge(tmp_path: Path, asked: bytes) -> None:
    rules = keys(tmp_path, tokens_per_minute=1e6)
    async with running(hang, keys=rules, **charged(Charge(request=1000))) as router:
        client = await router.client()
        await client.send(asked)
        await router.replica.wait_for_requests(1)
        client.rst()
        await eventually(lambda: not router.app.parts.dispatcher.exchanges, "it has ended")
        assert await used(router) >= 1000


@pytest.mark.parametrize("path", ["v1/images", "/v1/images/", "/v1?x=1"])
def test_a_path_that_never_matches_is_refused(path: str) -> None:
    text = f"replicas: [http://a:1]\nusage: {{charges: {{paths: {{'{path}': {{request: 1}}}}}}}}\n"
    with pytest.raises(ConfigError, match="is not a path such as /v1/images/generations"):
        parse(text)


def test_a_charge_that_is_partly_stated_keeps_its_other_defaults() -> None:
    charges = parse(
        "replicas: [http://a:1]\nusage: {charges: {audio: {request: 5}}}\n"
    ).usage.charges
    assert (charges.audio.request, charges.audio.second, charges.tokenize.request) == (5, 50, 1)


@scenario
async def test_a_refused_request_costs_nothing(tmp_path: Path) -> None:
    async def refuses(connection: ReplicaConnection) -> None:
        while await connection.recv_request():
            await connection.send(json_response({"error": {"message": "no"}}, 400))

    async with running(refuses, keys=keys(tmp_path, tokens_per_minute=1e6)) as router:
        for asked, _ in CASES:
            assert (await router.ask(asked, "POST")).status == 400
        await router.log(len(CASES))
        assert await used(router) == 0
