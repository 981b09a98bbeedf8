"""A system that starts no more threads or processes: see `sitecustomize`."""
