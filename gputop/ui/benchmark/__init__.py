"""The benchmark tab."""
