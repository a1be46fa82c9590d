"""The models of one replica: its own list of models, and what follows from the configuration."""

from __future__ import annotations

from typing import Any

from router.config.model import Replica as Config
from router.fleet.context import UNKNOWN, lengths_of
from router.fleet.listed import served


class ListedModels:
    """What a replica lists. `Candidate.models` has the names of the models that it serves.

    Only `table/probe_results.py` writes it.
    """

    __slots__ = ("adapters", "lengths", "names", "objects", "problem", "reported_lengths")

    def __init__(self, config: Config) -> None:
        self.names: frozenset[str] | None = None  # The models that the replica listed last.
        self.adapters: frozenset[str] = frozenset()  # The listed models that are adapters.
        self.objects: dict[str, dict[str, Any]] = {}  # Model -> its entry of /v1/models.
        # Why the model list could not be read, as text for people; "": it was read, or the models
        # are configured.
        self.problem = ""
        # The maximum number of tokens of a request, by model: as the replica reports it, and as it
        # applies.
        self.reported_lengths = UNKNOWN
        self.lengths = lengths_of(config.max_model_len, UNKNOWN)

    def adopt(self, config: Config) -> frozenset[str] | None:
        """Apply new settings. Returns the models that the replica serves; `None`: unknown."""
        if config.models is not None:
            self.problem = ""
        self.lengths = lengths_of(config.max_model_len, self.reported_lengths)
        return served(config, self.names)

    def continues(self, other: ListedModels) -> None:
        """Copy the model list of `other`. The caller calls `adopt` next."""
        self.names = other.names
        self.adapters = other.adapters
        self.objects = other.objects
        self.problem = other.problem
        self.reported_lengths = other.reported_lengths
