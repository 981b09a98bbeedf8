"""Places of tensors, all of which are really in the host's memory, and a device's free memory."""

from __future__ import annotations

from typing import Any

from .timeline import Machine, number_of

MIB, GIB = 1 << 20, 1 << 30
HOST, PINNED = "cpu", "pinned"


def device_of(place: str) -> int | None:
    """Return the number of the device, or None for the host's memory."""
    return None if place in (HOST, PINNED) else number_of(place, 0)


class Memory:
    """The storages that were made on a device or on the host.

    Results of calculations are not known, and count as results on the first device.
    """

    def __init__(self, machine: Machine) -> None:
        from torch.multiprocessing.reductions import StorageWeakRef

        self._machine = machine
        self.reference = StorageWeakRef
        self._places: dict[int, tuple[Any, str, int]] = {}
        self._at_most = dict.fromkeys(range(len(machine.devices)), 0)
        """Bytes of the tensors on each device, and of those that are gone since the last count."""
        self.total = int(machine.settings.memory_gib * GIB)
        self._context = int(machine.settings.context_mib * MIB)

    def place(self, tensor: Any) -> str:
        """Return `cpu`, `pinned`, or the name of a device."""
        found = self._places.get(tensor.untyped_storage().data_ptr())
        if found is None or found[0].expired():
            return "cuda:0"
        return found[1]

    def check(self, place: str, size: int = 0) -> None:
        """Raise if nothing can be made there, or not so many bytes."""
        machine = self._machine
        if place == PINNED:
            machine.need(machine.devices[machine.current_device])
            machine.faults.reach("pin")
        device = device_of(place)
        if device is None:
            return
        machine.need(machine.devices[device])
        machine.faults.reach("allocate", device=device)
        self._at_most[device] += size
        if self._at_most[device] + self._context <= self.total:
            return
        free = self.free(device)
        if size > free:
            message = f"CUDA out of memory. Tried to allocate {size} bytes, {free} are free."
            raise machine.torch.cuda.OutOfMemoryError(message)
        self._at_most[device] += size

    def put(self, tensor: Any, place: str) -> Any:
        """Note where a new tensor is, and return it; raise if there is no room for it."""
        storage = tensor.untyped_storage()
        self.check(place, storage.nbytes())
        if storage.nbytes():
            self._places[storage.data_ptr()] = self.reference(storage), place, storage.nbytes()
        return tensor

    def taken(self, device: int) -> int:
        taken = 0
        for address, (reference, place, size) in [*self._places.items()]:
            if reference.expired():
                del self._places[address]
            elif device_of(place) == device:
                taken += size
        self._at_most[device] = taken
        return taken

    def free(self, device: int) -> int:
        return max(0, self.total - self._context - self.taken(device))
