"""NVML: the only package that imports pynvml."""
