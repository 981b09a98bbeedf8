"""Worker of the stress test: matrix products on one device, in the Python that has torch.

`__main__.py` is run as a file in a process of its own, with nothing but the standard library and
torch (Python 3.9 and later). The request is the first line of standard input, as JSON; then `stop`
ends the run, `go` begins one that is planned and waits for others, and end of file means that the
parent is gone. Events are JSON lines on what was standard output: `hello`, `plan`, then as the kind
of run has them `sample`, `point` and `verify`, and at last one `done` or `error`.

Only products between launch and completion count as time. Every throughput is 2·m·n·k FLOP per
product over that time. Products are compared with the first one, and with known answers.
"""
