"""Process table, signals and environments."""
