"""Runs to make: the kinds, the devices, and the peaks that results are measured against."""
