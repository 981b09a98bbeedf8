from gputop.api import Absence as Absence
from gputop.api import Device as Device
from gputop.api import DeviceSample as DeviceSample
from gputop.api import DeviceState as DeviceState
from gputop.api import Event as Event
from gputop.api import Host as Host
from gputop.api import Inventory as Inventory
from gputop.api import Problem as Problem
from gputop.api import ProblemError as ProblemError
from gputop.api import Process as Process
from gputop.api import ProcessKind as ProcessKind
from gputop.api import Sample as Sample
from gputop.api import Snapshot as Snapshot
from gputop.api import Stream as Stream
from gputop.api import pick as pick
from gputop.api import snapshot as snapshot
from gputop.api import snapshots as snapshots

__version__: str
DISTRIBUTION: str
FROM_CHECKOUT: str

def from_checkout(what: str = ...) -> str: ...
