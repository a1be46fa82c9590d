"""Replicas without connections, for tests that send nothing."""

from router.config.model import Health, Replica as Config
from router.fleet.replica import Replica


def bare(name: str) -> Replica:
    """A replica without connections."""
    return Replica(Config(url=f"http://{name}:1", id=name), Health(), None)
