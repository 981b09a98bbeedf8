"""Monitor: the devices of one or several hosts."""
