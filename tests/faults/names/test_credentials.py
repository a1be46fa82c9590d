"""A credential reaches its own replica, and nothing else: no other replica, client or log."""

import json
import ssl
import tempfile
from pathlib import Path
from typing import Any

import pytest

from router.config.model import Admin, Credential, Pool, Replica, Upstream
from router.core.errors import ConfigError, Reason
from tests.faults.names.engines import Engine, settings
from tests.harness.behaviours import answer_by
from tests.harness.messages import chat, completion, json_response, request
from tests.harness.over_tls import TlsReplica, TlsReplicaConnection
from tests.harness.reading import Request
from tests.harness.replica import HostileReplica, ReplicaConnection, eventually
from tests.harness.running import Router, assert_error, running, scenario
from tests.places import CERT

FIRST, SECOND, USUAL = "sk-first-0123456789", "sk-second-0123456789", "sk-usual-0123456789"
GUARDED, BEARER = Admin(listen="127.0.0.1:0", token="secret"), "Authorization: Bearer secret"
CLIENT = "client-key-0123456789"
SENT = ("Authorization: Bearer " + CLIENT, "X-Api-Key: " + CLIENT, "Api-Key: " + CLIENT)


def received(replica: HostileReplica) -> bytes:
    """All bytes that a replica has received, also with probes and polls."""
    return b"".join(bytes(connection.received) for connection in replica.connections)


def sent_to_clients(router: Router) -> bytes:
    return b"".join(bytes(client.received) for client in router.clients)


async def reports(router: Router) -> bytes:
    pages = ("/metrics", "/replicas", "/usage", "/queue", "/config")
    return b"".join([bytes((await router.admin(page)).body) for page in pages])


def entries(*engines: HostileReplica, **fields: Any) -> tuple[Replica, ...]:
    for engine in engines:
        engine.start()
    return tuple(Replica(url=e.url, id=f"r{n}", **fields) for n, e in enumerate(engines))


@scenario
async def test_each_replica_gets_its_own_credential() -> None:
    first, second, third = Engine("a"), Engine("b"), Engine("c")
    one, two, three = entries(first, second, third)
    fleet = (
        Replica(url=one.url, id="r0", credential=Credential(token=FIRST)),
        Replica(url=two.url, id="r1", pool="p"),
        three,
    )
    pools = {"p": Pool(credential=Credential(token=SECOND, header="Api-Key"))}
    upstream = Upstream(token=USUAL)
    async with running(
        *(first, second, third), replicas=fleet, pools=pools, upstream=upstream
    ) as router:
        for model in ("a", "b", "c", "none"):
            await router.ask(chat(*SENT, model=model))
        secrets = [secret.encode() for secret in (FIRST, SECOND, USUAL)]
        for engine, own in zip((first, second, third), secrets, strict=True):
            seen = received(engine)
            assert own in seen
            assert not [secret for secret in secrets if secret is not own and secret in seen]
        for engine in (first, second):
            assert CLIENT.encode() not in received(engine)
        assert second.last.header("api-key") == SECOND
        assert second.last.header("authorization") is None
        shown = sent_to_clients(router) + await reports(router) + router.log_path.read_bytes()
        assert not [secret for secret in secrets if secret in shown]


@pytest.mark.parametrize("stream", [False, True])
@scenario
async def test_a_replica_that_refuses_or_shows_the_credential(stream: bool) -> None:
    """A refusal is about the router's credential, so the client gets an error of the router."""
    statuses: list[int] = []

    def tells(request: Request) -> bytes:
        text = f"Incorrect API key provided: {request.header('authorization')}"
        return json_response({"error": {"message": text}}, statuses[-1])

    engine = HostileReplica(answer_by(tells))
    fleet = entries(engine, credential=Credential(token=FIRST))
    async with running(engine, replicas=fleet) as router:
        for status in (401, 403, 400, 429, 500):
            statuses.append(status)
            answer = await router.ask(chat(stream=stream))
            if status in (401, 403):
                assert_error(answer, Reason.CREDENTIAL_REFUSED, 502)
            else:
                assert answer.status == status
                assert f"Bearer {'*' * len(FIRST)}" in json.loads(answer.body)["error"]["message"]
        await router.log(5)
        assert FIRST.encode() not in sent_to_clients(router) + router.log_path.read_bytes()


@scenario
async def test_a_reload_reads_the_secret_again_or_changes_nothing() -> None:
    engine = Engine("m")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "token")
        path.write_text(FIRST + "\n")
        fleet = entries(engine, credential=Credential(token_file=str(path)))
        async with running(engine, replicas=fleet) as router:
            await router.ask()
            path.write_text(SECOND)
            await router.app.reload()
            await router.ask()
            path.unlink()
            router.change(debug_headers=True)
            with pytest.raises(Exception, match="token_file") as caught:
                await router.app.reload()
            assert SECOND not in str(caught.value)
            response = await router.ask()
            assert response.header("x-router-replica") is None
            found = [request.header("authorization") for request in engine.requests]
            assert found == [f"Bearer {FIRST}", f"Bearer {SECOND}", f"Bearer {SECOND}"]


@scenario
async def test_a_replica_of_the_admin_api_has_the_credential_of_its_pool() -> None:
    engine, other = Engine("m"), Engine("m")
    engine.start()
    other.start()
    pools = {"p": Pool(credential=Credential(token=FIRST))}
    async with running(Engine("x"), pools=pools, admin=GUARDED) as router:
        entry = {"url": engine.url, "id": "new", "pool": "p"}
        response = await router.admin("/replicas", "POST", BEARER, body=entry)
        assert response.status in (200, 201) and FIRST.encode() not in response.body
        await eventually(lambda: router.app.replicas()[1]["up"], "it is up")
        assert (await router.ask()).status == 200
        assert engine.last.header("authorization") == f"Bearer {FIRST}"
        await router.admin("/replicas/new", "DELETE", BEARER)
        # Another replica with this ID must not get the credential.
        await router.admin("/replicas", "POST", BEARER, body={"url": other.url, "id": "new"})
        await eventually(lambda: router.app.replicas()[-1]["up"], "it is up")
        assert (await router.ask()).status == 200
        assert FIRST.encode() not in received(other)
        bad = {"url": "http://127.0.0.1:1", "credential": {"token": FIRST}}
        response = await router.admin("/replicas", "POST", BEARER, body=bad)
        assert response.status == 422 and FIRST.encode() not in response.body
    await engine.stop()
    await other.stop()


@scenario
async def test_a_reload_keeps_the_pool_of_a_replica_of_the_admin_api() -> None:
    """Without its pool, the provider would get the credentials of the other replicas."""
    provider = Engine("gpt")
    provider.start()
    pools = {"cloud": Pool(external=True, credential=Credential(token=SECOND))}
    secrets = {"upstream": Upstream(token=USUAL), "admin": GUARDED}
    async with running(Engine("m"), pools=pools, **secrets) as router:
        entry = {"url": provider.url, "id": "new", "pool": "cloud", "models": ["gpt"]}
        assert (await router.admin("/replicas", "POST", BEARER, body=entry)).status == 201
        await eventually(lambda: router.app.replicas()[1]["up"], "it is up")
        router.change(pools={})
        with pytest.raises(ConfigError, match=r"pools\.cloud: is missing; .* the replica 'new'"):
            await router.app.reload()
        assert (await router.ask(chat(*SENT, model="gpt"))).status == 200
        assert provider.last.header("authorization") == f"Bearer {SECOND}"
        seen = received(provider)
        assert USUAL.encode() not in seen and CLIENT.encode() not in seen
    await provider.stop()


class Provider(TlsReplica):
    """A provider that answers only to its own key, on probes, too."""

    def __init__(self) -> None:
        super().__init__(self.answer, asked_apart=False)

    async def answer(self, connection: ReplicaConnection) -> None:
        assert isinstance(connection, TlsReplicaConnection)
        try:
            await connection.handshake()
        except (ssl.SSLError, ConnectionError):
            self.refused += 1
            return
        while (request := await connection.recv_request()) is not None:
            if request.header("authorization") != f"Bearer {SECOND}":
                error = {"error": {"message": "Incorrect API key", "code": "invalid_api_key"}}
                await connection.send(json_response(error, 401))
            elif request.target == "/api/v1/models":
                await connection.send(json_response({"data": [{"id": "gpt"}, {"id": "o"}]}))
            elif request.target == "/api/v1/chat/completions":
                await connection.send(completion())
            else:
                await connection.send(json_response({}, 404))

    @property
    def asked(self) -> list[Any]:
        return [r for r in self.requests if r.target == "/api/v1/chat/completions"]


def provided(own: HostileReplica, provider: TlsReplica, **pool: Any) -> dict[str, Any]:
    """The model `m` of `own` falls back to the model `gpt` of the provider."""
    own.start()
    provider.start()
    rules = {"ca_file": CERT, "server_name": "one.test", "external": True, **pool}
    key = Credential(token=SECOND)
    pools = {"cloud": Pool(credential=key, headers={"OpenAI-Organization": "org"}, **rules)}
    replicas = (
        Replica(url=own.url, id="own"),
        Replica(url=provider.url + "/api", id="cloud", pool="cloud", models=("gpt",)),
    )
    models = settings(models={"m": {"fallbacks": ["gpt"]}})["models"]
    return {
        "replicas": replicas,
        "pools": pools,
        "models": models,
        "upstream": Upstream(token=USUAL),
    }


@scenario
async def test_an_external_provider_over_tls_is_the_fallback() -> None:
    own, provider = Engine("m"), Provider()
    own.status = 500
    async with running(own, provider, **provided(own, provider)) as router:
        await eventually(lambda: router.app.replicas()[1]["up"], "the provider is up")
        response = await router.ask(chat(*SENT, "Cookie: a=b", "X-Session-Id: s", user="u"))
        assert response.status == 200
        (asked,) = provider.asked
        assert json.loads(asked.body)["model"] == "gpt"
        assert asked.header("openai-organization") == "org"
        assert {name for name, _ in asked.headers} <= {
            *("host", "content-type", "content-length", "openai-organization", "authorization"),
            *("accept-encoding", "x-request-id"),
        }
        seen = b"".join(bytes(connection.received) for connection in provider.connections)
        assert SECOND.encode() in seen
        for secret in (CLIENT, USUAL, "127.0.0.1, ", "hedgerow"):
            assert secret.encode() not in seen
        assert SECOND.encode() not in received(own)
        assert not [r for r in provider.requests if "metrics" in r.target]
        names = json.loads((await router.ask(request("/v1/models"))).body)["data"]
        assert {each["id"] for each in names} == {"m", "gpt"}
        line = (await router.log(2))[0]
        assert (line["replica"], line["served_model"]) == ("cloud", "gpt")


@scenario
async def test_a_provider_with_another_certificate_gets_nothing() -> None:
    own, provider = Engine("m"), Provider()
    own.status = 500
    rules = provided(own, provider, server_name="other.test")
    async with running(own, provider, **rules) as router:
        assert (await router.ask(chat(*SENT))).status == 500
        assert provider.refused
        assert not provider.requests
