"""Runs: their workers, and their state."""
