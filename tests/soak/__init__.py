"""The shipped dashboard for a long time, under load and faults that come and go."""
