"""Budgets of a key for single models, in addition to its budgets for all models."""

import csv
from pathlib import Path
from typing import Any

import pytest

from router.config.keys import ModelBudgets
from router.config.load import parse
from router.config.model import Keys
from router.core.errors import ConfigError, Reason
from tests.addons.usage.app.helpers import budgets_of, stored
from tests.app.pages import page
from tests.app.tenants.acme import ACME, USED, keys, tells
from tests.faults.process.metrics import number
from tests.harness.messages import chat
from tests.harness.reading import Response
from tests.harness.replica import HostileReplica, eventually
from tests.harness.running import Router, assert_error, running, scenario


def limited(folder: Path, **limits: Any) -> Keys:
    return keys(folder, model_budgets={"big": ModelBudgets(tokens_per_day=USED + 1)}, **limits)


def engine() -> HostileReplica:
    return HostileReplica(tells, models=("big", "small"))


async def ask(router: Router, model: str) -> Response:
    return await router.ask(chat(ACME, model=model), "POST")


@scenario
async def test_a_model_has_its_own_budget(tmp_path: Path) -> None:
    rules = limited(tmp_path, tokens_per_day=4 * USED)
    async with running(engine(), keys=rules) as router:
        for _ in range(2):
            assert (await ask(router, "big")).status == 200
        refused = await ask(router, "big")
        assert_error(refused, Reason.INSUFFICIENT_QUOTA)
        assert "tokens per day for the model big" in refused.error()["message"]
        for _ in range(2):
            assert (await ask(router, "small")).status == 200
        refused = await ask(router, "small")
        assert_error(refused, Reason.INSUFFICIENT_QUOTA)
        assert "for the model" not in refused.error()["message"]
        (told,) = (await page(router, "/usage"))["tenants"]
        assert told["budgets"]["tokens_per_day"]["used"] == 4 * USED
        assert told["model_budgets"]["big"]["tokens_per_day"]["used"] == 2 * USED
        ratio = await number(
            router.app.admin_port,
            "hedgerow_tenant_budget_used_ratio",
            tenant="acme (big)",
            unit="tokens",
            period="day",
        )
        assert ratio == pytest.approx(2 * USED / (USED + 1))
        assert router.app.census()["budget_holds"] == 0


@scenario
async def test_the_budgets_of_models_survive_a_restart(tmp_path: Path) -> None:
    rules, usage = limited(tmp_path), stored(tmp_path)
    for _ in range(2):
        async with running(engine(), keys=rules, usage=usage) as router:
            assert (await ask(router, "big")).status == 200
    async with running(engine(), keys=rules, usage=usage) as router:
        assert_error(await ask(router, "big"), Reason.INSUFFICIENT_QUOTA)
        assert (await ask(router, "small")).status == 200
        # The use of a model is not reported a second time.
        told = await page(router, "/usage")
        assert [each["tenant"] for each in told["tenants"]] == ["acme"]
        assert told["total"]["requests"] == 4
        rows = (await router.admin("/usage?format=csv")).body.decode().splitlines()
        assert [row["tenant"] for row in csv.DictReader(rows)] == ["acme"]


@scenario
async def test_requests_hold_both_budgets(tmp_path: Path) -> None:
    rules = limited(tmp_path, tokens_per_day=1e9)
    async with running(engine(), keys=rules) as router:
        budgets = budgets_of(router)
        clients = [await router.client() for _ in range(3)]
        for client in clients:
            await client.send(chat(ACME, model="big", max_tokens=USED))
        answers = [await client.recv_response("POST") for client in clients]
        assert {answer.status for answer in answers} <= {200, 429}
        await eventually(lambda: not budgets.holds, "nothing is held")
        assert all(each.held_tokens == 0 for each in budgets.by_tenant.values())


def test_a_budget_of_money_for_a_model_needs_its_price(tmp_path: Path) -> None:
    path = keys(tmp_path, model_budgets={"big": ModelBudgets(cost_per_day=1)}).file
    text = f"replicas: [http://a:1]\nkeys: {{file: {path}}}\nusage: {{prices: {{PRICE}}}}\n"
    with pytest.raises(ConfigError, match="needs the price of big"):
        parse(text.replace("PRICE", "small: {input: 1}"))
    parse(text.replace("PRICE", "big: {input: 1}"))
