"""Diagnosis: rules over the readings of a machine, and doctor's checks. Pure functions."""
