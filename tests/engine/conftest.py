"""Two real engines and a real Hedgerow in front of them, for every test in this folder.

Nothing here skips: an environment that cannot be built or an engine that does not start fails the
run with the end of its log.
"""

from collections.abc import Generator, Iterator
from pathlib import Path

import openai
import pytest

from tests.engine.machine import environment
from tests.engine.machine.fleet import Engine, Engines, Hedgerow, running

IDLE_WITHIN_S = 60.0


@pytest.fixture(scope="session")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="session")
def fleet(logs: Path) -> Iterator[Engines]:
    """Two engines with the same model, started in parallel."""
    built = environment.ensure()
    pair = Engine("engine-a", built, logs), Engine("engine-b", built, logs)
    with running(*pair):
        yield pair


@pytest.fixture
def engines(fleet: Engines) -> Engines:
    """Both engines, running and idle, independent of the previous test."""
    for engine in fleet:
        if not engine.is_running():
            engine.kill()
            engine.start()
    for engine in fleet:
        engine.wait_until_ready()
        engine.wait_until_idle(IDLE_WITHIN_S)
    return fleet


@pytest.fixture
def hedgerow(engines: Engines, tmp_path: Path) -> Iterator[Hedgerow]:
    """A fresh Hedgerow in front of both engines, so that an ejection does not affect the
    next test.
    """
    router = Hedgerow([engine.url for engine in engines], tmp_path / "hedgerow.log")
    with running(router):
        yield router


@pytest.fixture
def client(hedgerow: Hedgerow) -> Iterator[openai.OpenAI]:
    """The SDK with default settings, except that it does not hide failures by retrying."""
    with openai.OpenAI(
        base_url=f"{hedgerow.url}/v1", api_key="none", max_retries=0, timeout=60.0
    ) as sdk:
        yield sdk


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the last output of the test's processes to a failure."""
    report = yield
    if report.failed:
        used = getattr(item, "funcargs", {})
        engines = used.get("engines") or used.get("fleet") or ()
        for service in (*engines, used.get("hedgerow")):
            if service is not None:
                report.sections.append((service.name, service.tail()))
    return report


KILLERS = ("test_replica_loss", "test_continuation")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests that kill an engine last: a restart takes longer than all other tests."""
    items.sort(key=lambda item: any(name in item.nodeid for name in KILLERS))
