"""Limits of terminals."""

COLUMNS, ROWS = 1000, 500
"""Cells of a terminal."""
