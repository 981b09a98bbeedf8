"""A simulated fleet behind the API of a Prometheus server."""
