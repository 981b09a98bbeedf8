"""What to run, on which devices, and what results are measured against."""
