"""The monitor: the devices of one or several hosts."""
