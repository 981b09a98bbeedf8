"""Hostile input for the shipped command: a table of attacks, and what must become of each."""
