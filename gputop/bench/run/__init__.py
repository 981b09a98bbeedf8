"""Runs: sessions with workers, the state of a run, and their supervision."""
