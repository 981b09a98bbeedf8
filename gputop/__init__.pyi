from gputop.api import Stream as Stream
from gputop.api import pick as pick
from gputop.api import snapshot as snapshot
from gputop.api import snapshots as snapshots
from gputop.problem import Problem as Problem
from gputop.problem import ProblemError as ProblemError
from gputop.schema.device import Absence as Absence
from gputop.schema.device import Device as Device
from gputop.schema.device import DeviceSample as DeviceSample
from gputop.schema.device import DeviceState as DeviceState
from gputop.schema.snapshot import Event as Event
from gputop.schema.snapshot import Host as Host
from gputop.schema.snapshot import Inventory as Inventory
from gputop.schema.snapshot import Process as Process
from gputop.schema.snapshot import ProcessKind as ProcessKind
from gputop.schema.snapshot import Sample as Sample
from gputop.stream.child import Snapshot as Snapshot

__version__: str
DISTRIBUTION: str
FROM_CHECKOUT: str

def from_checkout(what: str = ...) -> str: ...
