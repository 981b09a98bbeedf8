"""Diagnosis: rules over what the machine says, and doctor. Pure."""
