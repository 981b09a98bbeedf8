"""Recordings: written, read where they are damaged, and replayed."""
