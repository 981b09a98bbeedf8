"""gputop, broken on purpose: a table of scenarios, and what must hold in each.

Each scenario runs the shipped command in a real pty against the fake driver (`scenario.py`).
`python -m tests.faults` writes the page that lists them.
"""
