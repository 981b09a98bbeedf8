"""The devices that `--id` and `--only-visible` choose.

Only indices are known before a device answers. Other ids need all devices to be identified, and a
hung device is never identified.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from gputop.agent.device import Device
from gputop.agent.linux.driver_files import same_address
from gputop.agent.problem import Problem, ProblemError
from gputop.agent.text import fold_list, visible
from gputop.agent.visible_devices import VARIABLE, is_identified, seen

_NUMBER = r"[0-9]{1,4}(?::[0-9]{1,4})?"
_UUID = r"(?:GPU|MIG)-[0-9a-f-]+"
_ADDRESS = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?|[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
_LIST = "`gputop status -L` lists"


def parse_ids(text: str) -> tuple[str, ...]:
    """Parse the value of `--id`: indices, PCI addresses or starts of UUIDs. Raises `ValueError`."""
    ids = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for each in ids:
        if not re.fullmatch(
            f"{_NUMBER}|{_UUID}|{_ADDRESS}", each, re.IGNORECASE
        ):
            raise ValueError(
                f"{text!r} is not a list of GPUs. Give indices, PCI addresses or the start of "
                "UUIDs, such as 0,2 or GPU-4f2a; `gputop status -L` lists them."
            )
    return ids


def is_address(wanted: str) -> bool:
    """Return True if the text is a PCI address, not a number or a UUID."""
    return re.fullmatch(_ADDRESS, wanted, re.IGNORECASE) is not None


def has_id(device: Device, wanted: str) -> bool:
    """Return True if this is the device's number, its PCI address or the start of its UUID."""
    if is_address(wanted):
        address = (device.pci_bus_id or "").lower()
        # `lspci` leaves out the domain.
        ends = address.endswith(f":{wanted.lower()}")
        return device.parent_uuid is None and (
            ends or same_address(wanted, address)
        )
    if wanted == device.number:
        return True
    return device.uuid.lower().startswith(wanted.lower())


Chosen = dict[str, Optional[frozenset[str]]]
"""UUIDs of the chosen GPUs, each with those of its chosen MIG instances, or None for all."""


@dataclass(frozen=True)
class Selection:
    """The GPUs and MIG instances that `--id` and `--only-visible` choose."""

    ids: tuple[str, ...] = ()
    """Ids that `parse_ids` accepts. Without any, all GPUs are chosen."""
    only_visible: bool = False
    """True to choose only among the devices that CUDA_VISIBLE_DEVICES leaves visible."""

    @property
    def needs_identities(self) -> bool:
        """False if indices are enough, which are known without an answer from the devices."""
        by_variable = self.only_visible and VARIABLE in os.environ
        return by_variable or not all(map(str.isdecimal, self.ids))

    def is_decided(self, devices: Sequence[Device]) -> bool:
        """Return True if devices that are not identified yet cannot change the choice.

        The start of a UUID may match another device, too.
        """
        if self.only_visible:
            return False
        known = {device.uuid.lower() for device in devices}
        named = [each.lower() for each in self.ids if not each.isdecimal()]
        return known.issuperset(named)

    def among(self, devices: Sequence[Device]) -> Chosen:
        """Return the chosen devices among all GPUs and MIG instances of this machine.

        Raises `ProblemError` for an id without a device, for ambiguous numbers, and if no device is
        chosen.
        """
        left = self._visible(devices)
        if self.ids:
            named = {device_with(each, devices).uuid for each in self.ids}
            left &= _with_instances(devices, named)
        if not left:
            what = f"{VARIABLE}={visible(os.environ[VARIABLE], 80)} hides {', '.join(self.ids)}"
            remedy = "Choose another GPU, or leave out --only-visible"
            raise ProblemError(Problem("No GPU was chosen", what, remedy))
        chosen: Chosen = {}
        for device in devices:
            parent = device.parent_uuid
            if device.uuid in left and parent is None:
                chosen[device.uuid] = None
            elif (
                device.uuid in left
                and parent is not None
                and parent not in left
            ):
                chosen[parent] = (chosen.get(parent) or frozenset()) | {
                    device.uuid
                }
        return chosen

    def _visible(self, devices: Sequence[Device]) -> frozenset[str]:
        if not self.only_visible:
            return frozenset(device.uuid for device in devices)
        try:
            left, note = seen(devices)
        except ValueError as error:
            why, _, remedy = str(error).rpartition(". ")
            raise ProblemError(
                Problem("No GPU was chosen", why, remedy)
            ) from None
        if not left:
            why = note or f"{VARIABLE} is empty, which hides all GPUs"
            raise ProblemError(
                Problem("No GPU was chosen", why, f"{_LIST} the GPUs")
            )
        return left


def _with_instances(
    devices: Sequence[Device], named: set[str]
) -> frozenset[str]:
    """Return the named devices; a GPU includes its MIG instances."""
    return frozenset(
        d.uuid for d in devices if d.uuid in named or d.parent_uuid in named
    )


def device_with(wanted: str, devices: Sequence[Device]) -> Device:
    """Return the one device with that id. Raises `ProblemError` if there is none or several."""
    found = [device for device in devices if has_id(device, wanted)]
    if len(found) == 1:
        return found[0]
    if found:
        which = fold_list(
            [f"GPU {each.number} ({each.uuid})" for each in found], 4
        )
        raise ProblemError(
            Problem(
                f"{wanted} is ambiguous",
                f"it matches {which}",
                "Give more of it",
            )
        )
    raise ProblemError(_no_device_with(wanted, devices))


def _no_device_with(wanted: str, devices: Sequence[Device]) -> Problem:
    gpus = [device for device in devices if device.parent_uuid is None]
    silent = [gpu for gpu in gpus if not is_identified(gpu)]
    what, remedy = f"No device has the UUID {wanted}", f"{_LIST} the devices"
    why = f"this machine has GPU {fold_list([gpu.number for gpu in gpus], 8)}"
    if wanted.isdecimal():
        return Problem(f"There is no GPU {wanted}", why, remedy)
    if is_address(wanted):
        what = f"No GPU has the PCI address {wanted}"
        addresses = [gpu.pci_bus_id or "an unknown one" for gpu in gpus]
        why = f"they have {fold_list(addresses, 8)}"
    elif wanted[0].isdecimal():
        what = f"There is no MIG instance {wanted}"
    if silent:
        numbers = fold_list([gpu.number for gpu in silent], 8)
        why += f", and there is no answer from GPU {numbers}"
        remedy = f"A GPU that does not answer can be chosen by its index, such as {silent[0].index}"
    return Problem(what, why, remedy)
