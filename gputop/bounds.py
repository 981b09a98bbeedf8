"""Bounds of what comes from outside: other hosts, files, drivers, Prometheus servers, terminals."""

DEVICES = 1024
"""Of one machine."""
PROCESSES = 8192
"""Of one machine, with every device that each holds counted."""
EVENTS = 1000
"""Of one sample."""
STRING_CHARACTERS = 4096
"""Of one name, command line or other text."""
LINE_BYTES = 16 << 20
"""Of one line of a stream or recording, decompressed."""
UNREADABLE_LINES = 1000
"""In a row, after which a child process is ended."""
ANSWER_BYTES = 64 << 20
"""Of one answer of a Prometheus server, decompressed."""
ANSWERS_BYTES = 128 << 20
"""Of all answers that are read at the same time."""
COLUMNS, ROWS = 1000, 500
"""Of a terminal, in cells."""
