"""The budgets and the usage file of a running router."""

from pathlib import Path

from router.addons.usage.addon import UsageAddon
from router.addons.usage.budgets import Budgets
from router.addons.usage.writer import UsageWriter
from router.config.model import Usage
from tests.app.pages import page
from tests.harness.running import Router

SELDOM_S = 1000.0  # no write during a test, except the ones that the test asks for


def stored(folder: Path, flush_s: float = SELDOM_S) -> Usage:
    return Usage(file=str(folder / "usage.db"), flush_s=flush_s)


def addon_of(router: Router) -> UsageAddon:
    addon = router.app.parts.addons["usage"]
    assert isinstance(addon, UsageAddon)
    return addon


def budgets_of(router: Router) -> Budgets:
    return addon_of(router).budgets


def writer_of(router: Router) -> UsageWriter:
    writer = addon_of(router).writer
    assert writer is not None
    return writer


async def used(router: Router, what: str) -> float:
    """The used amount of the only tenant that has budgets."""
    (told,) = (each for each in (await page(router, "/usage"))["tenants"] if "budgets" in each)
    return float(told["budgets"][what]["used"])
