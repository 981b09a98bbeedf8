"""Commands of `gputop`, one module each, imported when needed. `gputop.cli` lists them.

Each has `add_arguments(parser)`, and `run(arguments)`, which returns the exit status.
"""
