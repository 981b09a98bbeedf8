"""Many machines at once, as reported by a Prometheus server."""
