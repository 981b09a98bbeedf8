"""gputop, broken on purpose: a table of scenarios, and what must hold in each.

Each scenario runs the shipped command in a real pty against the fake driver (`stage.py`). Tables
are in modules by kind of fault. `python -m tests.faults` runs them and prints the times.
"""
