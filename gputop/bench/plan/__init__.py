"""Planning of runs: the kinds, the devices, and the peaks for comparison."""
