"""Commands of `gputop`, one module each, imported when needed. `parser.COMMANDS` lists them.

Each module has `add_arguments(parser)` and `run(arguments)`, which returns the exit status.
"""
