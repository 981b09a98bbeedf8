"""Many machines at once, as a Prometheus server knows them."""
