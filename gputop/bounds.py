"""Limits of the terminal's size."""

COLUMNS, ROWS = 1000, 500
"""Largest size of a terminal, in cells."""
