"""The stress test: what to run, the worker that runs it, and who watches the worker."""
