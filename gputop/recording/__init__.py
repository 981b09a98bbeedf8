"""Recordings: gzip and JSON lines, good up to their first damaged line."""
