"""What the processor is called. Apart from `host`, which loads psutil: the dashboard asks, too."""

from __future__ import annotations

from pathlib import Path


def cpu_name() -> str | None:
    """The processor's marketing name, or None where /proc/cpuinfo has none."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model"):
            return " ".join(value.split())
    return None
