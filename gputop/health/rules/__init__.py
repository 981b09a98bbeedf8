"""Rules that find problems, one module per subject. Pure functions."""
