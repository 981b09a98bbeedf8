"""The fleet screen: a map of all GPUs that a Prometheus server knows, and what is wrong there."""
