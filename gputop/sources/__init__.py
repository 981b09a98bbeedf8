"""Producers of snapshots: NVML, the Linux host, the sampler, and a simulation."""
