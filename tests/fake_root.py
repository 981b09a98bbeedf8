"""A directory that stands for the root of a file system, with what a test puts into it."""

from collections.abc import Mapping
from pathlib import Path

LINK, FOLDER = "-> ", "folder"
"""What a content begins with that is a link, and what one is that is a directory."""


def fake_root(folder: Path, files: Mapping[str, str]) -> Path:
    """The directory, filled; a path gets its content, or is a link to what follows `LINK`."""
    root = folder / "root"
    root.mkdir()
    for name, content in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        if content.startswith(LINK):
            path.symlink_to(content.removeprefix(LINK))
        elif content == FOLDER:
            path.mkdir()
        else:
            path.write_text(content)
    return root


def gpu(number: int, driver: str | None = "nvidia") -> dict[str, str]:
    """An NVIDIA GPU on the PCI bus, at the address that the fake NVML gives it."""
    device = f"/sys/bus/pci/devices/0000:{0x17 + 0x10 * number:02x}:00.0"
    found = {f"{device}/vendor": "0x10de\n", f"{device}/class": "0x030200\n"}
    return found | ({f"{device}/driver": f"{LINK}../../drivers/{driver}"} if driver else {})


LOADED = {"/sys/module/nvidia/version": "550.54.14\n"}
DEVICES = {"/dev/nvidiactl": "", "/dev/nvidia0": "", "/dev/nvidia-uvm": ""}
DOCKER = {"/.dockerenv": ""}
NOUVEAU = {"/sys/module/nouveau/refcnt": "1", **gpu(0, "nouveau")}
LIBRARY = {
    "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1": f"{LINK}libnvidia-ml.so.580.95.05",
    "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05": "\x7fELF",
}
WSL = {"/proc/sys/kernel/osrelease": "5.15.153.1-microsoft-standard-WSL2\n", "/dev/dxg": ""}
WSL_LIBRARY = {"/usr/lib/wsl/lib/libnvidia-ml.so.1": "\x7fELF"}
KERNEL = {"/proc/sys/kernel/osrelease": "6.8.0-45-generic\n"}
NOT_BUILT = KERNEL | {"/lib/modules/6.8.0-45-generic/modules.dep": "kernel/fs/ext4/ext4.ko.zst:\n"}
BUILT = KERNEL | {
    "/lib/modules/6.8.0-45-generic/modules.dep": "updates/dkms/nvidia.ko.zst: kernel/x.ko\n"
}
REFUSED = {"/dev/nvidiactl": FOLDER}
"""It cannot be opened for writing, not by root either."""
