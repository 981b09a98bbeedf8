"""Bounds of what comes from outside: other hosts, files, drivers, Prometheus servers, terminals."""

DEVICES = 1024
"""Of one inventory or sample: a history of twenty minutes takes 0.2 MiB for each."""
PROCESSES = 8192
"""Of one sample, with every device that each holds counted."""
EVENTS = 1000
"""Of one sample: a device that fails can report thousands a second. The newest are kept."""
ITEMS = 8192
"""Of any other list or table in a record, such as the cores of a host."""
STRING_CHARACTERS = 16_384
"""Of one name or other text, which is cut. A command line of 4,096 bytes may be longer, masked."""
LINE_BYTES = 8 << 20
"""Of one line of a stream or recording, decompressed; to read it can take 20 times as much."""
UNREADABLE_LINES = 1000
"""In a row, after which a child process is ended."""
LINES_PER_SECOND = 500
"""Of a child process; one that writes more has to wait."""
DAMAGES = 10_000
"""Unreadable lines of a recording that are counted; after so many in a row it is not read on.
More than those of a stream: what comes after a damaged block of a disk is worth reading."""
SKIPPED_BYTES = 64 << 20
"""Of damaged compressed data, within which the next readable part has to begin."""
SAMPLES = 10_000_000
"""Of a recording: four months at one a second. Its index takes 12 bytes for each."""
WORKER_LINE_BYTES = 1 << 16
"""Of what a stress test's worker says."""
WORKER_LINES = 2000
"""Of one worker on a node that wait to be read, more than a run may say at once."""
RELAY_LINE_BYTES = 1 << 20
"""Of what the relay to a cluster says."""
ANSWER_BYTES = 64 << 20
"""Of one answer of a Prometheus server, decompressed."""
ANSWERS_BYTES = 128 << 20
"""Of all answers that are read at the same time."""
COLUMNS, ROWS = 1000, 500
"""Of a terminal, in cells."""
SHORTEST_INTERVAL, LONGEST_INTERVAL = 0.25, 60.0
"""Seconds between samples."""
