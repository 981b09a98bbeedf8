"""gputop, broken on purpose in every way that there is: a table of scenarios, and what must hold.

Each scenario runs the shipped command in a real pty against the fake driver (`stage.py`); the
tables are in modules by kind of fault. `python -m tests.faults` runs them and prints the times;
`python -m tests.faults.peers` runs those that are no monitor's own on others, too, and
`python -m tests.faults.attacks` tries hostile input.
"""
