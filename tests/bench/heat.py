"""What real cards say of their heat: the section of `nvidia-smi -q -d TEMPERATURE`, under load."""

from __future__ import annotations

from typing import Any

H100 = """\
    Temperature
        GPU Current Temp                               : 59 C
        GPU T.Limit Temp                               : 26 C
        GPU Shutdown T.Limit Temp                      : -8 C
        GPU Slowdown T.Limit Temp                      : -2 C
        GPU Max Operating T.Limit Temp                 : 0 C
        GPU Target Temperature                         : N/A
        Memory Current Temp                            : 55 C
        Memory Max Operating T.Limit Temp              : 0 C
"""
L40S = """\
    Temperature
        GPU Current Temp                               : 54 C
        GPU T.Limit Temp                               : 34 C
        GPU Shutdown T.Limit Temp                      : -5 C
        GPU Slowdown T.Limit Temp                      : -2 C
        GPU Max Operating T.Limit Temp                 : 0 C
        GPU Target Temperature                         : N/A
        Memory Current Temp                            : N/A
        Memory Max Operating T.Limit Temp              : N/A
"""
RTX_2080_SUPER = """\
    Temperature
        GPU Current Temp                               : 38 C
        GPU Current T.Limit Temp                       : N/A
        GPU Shutdown Temp                              : 100 C
        GPU Slowdown Temp                              : 97 C
        GPU Max Operating Temp                         : 89 C
        GPU Target Temperature Specification           : 84 C
        Memory Current Temp                            : N/A
        Memory Max Operating Temp                      : N/A
"""
A100 = """\
    Temperature
        GPU Current Temp                  : 62 C
        GPU Shutdown Temp                 : 92 C
        GPU Slowdown Temp                 : 89 C
        GPU Max Operating Temp            : 85 C
        Memory Current Temp               : 80 C
        Memory Max Operating Temp         : 95 C
"""
"""Not captured, unlike the others: made up after them, with a limit of the memory."""

THRESHOLDS = {
    "GPU Slowdown Temp": "temperature_slowdown_celsius",
    "GPU Shutdown Temp": "temperature_shutdown_celsius",
    "Memory Max Operating Temp": "memory_temperature_max_celsius",
    "GPU Slowdown T.Limit Temp": "temperature_slowdown_margin_celsius",
    "GPU Shutdown T.Limit Temp": "temperature_shutdown_margin_celsius",
    "GPU Max Operating T.Limit Temp": "temperature_max_margin_celsius",
    "Memory Max Operating T.Limit Temp": "memory_temperature_max_margin_celsius",
}


def thresholds(text: str) -> dict[str, Any]:
    """Return the thresholds in such a text as fields of `Device`."""
    found: dict[str, Any] = {}
    for line in text.splitlines():
        label, _, value = line.partition(":")
        name = THRESHOLDS.get(label.strip())
        if name is not None:
            number = value.split()[0]
            found[name] = None if number == "N/A" else int(number)
    return found
