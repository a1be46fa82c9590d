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

from router.config.model.aborts import Aborts as Aborts
from router.config.model.access_log import AccessLog as AccessLog
from router.config.model.admin import Admin as Admin
from router.config.model.admin import AdminTls as AdminTls
from router.config.model.batches import Batches as Batches
from router.config.model.bodies import Bodies as Bodies
from router.config.model.classes import BatchClass as BatchClass
from router.config.model.classes import Classes as Classes
from router.config.model.classes import ClassSettings as ClassSettings
from router.config.model.classes import ClassTimeouts as ClassTimeouts
from router.config.model.classes import CriticalClass as CriticalClass
from router.config.model.classes import HighClass as HighClass
from router.config.model.classes import LowClass as LowClass
from router.config.model.config import Config as Config
from router.config.model.continuation import Continuation as Continuation
from router.config.model.cors import Cors as Cors
from router.config.model.discovery import Discovery as Discovery
from router.config.model.discovery import DnsName as DnsName
from router.config.model.discovery import KubernetesReplicas as KubernetesReplicas
from router.config.model.drain import Drain as Drain
from router.config.model.emulate import Emulator as Emulator
from router.config.model.health import Health as Health
from router.config.model.hedging import Hedging as Hedging
from router.config.model.keys import Keys as Keys
from router.config.model.limits import Limits as Limits
from router.config.model.models import ModelRoute as ModelRoute
from router.config.model.models import ModelTarget as ModelTarget
from router.config.model.models import SplitTarget as SplitTarget
from router.config.model.polling import Polling as Polling
from router.config.model.pools import Pool as Pool
from router.config.model.prefix import Prefix as Prefix
from router.config.model.priority import Priority as Priority
from router.config.model.priority import PriorityRule as PriorityRule
from router.config.model.queue import Preemption as Preemption
from router.config.model.queue import Queue as Queue
from router.config.model.queue import QueueGates as QueueGates
from router.config.model.queue import QueueLimits as QueueLimits
from router.config.model.queue import Reservations as Reservations
from router.config.model.regions import RegionDistance as RegionDistance
from router.config.model.regions import Regions as Regions
from router.config.model.replicas import Credential as Credential
from router.config.model.replicas import KvEvents as KvEvents
from router.config.model.replicas import Replica as Replica
from router.config.model.replicas import ReplicaSettings as ReplicaSettings
from router.config.model.retry import Retry as Retry
from router.config.model.routing import PolicyChoice as PolicyChoice
from router.config.model.routing import Routing as Routing
from router.config.model.spot import Spot as Spot
from router.config.model.spot import SpotMetadata as SpotMetadata
from router.config.model.timeouts import Timeouts as Timeouts
from router.config.model.tls import Tls as Tls
from router.config.model.upstream import Upstream as Upstream
from router.config.model.usage import AudioCharge as AudioCharge
from router.config.model.usage import Charge as Charge
from router.config.model.usage import Charges as Charges
from router.config.model.usage import OtherCharge as OtherCharge
from router.config.model.usage import Price as Price
from router.config.model.usage import TokenizeCharge as TokenizeCharge
from router.config.model.usage import Usage as Usage
