"""Checks as pure functions over facts, and the checks of the driver and of gputop itself.

If the driver cannot be used, the check named in `facts.inventory.problem` reports it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from gputop import DISTRIBUTION, FROM_CHECKOUT, __version__
from gputop.agent.linux.driver_files import LIBRARY, WSL_FOLDER
from gputop.agent.nvml.diagnosis import BINDINGS, ask_for, other_bindings
from gputop.console import ascii_is_safer, locale_of, without_colours
from gputop.health.conditions import UNLISTED_REMEDY
from gputop.health.findings import Finding, Severity
from gputop.text import count, fold_list, visible

if TYPE_CHECKING:
    from gputop.agent.device import Device
    from gputop.health.doctor.doctor_facts import DoctorFacts


class CheckGroup(StrEnum):
    """Section of the page, in order."""

    DRIVER = "Driver"
    DEVICES = "Devices"
    TORCH = "CUDA and torch"
    GPUTOP = "gputop"


class Check(NamedTuple):
    """A check: `name` is for programs, `title` for people."""

    name: str
    group: CheckGroup
    title: str
    judge: Callable[[DoctorFacts], Iterable[Finding]]


def _made(
    severity: Severity,
    text: str,
    remedy: str = "",
    device: Device | None = None,
) -> Finding:
    uuid = "" if device is None else device.uuid
    return Finding(
        severity,
        text,
        remedy=remedy,
        device_uuid=uuid,
    )


note = partial(_made, Severity.INFORMATION)
"""Make a finding that is useful to know, or that says why a check was not possible."""
warning = partial(_made, Severity.WARNING)
"""Make a finding that costs speed or comfort, or may soon become a problem."""
problem = partial(_made, Severity.FAULT)
"""Make a finding for something that does not work or cannot be trusted."""


def ok(text: str, device: Device | None = None) -> Finding:
    """Return a finding that nothing is wrong."""
    return _made(Severity.OK, text, device=device)


_TERM = "Set TERM to your terminal's type, such as xterm-256color"


def library(facts: DoctorFacts) -> Iterator[Finding]:
    """Check the library of NVML."""
    system = facts.system
    if system.library:
        yield ok(system.library)
    elif facts.driver_answers:
        yield ok(f"{LIBRARY} is loaded")
    elif system.broken_library:
        yield note(" ".join(system.broken_library))
    else:
        yield note(f"{LIBRARY} is not found")


def module(facts: DoctorFacts) -> Iterator[Finding]:
    """Check the kernel module of the driver."""
    if facts.system.module_version:
        yield ok(f"{facts.system.module_version}, loaded")
    elif facts.driver_answers:
        yield ok("the Windows driver" if facts.system.wsl else "loaded")
    elif not facts.system.wsl:
        yield note("not loaded")


def versions(facts: DoctorFacts) -> Iterator[Finding]:
    """Check that library and kernel module have the same version."""
    if facts.driver_answers:
        yield ok(
            f"library and kernel module agree: {facts.inventory.driver_version or 'no version'}"
        )


def permission(facts: DoctorFacts) -> Iterator[Finding]:
    """Check the permissions of the device files."""
    files, refusals = facts.system.device_files, facts.system.refusals
    if not files:
        return
    if not refusals:
        yield ok(f"{len(files)} device files, all can be opened")
        return
    named = fold_list([f"{each.file} ({each.why})" for each in refusals])
    yield warning(f"cannot be opened: {named}", ask_for(refusals[0]))


def nouveau(facts: DoctorFacts) -> Iterator[Finding]:
    """Check that nouveau, the kernel's own driver, controls no GPU that NVIDIA's driver needs."""
    held = facts.system.held_by("nouveau")
    if held:
        yield warning(
            f"nouveau has {', '.join(held)}",
            "Blacklist nouveau and reboot, or accept that gputop can't use this GPU",
        )
    elif facts.system.nouveau:
        yield ok("loaded, and has no GPU")
    else:
        yield ok("not loaded")


def container(facts: DoctorFacts) -> Iterator[Finding]:
    """Report a container and the GPUs that are passed to it."""
    kind = facts.system.container
    if kind is None:
        yield ok("none")
    elif facts.driver_answers:
        yield ok(f"{kind}, with {count(len(facts.gpus), 'GPU')}")
    else:
        yield note(f"{kind}: sees only GPUs passed to it")


def wsl(facts: DoctorFacts) -> Iterator[Finding]:
    """Check the Windows Subsystem for Linux, which uses the Windows driver."""
    system = facts.system
    if not system.wsl:
        yield ok("no")
    elif not facts.driver_answers:
        yield note("uses the Windows driver")
    elif system.library and not system.library.startswith(WSL_FOLDER):
        yield warning(
            f"{system.library} hides the one in {WSL_FOLDER}",
            "Remove the Linux driver from this WSL: the Windows driver is used",
        )
    else:
        yield ok("the Windows driver, without readings per process")


def nvml(facts: DoctorFacts) -> Iterator[Finding]:
    """Check that the driver answers."""
    if facts.driver_answers:
        yield ok(
            f"answers; CUDA up to {facts.inventory.cuda_version or 'an unknown version'}"
        )


def devices(facts: DoctorFacts) -> Iterator[Finding]:
    """Compare the GPUs on the PCI bus with the driver's list."""
    if not facts.driver_answers:
        return
    missing = facts.inventory.unlisted_gpus
    if missing:
        yield warning(
            f"{count(len(facts.gpus), 'GPU')}; on the PCI bus also {', '.join(missing)}",
            UNLISTED_REMEDY,
        )
    else:
        yield ok(count(len(facts.gpus), "GPU"))


DRIVER_CHECKS = (
    Check("library", CheckGroup.DRIVER, "NVML library", library),
    Check("module", CheckGroup.DRIVER, "kernel module", module),
    Check("versions", CheckGroup.DRIVER, "versions", versions),
    Check("permission", CheckGroup.DRIVER, "permission", permission),
    Check("nouveau", CheckGroup.DRIVER, "nouveau", nouveau),
    Check("container", CheckGroup.DRIVER, "container", container),
    Check("wsl", CheckGroup.DRIVER, "WSL", wsl),
    Check("nvml", CheckGroup.DRIVER, "NVML", nvml),
    Check("devices", CheckGroup.DRIVER, "devices", devices),
)


def version(facts: DoctorFacts) -> Iterator[Finding]:
    """Report the versions to name in a bug report."""
    texts = [f"gputop {__version__}", f"Python {facts.python_version}"]
    for name, found in facts.libraries.items():
        texts.append(f"{name} {found}")
    yield ok(", ".join(texts))


def bindings(facts: DoctorFacts) -> Iterator[Finding]:
    """Check which nvidia-ml-py is installed, and whether another package has its module, too."""
    installed = (
        f"{BINDINGS} {facts.bindings.get(BINDINGS, 'of unknown version')}"
    )
    if other := other_bindings(facts.bindings):
        yield note(f"{installed}, used although {other} installs a pynvml too")
    else:
        yield ok(installed)


def installation(facts: DoctorFacts) -> Iterator[Finding]:
    """Check for another distribution that overwrites the same files."""
    if facts.other_gputop is None:
        yield ok(f"as {DISTRIBUTION}")
        return
    yield warning(
        f"another project's gputop {facts.other_gputop} is installed too, and shares its files",
        f"`pip uninstall gputop {DISTRIBUTION}`, then {FROM_CHECKOUT}",
    )


def terminal(facts: DoctorFacts) -> Iterator[Finding]:
    """Check that the terminal can show the dashboard, and its number of colours."""
    name = visible(facts.environment.get("TERM", ""))
    if name in ("", "dumb"):
        made = warning if facts.on_terminal else note
        yield made(
            f"TERM is {name or 'not set'}: the dashboard cannot be drawn",
            _TERM,
        )
    elif without_colours(facts.environment):
        yield ok(f"{name}, without colours (NO_COLOR)")
    elif facts.environment.get("COLORTERM", "").lower() in (
        "truecolor",
        "24bit",
    ):
        yield ok(f"{name}, true colour")
    elif facts.colours is None:
        yield note(
            f"{name} is not known to terminfo: its colours are guessed", _TERM
        )
    elif facts.colours < 256 and name != "linux":
        yield note(f"{name}, {facts.colours} colours", _TERM)
    else:
        yield ok(f"{name}, {facts.colours} colours")


def characters(facts: DoctorFacts) -> Iterator[Finding]:
    """Check that charts can use more characters than ASCII."""
    locale = visible(locale_of(facts.environment))
    if not ascii_is_safer(facts.environment):
        yield ok(f"locale {locale or 'not set'}, drawn in UTF-8")
    elif facts.environment.get("TERM") == "linux":
        yield note(
            "drawn in ASCII: the Linux console has few glyphs",
            "Try `gputop --no-ascii`",
        )
    else:
        yield note(
            f"drawn in ASCII: the locale {locale} is not UTF-8",
            "Set a UTF-8 locale such as LC_ALL=C.UTF-8, if the terminal has it",
        )


GPUTOP_CHECKS = (
    Check("version", CheckGroup.GPUTOP, "version", version),
    Check("bindings", CheckGroup.GPUTOP, "NVML bindings", bindings),
    Check("installation", CheckGroup.GPUTOP, "installation", installation),
    Check("terminal", CheckGroup.GPUTOP, "terminal", terminal),
    Check("characters", CheckGroup.GPUTOP, "characters", characters),
)
