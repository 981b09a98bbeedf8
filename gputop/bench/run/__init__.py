"""Runs: sessions with workers, their state and supervision."""
