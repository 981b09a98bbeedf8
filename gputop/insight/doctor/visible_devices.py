"""What `CUDA_VISIBLE_DEVICES` leaves over, as CUDA reads it.

Source: https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables. The list
ends before the first name that is no device's; one that is named twice leaves none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gputop.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gputop.telemetry.snapshot import Device


class Visible(NamedTuple):
    """How many devices are left, and the first name that is wrong."""

    left: int
    wrong: str | None = None

    @property
    def hides_all(self) -> bool:
        """Whether no device is left."""
        return self.left == 0


def visible_devices(value: str | None, devices: Iterable[Device]) -> Visible:
    """What is left of the devices of an inventory; None is a variable that is not set."""
    devices = tuple(devices)
    gpus = [device for device in devices if device.parent_uuid is None]
    if value is None:
        return Visible(len(gpus))
    seen: set[str] = set()
    for name in value.split(",") if value.strip() else ():
        key = _key(name.strip(), gpus, devices)
        if key is None:
            return Visible(len(seen), visible(name.strip(), 60) or "an empty name")
        if key in seen:
            return Visible(0, f"{visible(name.strip(), 60)}, a second time,")
        seen.add(key)
    return Visible(len(seen))


def _key(name: str, gpus: list[Device], devices: tuple[Device, ...]) -> str | None:
    """What stands for the device of that name: CUDA has an order of its own, so no UUID."""
    if name.isdecimal():
        return str(int(name)) if int(name) < len(gpus) else None
    if not name.startswith(("GPU-", "MIG-")):
        return None
    found = [each.uuid for each in devices if each.uuid.lower().startswith(name.lower())]
    return found[0] if len(found) == 1 else None
