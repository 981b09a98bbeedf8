"""Worker of the stress test: matrix products on one device, in the Python that has torch.

`__main__.py` runs as a file in a process of its own, with only the standard library and torch
(Python 3.9 and later). The first line of standard input is the request, as JSON. After it, `stop`
ends the run, `go` starts a run that waits for other devices, and end of file means that the parent
has ended. Events are JSON lines on the original standard output: `hello` and `plan`, then `sample`,
`point` and `verify` (depending on the kind of run), and finally one `done` or `error`. `record` has
readings of the device, and `limit` is why the guard ends the run. `events.py` defines all of them.

Only the time between launch and completion of products counts. Every throughput is 2·m·n·k FLOP
per product over that time. Products are compared with the first one, and with known answers.
"""
