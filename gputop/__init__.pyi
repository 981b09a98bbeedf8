from gputop.agent.device import Absence as Absence
from gputop.agent.device import Device as Device
from gputop.agent.device import DeviceSample as DeviceSample
from gputop.agent.device import DeviceState as DeviceState
from gputop.agent.problem import Problem as Problem
from gputop.agent.problem import ProblemError as ProblemError
from gputop.agent.snapshot import Event as Event
from gputop.agent.snapshot import Host as Host
from gputop.agent.snapshot import Inventory as Inventory
from gputop.agent.snapshot import Process as Process
from gputop.agent.snapshot import ProcessKind as ProcessKind
from gputop.agent.snapshot import Sample as Sample
from gputop.api import Stream as Stream
from gputop.api import pick as pick
from gputop.api import snapshot as snapshot
from gputop.api import snapshots as snapshots
from gputop.stream.child import Snapshot as Snapshot

__version__: str
DISTRIBUTION: str
FROM_CHECKOUT: str

def from_checkout(what: str = ...) -> str: ...
