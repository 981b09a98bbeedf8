"""What is to be run, on which devices, and what it is measured against."""
