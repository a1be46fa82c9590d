"""Declares every setting of the configuration file: its name, type, range, default and text.

This package only declares settings. `load` reads YAML and flags, and `checks` compares settings
with each other. `hedgerow config reference` prints these settings and the policies' options
(`reference`).

`clients`, `tenants`, `routing`, `replicas`, `queue`, `classes` and `process` declare the sections
of their subjects. `config` declares the top level, with all sections, and `setting_types` the types
of settings. Other code imports the classes of sections from this package, and the types of settings
from `setting_types`.

To declare a setting, add one field. The text of the setting is the comment on the field's line and
the comment lines directly above it. The setting's name is the field's name, without the suffix `_s`
of a duration, because a value in the file has a unit: `connect_s` here is `connect: 2s` in the
file. `Restart` marks settings that a reload cannot change.
"""

from router.config.model.classes import (
    BatchClass as BatchClass,
    Classes as Classes,
    ClassSettings as ClassSettings,
    ClassTimeouts as ClassTimeouts,
    CriticalClass as CriticalClass,
    HighClass as HighClass,
    LowClass as LowClass,
)
from router.config.model.clients import (
    Bodies as Bodies,
    Cors as Cors,
    Limits as Limits,
    Timeouts as Timeouts,
    Tls as Tls,
)
from router.config.model.config import Config as Config
from router.config.model.process import (
    AccessLog as AccessLog,
    Admin as Admin,
    AdminTls as AdminTls,
    Batches as Batches,
    Drain as Drain,
    Emulator as Emulator,
    Sharing as Sharing,
)
from router.config.model.queue import (
    Preemption as Preemption,
    Queue as Queue,
    QueueGates as QueueGates,
    QueueLimits as QueueLimits,
    Reservations as Reservations,
)
from router.config.model.replicas import (
    Aborts as Aborts,
    Credential as Credential,
    Discovery as Discovery,
    DnsName as DnsName,
    Health as Health,
    KubernetesReplicas as KubernetesReplicas,
    KvEvents as KvEvents,
    Polling as Polling,
    Replica as Replica,
    ReplicaSettings as ReplicaSettings,
    Spot as Spot,
    SpotMetadata as SpotMetadata,
    Upstream as Upstream,
)
from router.config.model.routing import (
    Continuation as Continuation,
    Hedging as Hedging,
    ModelRoute as ModelRoute,
    ModelTarget as ModelTarget,
    PolicyChoice as PolicyChoice,
    Pool as Pool,
    Prefix as Prefix,
    RegionDistance as RegionDistance,
    Regions as Regions,
    Retry as Retry,
    Routing as Routing,
    SplitTarget as SplitTarget,
)
from router.config.model.tenants import (
    AudioCharge as AudioCharge,
    Charge as Charge,
    Charges as Charges,
    Keys as Keys,
    OtherCharge as OtherCharge,
    Price as Price,
    Priority as Priority,
    PriorityRule as PriorityRule,
    TokenizeCharge as TokenizeCharge,
    Usage as Usage,
)
