"""Limits on outside input: other hosts, files, drivers, Prometheus servers, terminals."""

DEVICES = 1024
"""Devices in one inventory or sample: a history of twenty minutes takes 0.2 MiB for each."""
PROCESSES = 8192
"""Processes in one sample, counted once per device."""
EVENTS = 1000
"""Events in one sample: a failing device can report thousands per second. The newest are kept."""
ITEMS = 8192
"""Items in any other list or table of a record, such as the cores of a host."""
STRING_CHARACTERS = 16_384
"""Characters of one name or other text, beyond which it is cut. A masked command line of 4,096
bytes may be longer."""
LINE_BYTES = 8 << 20
"""Bytes of one line of a stream or recording, decompressed; reading can take 20 times as much."""
UNREADABLE_LINES = 1000
"""Consecutive unreadable lines after which a child process is ended."""
LINES_PER_SECOND = 500
"""Lines per second of a child process; one that writes more has to wait."""
RECORDS = 10_000_000
"""Lines of a recording that are read: four months at one per second. The index takes 24 bytes for
each."""
WORKER_LINE_BYTES = 1 << 16
"""Bytes of one line of a stress test's worker."""
WORKER_LINES = 2000
"""Lines of one worker on a node that wait to be read, more than a run writes at once."""
RELAY_LINE_BYTES = 1 << 20
"""Bytes of one line of the relay to a cluster."""
ANSWER_BYTES = 64 << 20
"""Bytes of one answer of a Prometheus server, decompressed."""
ANSWERS_BYTES = 128 << 20
"""Bytes of all answers that are read at the same time."""
JSON_VALUES = 1 << 20
"""Values of one such answer, roughly. Each takes some 100 bytes of memory."""
SERIES = 100_000
"""Series of one such answer, and GPUs of a fleet."""
COLUMNS, ROWS = 1000, 500
"""Cells of a terminal."""
SHORTEST_INTERVAL, LONGEST_INTERVAL = 0.25, 60.0
"""Range of seconds between samples."""

IDENTIFY_SECONDS = 12.0
"""Seconds to wait for the UUIDs of all devices where one is chosen by its UUID or address. Eight
devices without persistence mode need about as long, and one that hangs never answers."""
