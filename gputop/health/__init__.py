"""Diagnosis: rules over what the machine says, alerts, and doctor. Pure."""
