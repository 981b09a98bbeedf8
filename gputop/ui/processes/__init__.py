"""The process table, signals and environments."""
