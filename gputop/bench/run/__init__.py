"""Runs: sessions with workers, and their state."""
