"""Declares every setting of the configuration file: its name, type, range, default and text.

This package only declares settings. `load` reads YAML and flags, and `checks` compares settings
with each other. `hedgerow config reference` prints these settings and the policies' options
(`reference`).

The section `limits` of the file is declared in `limits`, and likewise each other section. `config`
declares the top level, and `setting_types` the types of settings. Other code imports the classes of
sections from this package, and the types of settings from `setting_types`.

To declare a setting, add one field. The text of the setting is the comment on the field's line and
the comment lines directly above it. The setting's name is the field's name, without the suffix `_s`
of a duration, because a value in the file has a unit: `connect_s` here is `connect: 2s` in the
file. `Restart` marks settings that a reload cannot change.
"""

from router.config.model.aborts import Aborts
from router.config.model.access_log import AccessLog
from router.config.model.admin import Admin, AdminTls
from router.config.model.batches import Batches
from router.config.model.bodies import Bodies
from router.config.model.classes import (
    BatchClass,
    Classes,
    ClassSettings,
    ClassTimeouts,
    CriticalClass,
    HighClass,
    LowClass,
)
from router.config.model.config import Config
from router.config.model.continuation import Continuation
from router.config.model.cors import Cors
from router.config.model.discovery import Discovery, DnsName, KubernetesReplicas
from router.config.model.drain import Drain
from router.config.model.emulate import Emulator
from router.config.model.health import Health
from router.config.model.hedging import Hedging
from router.config.model.keys import Keys
from router.config.model.limits import Limits
from router.config.model.models import ModelRoute, ModelTarget, SplitTarget
from router.config.model.polling import Polling
from router.config.model.pools import Pool
from router.config.model.prefix import Prefix
from router.config.model.priority import Priority, PriorityRule
from router.config.model.queue import Preemption, Queue, QueueGates, QueueLimits, Reservations
from router.config.model.regions import RegionDistance, Regions
from router.config.model.replicas import Credential, KvEvents, Replica, ReplicaSettings
from router.config.model.retry import Retry
from router.config.model.routing import PolicyChoice, Routing
from router.config.model.spot import Spot, SpotMetadata
from router.config.model.timeouts import Timeouts
from router.config.model.tls import Tls
from router.config.model.upstream import Upstream
from router.config.model.usage import (
    AudioCharge,
    Charge,
    Charges,
    OtherCharge,
    Price,
    TokenizeCharge,
    Usage,
)

# The sections in the order of the file, the parts of a section behind it.
__all__ = [  # noqa: RUF022
    "Config",
    "Admin",
    "AdminTls",
    "Replica",
    "ReplicaSettings",
    "KvEvents",
    "Credential",
    "Discovery",
    "DnsName",
    "KubernetesReplicas",
    "Pool",
    "ModelRoute",
    "SplitTarget",
    "ModelTarget",
    "Regions",
    "RegionDistance",
    "Routing",
    "PolicyChoice",
    "Limits",
    "Bodies",
    "Timeouts",
    "Retry",
    "Hedging",
    "Queue",
    "QueueGates",
    "QueueLimits",
    "Reservations",
    "Preemption",
    "Classes",
    "ClassSettings",
    "CriticalClass",
    "HighClass",
    "LowClass",
    "BatchClass",
    "ClassTimeouts",
    "Priority",
    "PriorityRule",
    "Keys",
    "Continuation",
    "Aborts",
    "Health",
    "Polling",
    "Prefix",
    "Usage",
    "Charge",
    "Charges",
    "AudioCharge",
    "TokenizeCharge",
    "OtherCharge",
    "Price",
    "Upstream",
    "Tls",
    "Cors",
    "AccessLog",
    "Batches",
    "Drain",
    "Spot",
    "SpotMetadata",
    "Emulator",
]
