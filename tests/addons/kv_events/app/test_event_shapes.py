"""Events that the exact index cannot use never route worse than no events.

Emulated engines publish the changes of their prefix caches in the shapes of real engines, and in
shapes that the router does not know. The same conversations run with and without `prefix.exact`.
The engines' own counts of cached tokens are compared.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import msgspec
import pytest

from router.addons.kv_events import chains as roots
from router.app import App
from router.config.model import AccessLog, Admin, Config, Prefix, Replica, Routing
from router.lab.emulator.core.kv_events import Cleared, KvEvent, Removed, Stored
from router.lab.emulator.http.kv_publisher import KvPublisher
from router.lab.emulator.http.kv_wire import sglang_payload, vllm_payload
from tests.harness import clocks
from tests.harness.emulated import emulated
from tests.harness.replica import eventually
from tests.harness.running import long_scenario

ENGINES = 3
CONVERSATIONS = 6
TURNS = 6
SHARE = 0.95  # of the cached tokens without events

Events = Sequence[KvEvent]
Shape = Callable[[KvEvent], list[Any]]
Payload = Callable[[Events, float], bytes]


def fields(event: Stored, **more: Any) -> dict[str, Any]:
    return {
        "type": "BlockStored",
        "block_hashes": list(event.hashes),
        "parent_block_hash": event.parent,
        "token_ids": list(event.tokens),
        "block_size": event.block_size,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        **more,
    }


def changed(stored: Callable[[Stored], list[Any]], **removed: Any) -> Shape:
    """`stored`: the events that replace a BlockStored. `removed`: fields of each BlockRemoved."""

    def shape(event: KvEvent) -> list[Any]:
        if isinstance(event, Stored):
            return stored(event)
        if isinstance(event, Removed):
            return [{"type": "BlockRemoved", "block_hashes": [event.hash], **removed}]
        assert isinstance(event, Cleared)
        return [{"type": "AllBlocksCleared"}]

    return shape


def with_fields(**more: Any) -> Shape:
    return changed(lambda event: [fields(event, **more)])


def window(event: Stored) -> Iterator[dict[str, Any]]:
    """A group of sliding windows: the first blocks of a prompt are stored and soon removed."""
    yield fields(event, group_idx=0)
    yield {"type": "BlockRemoved", "block_hashes": list(event.hashes)[:-1], "group_idx": 0}


def state(event: Stored, **more: Any) -> dict[str, Any]:
    """A group of states (mamba): only the last block of a step is stored."""
    size = event.block_size
    return fields(
        event,
        block_hashes=[event.hashes[-1]],
        parent_block_hash=event.hashes[-2] if len(event.hashes) > 1 else event.parent,
        token_ids=list(event.tokens[-size:]),
        **more,
    )


def smaller_blocks(event: Stored) -> list[Any]:
    """The first event has large blocks; all others have the real block size."""
    return [
        fields(event, block_hashes=[1], token_ids=[7] * 64, block_size=64, parent_block_hash=None),
        fields(event),
    ]


def keyed(event: Stored, keys: list[Any]) -> dict[str, Any]:
    return fields(event, extra_keys=[keys] * len(event.hashes))


def renamed(event: KvEvent) -> list[Any]:
    if isinstance(event, Stored):
        return [fields(event, type="BlockStoredV2")]
    return [{"type": "BlockEvicted", "block_hashes": [1]}]


SHAPES: dict[str, Shape] = {
    "regular": with_fields(group_idx=0, kv_cache_spec_kind="full_attention"),
    "sliding window only": with_fields(group_idx=0, kv_cache_spec_kind="sliding_window"),
    "mamba only": changed(lambda e: [state(e, group_idx=0, kv_cache_spec_kind="mamba")]),
    "unknown kind": with_fields(group_idx=0, kv_cache_spec_kind="striped_attention"),
    "window without kind": changed(lambda e: [*window(e)]),
    "window, then full, without kinds": changed(lambda e: [*window(e), fields(e, group_idx=1)]),
    "mamba, then full, without kinds": changed(
        lambda e: [state(e, group_idx=0), fields(e, group_idx=1)]
    ),
    "unknown keys of each block": changed(lambda e: [keyed(e, ["unit 7"])]),
    "an unknown key of the first block": changed(
        lambda e: [fields(e, extra_keys=[["unit 7"], *[None] * (len(e.hashes) - 1)])]
    ),
    "new event names": renamed,
    "another name of the medium": with_fields(medium="HBM"),
    "large and small blocks": changed(smaller_blocks),
    "no token ids": changed(lambda e: [fields(e, token_ids=None)]),
    "other token ids": changed(lambda e: [fields(e, token_ids=[t + 1 for t in e.tokens])]),
    "no event": changed(lambda e: []),
}


def payload_of(shape: Shape) -> Payload:
    def payload(events: Events, timestamp: float) -> bytes:
        told = [one for event in events for one in shape(event)]
        return msgspec.msgpack.encode([timestamp, told, 0])

    return payload


def changing(first: Payload, then: Payload) -> Payload:
    """The first messages have one shape, all later ones another."""
    count = 0

    def payload(events: Events, timestamp: float) -> bytes:
        nonlocal count
        count += 1
        return (first if count <= 4 * CONVERSATIONS else then)(events, timestamp)

    return payload


async def hits(payload: Payload | None, *, shared: int = 0, model: str = "m", **engine: Any) -> int:
    """Run the conversations; returns the cached tokens of all turns, without shared ones.

    `payload`: the shape of the events; None: `prefix.exact` is off. `shared`: bytes of the system
    prompt of all conversations. `engine`: settings.
    """
    async with AsyncExitStack() as stack:
        urls: list[str] = []
        for _ in range(ENGINES):
            one = await stack.enter_async_context(
                emulated(**{"persona": "vllm", "kv_events": True, **engine})
            )
            publisher = KvPublisher(
                "127.0.0.1", "", payload or vllm_payload, engine.get("block_size", 16)
            )
            stack.callback(publisher.close)
            one.engine.kv_listener = publisher
            urls.append(one.url)
        app = App(
            Config(
                listen="127.0.0.1:0",
                admin=Admin(listen="127.0.0.1:0"),
                replicas=tuple(Replica(url=url, id=f"r{n}") for n, url in enumerate(urls)),
                access_log=AccessLog(path=""),
                polling=clocks.polling(),
                health=clocks.health(),
                # A policy that does not weigh prefixes against the noise of load.
                routing=Routing(policy="prefix_affinity"),
                # A long wait, so that the token IDs of each request are known.
                prefix=Prefix(exact=payload is not None, tokens_wait_s=10.0),
            ),
            seed=1,
        )
        await app.start()
        stack.push_async_callback(app.stop)
        addon = app.parts.addons.get("kv_events")
        watcher = addon and addon.watcher
        if watcher is not None:
            await eventually(lambda: watcher.connected == ENGINES, "all publishers are connected")
        http = await stack.enter_async_context(aiohttp.ClientSession())
        found = await converse(http, app.port, shared, model)
        if watcher is not None and payload is vllm_payload:
            # Shapes that the index understands are used: the estimate is replaced.
            root = roots.root(model if model in engine.get("adapters", ()) else "")
            used = [r for r in app.parts.fleet.replicas.values() if watcher.index.entries(r)]
            assert used and all(watcher.index.is_complete(r, root) for r in used)
        return found


async def converse(http: aiohttp.ClientSession, port: int, shared: int, model: str) -> int:
    cached = 0
    system = {"role": "system", "content": "Obey all rules. " * (shared // 16)}
    chats = [
        [system, {"role": "user", "content": f"I am {number}. " + "Listen to me! " * 140}]
        for number in range(CONVERSATIONS)
    ]
    for turn in range(TURNS):
        for number, chat in enumerate(chats):
            chat.append({"role": "user", "content": f"Question {turn} of {number}? " + "So? " * 20})
            async with http.post(
                f"http://127.0.0.1:{port}/v1/chat/completions",
                json={"model": model, "max_tokens": 16, "messages": chat},
            ) as answer:
                assert answer.status == 200, await answer.text()
                said = await answer.json()
            text = said["choices"][0]["message"]["content"]
            chat.append({"role": "assistant", "content": text})
            found = said["usage"]["prompt_tokens_details"]["cached_tokens"]
            cached += max(0, found - shared // 4)  # the emulator has 4 bytes per token
    return cached


_without: dict[str, int] = {}


async def compare(payload: Payload, **options: Any) -> None:
    key = repr(options)
    if key not in _without:
        _without[key] = await hits(None, **options)
    without = _without[key]
    assert without > 0
    found = await hits(payload, **options)
    assert found >= SHARE * without, (found, without)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_no_shape_is_worse_than_no_events(shape: Shape) -> None:
    long_scenario(compare)(payload_of(shape))


def test_unreadable_messages_are_not_worse_than_no_events() -> None:
    long_scenario(compare)(lambda events, timestamp: b"\xc1garbage")


def test_events_that_become_unreadable_are_not_worse_than_no_events() -> None:
    """The router understands the first messages of each engine, and no later one."""
    long_scenario(compare)(changing(vllm_payload, payload_of(renamed)))
    long_scenario(compare)(changing(vllm_payload, payload_of(SHAPES["unknown kind"])))
    long_scenario(compare)(changing(vllm_payload, payload_of(SHAPES["no event"])))


def test_an_adapter_known_by_its_number_is_not_worse_than_no_events() -> None:
    shape = payload_of(with_fields(lora_id=1))
    long_scenario(compare)(shape, adapters=("ad",), model="ad")


def test_events_that_the_router_understands_replace_the_estimate() -> None:
    long_scenario(compare)(vllm_payload)


@pytest.mark.parametrize("shared", [10_000, 44_000])
def test_a_long_system_prompt_of_all_conversations_hides_none_of_them(shared: int) -> None:
    long_scenario(compare)(vllm_payload, shared=shared)


@pytest.mark.parametrize("shared", [4_000, 12_000])
def test_blocks_of_one_token(shared: int) -> None:
    """The default page size of SGLang."""
    sizes = {"block_size": 1, "num_blocks": 65_536, "max_model_len": 65_536}
    long_scenario(compare)(sglang_payload, persona="sglang", shared=shared, **sizes)
