"""The fleet screen: a map of all GPUs of a Prometheus server, and their problems."""
