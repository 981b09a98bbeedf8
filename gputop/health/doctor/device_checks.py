"""Checks of each GPU, and of its use by CUDA and torch.

A GPU that does not answer has only a finding about its state.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gputop.agent.device import Absence, Device, DeviceSample, DeviceState
from gputop.agent.linux.driver_files import same_address
from gputop.agent.snapshot import Event
from gputop.agent.visible_devices import VARIABLE, seen
from gputop.bench.run.worker_launch import GET_TORCH
from gputop.bench.worker.backends import runs_on
from gputop.health.conditions import (
    PROGRAM_XIDS,
    event_text,
    fault_of,
    gravest_xid,
)
from gputop.health.doctor.checks import (
    Check,
    CheckGroup,
    note,
    ok,
    problem,
    warning,
)
from gputop.health.judge import RULES, NoFinding, Rule, judge_moment
from gputop.health.rule_view import needed
from gputop.health.rules import hardware
from gputop.health.rules.hardware import link_text, lowered_limit
from gputop.health.thresholds import LOG_SECONDS
from gputop.schema.advice import shared_command
from gputop.schema.values import absence_text, enable_ecc, value_text
from gputop.text import duration, visible

if TYPE_CHECKING:
    from gputop.health.doctor.doctor_facts import DoctorFacts, TorchFacts
    from gputop.health.findings import Finding
    from gputop.health.rule_view import RuleView


def state(facts: DoctorFacts) -> Iterator[Finding]:
    """Check that each GPU answers."""
    for device in facts.gpus:
        readings = facts.sample.device(device.uuid)
        fault = fault_of(device, readings) if readings else None
        if fault is not None:
            yield problem(fault.what, fault.remedy, device)
        elif readings is None or readings.age_seconds is None:
            yield warning(
                "it has not answered yet", "Run `gputop doctor` again", device
            )
        else:
            yield ok("answers", device)


def xids(facts: DoctorFacts) -> Iterator[Finding]:
    """Check for Xid errors in the kernel log and among the events since the start."""
    log = facts.kernel_log
    for device in facts.gpus:
        found = [
            replace(event, time=0.0)
            for event in facts.sample.events
            if event.kind == "xid" and event.device_uuid == device.uuid
        ]
        for each in log.xids:
            is_its = same_address(each.address, device.pci_bus_id or "")
            if is_its and each.age_seconds < LOG_SECONDS:
                found.append(
                    Event(-each.age_seconds, device.uuid, "xid", each.code)
                )
        if found:
            yield _worst(device, found, facts.sample.device(device.uuid))
        elif log.refused is None:
            yield ok("none in the kernel's log of the last day", device)
    if log.refused is not None and facts.gpus:
        yield note(
            f"earlier ones are unknown: /dev/kmsg, {log.refused}",
            "Run `sudo gputop doctor`, or `sudo dmesg | grep Xid`",
        )


def _worst(
    device: Device, found: Sequence[Event], readings: DeviceSample | None
) -> Finding:
    """Return the finding about the gravest Xid. Times are in seconds before now."""
    event = gravest_xid(found)
    fault, age = event_text(event, device, readings), -event.time
    ago = "just now" if age < 1 else f"{duration(age)} ago"
    text = f"{fault.what}, {ago}"
    if len(found) > 1:
        text = f"{text}, and {len(found) - 1} more"
    made = note if event.code in PROGRAM_XIDS else problem
    return made(text, fault.remedy, device)


def ecc(view: RuleView) -> Finding | None:
    """Find memory errors, also those in the life of the device, and disabled ECC."""
    if view.device.ecc_enabled is False:
        text = "disabled: memory errors are not detected"
        return note(text, enable_ecc(view.device))
    found = hardware.ecc(view)
    past = view.sample.ecc_uncorrected_lifetime
    if found is None and past:
        return note(f"none now, {past} uncorrected in its life", "Watch it")
    return found


def link(view: RuleView) -> Finding | None:
    """Find a slow link, or one that cannot be judged without load."""
    found = hardware.link_degraded(view)
    if found is not None or view.device.memory_is_shared:
        return found
    now = view.reading("pcie_generation"), view.reading("pcie_width")
    most = view.reading("pcie_generation_max"), view.reading("pcie_width_max")
    if now[0] >= most[0] and now[1] >= most[1]:
        return None
    return note(
        f"not judged: little load, at {link_text(*now)} of {link_text(*most)}",
        "Run `gputop doctor` again while it computes",
    )


def power_limit(view: RuleView) -> Finding | None:
    """Find a lowered limit, even if it does not reduce the clocks now."""
    limit = view.reading("power_limit_watts")
    default = view.reading("power_limit_default_watts")
    lowered = lowered_limit(limit, default, view.device)
    return None if lowered is None else warning(*lowered)


def persistence(view: RuleView) -> Finding | None:
    """Find a driver that does not keep the device initialized while no program uses it."""
    if needed(view.device.persistence_mode, "persistence_mode") == "enabled":
        return None
    return note(
        "off: the first program each time waits for the device to start",
        f"{shared_command('-pm 1', view.device)}, or run nvidia-persistenced for all GPUs",
    )


def compute_mode(view: RuleView) -> Finding | None:
    """Find a device on which programs may not compute, or only one of them."""
    mode = needed(view.device.compute_mode, "compute_mode")
    remedy = f"{shared_command('-c 0', view.device)} lets all programs compute"
    if mode == "prohibited":
        return problem("prohibited: no program may compute on it", remedy)
    if mode != "default":
        text = value_text("compute_mode", mode)
        return note(f"{text}: one program at a time", remedy)
    return None


OWN_RULES = (
    Rule("ecc", "memory errors", ecc),
    Rule("link_degraded", "PCIe link", link),
    Rule("power_limit", "power limit", power_limit),
    Rule("persistence", "persistence", persistence),
    Rule("compute_mode", "compute mode", compute_mode),
)
"""Rules of doctor alone, which also report settings. They replace others of the same name."""
DEVICE_RULES = {rule.name: rule for rule in RULES if not rule.needs_history}
DEVICE_RULES |= {rule.name: rule for rule in OWN_RULES}


def _judged_by(rule: Rule) -> Callable[[DoctorFacts], Iterator[Finding]]:
    """Return the check of the devices that answer by a rule."""

    def judge(facts: DoctorFacts) -> Iterator[Finding]:
        judged = judge_moment(facts.inventory, facts.sample, [rule])
        verdicts = {each.device_uuid: each for each in judged.verdicts}
        for device in facts.gpus:
            readings = facts.sample.device(device.uuid)
            if readings is None or readings.state is not DeviceState.OK:
                continue
            verdict = verdicts[device.uuid]
            if isinstance(verdict, NoFinding):
                yield _nothing_found(verdict, device)
                continue
            title = verdict.line
            yield replace(
                verdict, title=title, label="", since=None, evidence=()
            )

    return judge


def _nothing_found(verdict: NoFinding, device: Device) -> Finding:
    """Return the finding for a missing reading, which is fine if the device does not support it."""
    if not verdict.missing:
        return ok("no problem", device)
    reason = verdict.absence or Absence.NOT_SUPPORTED
    text = absence_text(verdict.missing, reason, device)
    if reason is Absence.NOT_SUPPORTED:
        return ok(text, device)
    return note(f"not judged: {text}", device=device)


DEVICE_CHECKS = (
    Check("state", CheckGroup.DEVICES, "state", state),
    Check("xid", CheckGroup.DEVICES, "Xid errors", xids),
    *(
        Check(rule.name, CheckGroup.DEVICES, rule.title, _judged_by(rule))
        for rule in DEVICE_RULES.values()
        if rule.name != "xid"
    ),
)

_BUILD = (
    "Install a CUDA build of torch there, or name another Python with --python"
)
_BUILDS = f"{GET_TORCH} lists the builds"


def torch(facts: DoctorFacts) -> Iterator[Finding]:
    """Check the torch that stress tests use."""
    chosen, answer, missing = (
        facts.found.chosen,
        facts.torch,
        facts.found.problem,
    )
    if missing is not None:
        yield warning(
            f"{missing.what}: stress tests cannot run", missing.remedy
        )
    if chosen is None or answer is None:
        return
    where = visible(f"{chosen.path} ({chosen.origin})")
    if answer.failure is not None:
        why = visible(answer.failure).rstrip(".")
        yield problem(
            f"cannot be imported by {where}: {why}", "Reinstall it there"
        )
    else:
        yield ok(f"{visible(answer.version or '')} of {where}")


def build(facts: DoctorFacts) -> Iterator[Finding]:
    """Check that torch has CUDA support. Otherwise it computes on the CPU."""
    said = _imported(facts)
    if said is None:
        return
    if said.cuda_version:
        yield ok(f"built for CUDA {visible(said.cuda_version)}")
    elif facts.gpus:
        yield problem(
            f"torch {visible(said.version or '')} is built without CUDA",
            _BUILD,
        )
    else:
        yield ok("built without CUDA, and there is no GPU")


def cuda(facts: DoctorFacts) -> Iterator[Finding]:
    """Check that torch can use the driver."""
    said = _imported(facts)
    if (
        said is None
        or not said.cuda_version
        or not facts.gpus
        or _hides_all(facts)
    ):
        return
    newest = facts.inventory.cuda_version
    takes = f"the driver takes CUDA up to {visible(newest or '?')}"
    if said.fault is None and said.device_count:
        yield ok(f"{said.device_count} of {len(facts.gpus)} GPUs; {takes}")
    elif newest and _major(said.cuda_version) > _major(newest):
        yield problem(
            f"built for CUDA {visible(said.cuda_version)}, {takes}",
            f"Update the driver, or install a build for CUDA {_major(newest)}; {_BUILDS}",
        )
    else:
        why = visible(said.fault or "it sees no device").rstrip(".")
        yield problem(
            f"torch cannot use the GPUs: {why}",
            f"Run nvidia-smi; {takes}",
        )


def architecture(facts: DoctorFacts) -> Iterator[Finding]:
    """Check that this build of torch has code for each device."""
    said = _imported(facts)
    if said is None or not said.architectures:
        return
    for device in facts.gpus:
        capability = device.compute_capability
        if capability is None:
            continue
        major, _, minor = capability.partition(".")
        if runs_on(list(said.architectures), (int(major), int(minor))):
            yield ok(
                f"it has code for compute capability {capability}", device
            )
        else:
            built = visible(" ".join(said.architectures))
            yield problem(
                f"it has no code for compute capability {capability}, only for {built}",
                f"Install a build that has; {_BUILDS}",
                device,
            )


def selection(facts: DoctorFacts) -> Iterator[Finding]:
    """Check which GPUs are in CUDA_VISIBLE_DEVICES."""
    value = facts.environment.get(VARIABLE)
    if value is None:
        yield ok("not set: CUDA programs see every GPU")
        return
    shown = f"{VARIABLE}={visible(value)}"
    if not facts.gpus:
        yield note(f"{shown}, and there is no GPU")
        return
    try:
        allowed = seen(facts.inventory.devices, facts.environment)
    except ValueError as error:
        why, _, remedy = str(error).rpartition(". ")
        yield warning(why, remedy)
        return
    gpus = sum(gpu.uuid in allowed.uuids for gpu in facts.gpus)
    if not allowed.uuids:
        text = f"{shown} hides every GPU"
        if allowed.note:
            text = f"{text}: it {allowed.note.removeprefix(VARIABLE).strip()}"
        yield warning(text, "Unset it, or name a GPU in it")
    elif allowed.note is not None:
        yield warning(
            f"{allowed.note}, and what follows is ignored",
            "Name GPUs by index or by UUID, as `gputop status --json` has them",
        )
    elif not gpus:
        yield ok(f"{shown}: a MIG instance")
    else:
        yield ok(f"{shown}: {gpus} of {len(facts.gpus)} GPUs")


def _imported(facts: DoctorFacts) -> TorchFacts | None:
    if facts.torch is None or facts.torch.failure is not None:
        return None
    return facts.torch


def _hides_all(facts: DoctorFacts) -> bool:
    with contextlib.suppress(ValueError):
        return not seen(facts.inventory.devices, facts.environment).uuids
    return False


def _major(version: str) -> int:
    digits = version.partition(".")[0]
    return int(digits) if digits.isdecimal() else 0


TORCH_CHECKS = (
    Check("torch", CheckGroup.TORCH, "torch", torch),
    Check("torch_build", CheckGroup.TORCH, "build", build),
    Check("torch_cuda", CheckGroup.TORCH, "CUDA", cuda),
    Check("architecture", CheckGroup.TORCH, "architecture", architecture),
    Check("visible_devices", CheckGroup.TORCH, "visible GPUs", selection),
)
