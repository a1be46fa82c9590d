"""The limits of an API key hold for names, splits and fallbacks."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from router.config.keys import KeyLine, hash_of, line_of
from router.config.model import Keys, Pool, Replica
from router.core.errors import Reason
from tests.faults.names.engines import Engine, settings
from tests.harness.messages import chat, post_json
from tests.harness.running import Router, assert_error, running, scenario

KEY = "Authorization: Bearer acme-key"


@asynccontextmanager
async def limited(
    *engines: tuple[Engine, dict[str, Any]], key: dict[str, Any], **sections: Any
) -> AsyncIterator[Router]:
    """Engines with settings of their replicas, and one API key with limits."""
    for engine, _ in engines:
        engine.start()
    replicas = tuple(
        Replica(url=engine.url, id=f"r{number}", **fields)
        for number, (engine, fields) in enumerate(engines)
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "keys.jsonl")
        path.write_text(line_of(KeyLine(name="acme", hash=hash_of(b"acme-key"), **key)) + "\n")
        keys = Keys(file=str(path))
        found = [engine for engine, _ in engines]
        classes = settings(classes={"normal": {"absent": "100ms"}})["classes"]
        more = {"replicas": replicas, "keys": keys, "classes": classes, **sections}
        async with running(*found, **more) as router:
            yield router


@scenario
async def test_a_key_that_may_use_a_name_may_use_its_model() -> None:
    engine = Engine("llama", "other")
    models = settings(models={"chat": "llama"})
    async with limited((engine, {}), key={"models": ("chat",)}, **models) as router:
        assert (await router.ask(chat(KEY, model="chat"))).status == 200
        for model in ("llama", "other"):
            assert_error(await router.ask(chat(KEY, model=model)), Reason.MODEL_NOT_ALLOWED)
        path, body = "/v1/chat/completions", {"messages": []}
        data = post_json(path, body, KEY, "x-router-model: chat")
        assert_error(await router.ask(data), Reason.MODEL_NOT_ALLOWED)
        assert engine.asked == ["llama"]


@scenario
async def test_a_key_of_the_model_may_not_use_another_name() -> None:
    engine = Engine("llama")
    models = settings(models={"chat": "llama"})
    async with limited((engine, {}), key={"models": ("llama",)}, **models) as router:
        assert (await router.ask(chat(KEY, model="llama"))).status == 200
        assert_error(await router.ask(chat(KEY, model="chat")), Reason.MODEL_NOT_ALLOWED)


@scenario
async def test_no_fallback_leaves_the_allowed_regions() -> None:
    """The same request of another client goes to the other region."""
    eu, us, provider = Engine("a"), Engine("b"), Engine("c")
    eu.status = 500
    models = settings(models={"a": {"fallbacks": ["b", "c"]}})
    fleet = (
        (eu, {"region": "eu"}),
        (us, {"region": "us"}),
        (provider, {"pool": "cloud", "models": ("c",)}),
    )
    pools = {"cloud": Pool(external=True)}
    key = {"allowed_regions": ("eu",)}
    async with limited(*fleet, key=key, region="eu", pools=pools, **models) as router:
        assert (await router.ask(chat(KEY, model="a"))).status == 500
        assert (us.asked, provider.asked) == ([], [])
        assert (await router.ask(chat(model="a"))).status == 200
        assert us.asked == ["b"]


@scenario
async def test_a_split_never_leaves_the_allowed_regions() -> None:
    eu, us = Engine("m"), Engine("m")
    targets = [{"pool": "x", "weight": 0}, {"pool": "y"}]
    sections = settings(models={"m": {"targets": targets}}, pools={"x": {}, "y": {}})
    fleet = ((eu, {"region": "eu", "pool": "x"}), (us, {"region": "us", "pool": "y"}))
    async with limited(*fleet, key={"allowed_regions": ("eu",)}, region="eu", **sections) as router:
        assert_error(await router.ask(chat(KEY)), Reason.REGION_NOT_ALLOWED)
        assert not us.requests
        assert (await router.ask()).status == 200
        assert us.asked == ["m"]
