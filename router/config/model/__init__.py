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

from router.config.model.classes import BatchClass as BatchClass
from router.config.model.classes import Classes as Classes
from router.config.model.classes import ClassSettings as ClassSettings
from router.config.model.classes import ClassTimeouts as ClassTimeouts
from router.config.model.classes import CriticalClass as CriticalClass
from router.config.model.classes import HighClass as HighClass
from router.config.model.classes import LowClass as LowClass
from router.config.model.clients import Bodies as Bodies
from router.config.model.clients import Cors as Cors
from router.config.model.clients import Limits as Limits
from router.config.model.clients import Timeouts as Timeouts
from router.config.model.clients import Tls as Tls
from router.config.model.config import Config as Config
from router.config.model.process import AccessLog as AccessLog
from router.config.model.process import Admin as Admin
from router.config.model.process import AdminTls as AdminTls
from router.config.model.process import Batches as Batches
from router.config.model.process import Drain as Drain
from router.config.model.process import Emulator as Emulator
from router.config.model.queue import Preemption as Preemption
from router.config.model.queue import Queue as Queue
from router.config.model.queue import QueueGates as QueueGates
from router.config.model.queue import QueueLimits as QueueLimits
from router.config.model.queue import Reservations as Reservations
from router.config.model.replicas import Aborts as Aborts
from router.config.model.replicas import Credential as Credential
from router.config.model.replicas import Discovery as Discovery
from router.config.model.replicas import DnsName as DnsName
from router.config.model.replicas import Health as Health
from router.config.model.replicas import KubernetesReplicas as KubernetesReplicas
from router.config.model.replicas import KvEvents as KvEvents
from router.config.model.replicas import Polling as Polling
from router.config.model.replicas import Replica as Replica
from router.config.model.replicas import ReplicaSettings as ReplicaSettings
from router.config.model.replicas import Spot as Spot
from router.config.model.replicas import SpotMetadata as SpotMetadata
from router.config.model.replicas import Upstream as Upstream
from router.config.model.routing import Continuation as Continuation
from router.config.model.routing import Hedging as Hedging
from router.config.model.routing import ModelRoute as ModelRoute
from router.config.model.routing import ModelTarget as ModelTarget
from router.config.model.routing import PolicyChoice as PolicyChoice
from router.config.model.routing import Pool as Pool
from router.config.model.routing import Prefix as Prefix
from router.config.model.routing import RegionDistance as RegionDistance
from router.config.model.routing import Regions as Regions
from router.config.model.routing import Retry as Retry
from router.config.model.routing import Routing as Routing
from router.config.model.routing import SplitTarget as SplitTarget
from router.config.model.tenants import AudioCharge as AudioCharge
from router.config.model.tenants import Charge as Charge
from router.config.model.tenants import Charges as Charges
from router.config.model.tenants import Keys as Keys
from router.config.model.tenants import OtherCharge as OtherCharge
from router.config.model.tenants import Price as Price
from router.config.model.tenants import Priority as Priority
from router.config.model.tenants import PriorityRule as PriorityRule
from router.config.model.tenants import TokenizeCharge as TokenizeCharge
from router.config.model.tenants import Usage as Usage
