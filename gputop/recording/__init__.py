"""Recordings: JSON lines, plain or gzip, readable up to the first damaged line."""
