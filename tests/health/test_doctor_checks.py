from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gputop.agent.problem import Problem
from gputop.bench.run.worker_launch import Interpreter, InterpreterSearch
from gputop.health.doctor import BY_NAME, CHECKS, examine
from gputop.health.doctor.doctor_facts import DoctorFacts, TorchFacts
from gputop.health.findings import Finding, Severity
from gputop.health.judge import RULES
from gputop.health.rule_view import NO_INVENTORY, NO_SAMPLE
from gputop.schema.advice import fill_index
from tests.driver import (
    DRIVER_NOT_LOADED,
    GPU_IS_LOST,
    NO_PERMISSION,
    RESET_REQUIRED,
    UNKNOWN,
    VERSION_MISMATCH,
    FakeDevice,
    FakeDriver,
)
from tests.driver.platforms import gb10, orin
from tests.fake_root import (
    DOCKER,
    LIBRARY,
    LOADED,
    NOT_BUILT,
    NOUVEAU,
    REFUSED,
    WSL,
    WSL_LIBRARY,
    gpu,
)
from tests.health.machines import HEALTHY, HUNG, TERMINAL, TORCH, UPTIME, Machine, h100, has, lacks

pytestmark = pytest.mark.driver

OK, NOTE = Severity.OK, Severity.INFORMATION
WARNING, PROBLEM = Severity.WARNING, Severity.FAULT
NO_LIBRARY, TOO_OLD = 12, 13
THREE = (h100(), h100(), h100())


class Row(NamedTuple):
    check: str
    status: Severity
    finding: str
    remedy: str
    machine: Machine


def fails(code: int, root: dict[str, str]) -> Machine:
    return Machine(driver={"init_code": code}, root=root, torch=None)


def one(**changes: Any) -> Machine:
    return Machine(devices=(h100(**changes),))


def sees(value: str, **changes: Any) -> Machine:
    environment = {**TERMINAL, "CUDA_VISIBLE_DEVICES": value}
    return replace(Machine(devices=THREE, environment=environment), **changes)


def logged(code: int, seconds_ago: float = 60.0, address: str = "0000:17:00") -> Machine:
    at = int((UPTIME - seconds_ago) * 1e6)
    line = f"4,9,{at},-;NVRM: Xid (PCI:{address}): {code}, pid=7, name=python\n"
    return Machine(root={**HEALTHY, "/dev/kmsg": line})


def under(**environment: str) -> Machine:
    return Machine(environment={**TERMINAL, **environment})


def knows(torch: TorchFacts | None = TORCH, **changes: Any) -> Machine:
    return Machine(torch=torch, changes=changes)


def binds(**versions: str) -> Machine:
    return knows(bindings=versions)


def beside(files: dict[str, str]) -> Machine:
    return Machine(root={**HEALTHY, **files})


def limited(watts: int) -> Machine:
    return one(power_limit_enforced_milliwatts=1000 * watts)


def says(fault: str) -> TorchFacts:
    return replace(TORCH, device_count=0, fault=fault)


def without(root: dict[str, str], *names: str) -> dict[str, str]:
    return {path: content for path, content in root.items() if not path.startswith(names)}


TWO_XIDS = replace(
    logged(79),
    root={
        path: logged(79, 120.0).root[path] + content if path == "/dev/kmsg" else content
        for path, content in logged(31, 5.0).root.items()
    },
)
DANGLING = {"/usr/lib64/libnvidia-ml.so.1": "-> gone.so"}
BROKEN = Interpreter("/opt/old/bin/python", "on the PATH", fault="it does not answer")
HELPLESS = InterpreterSearch(None, (BROKEN,))
OLD_DRIVER = "The NVIDIA driver on your system is too old (found version 11040). Please update"
INSIDE = {**LOADED, **DOCKER}
MISMATCH = fails(VERSION_MISMATCH, {**LOADED, **LIBRARY})
UNREADABLE = fails(UNKNOWN, {**REFUSED, **DOCKER})
HANGS = replace(NO_INVENTORY, problem=HUNG)
BROKEN_TORCH = TorchFacts(failure="ImportError: libcudart.so.12: cannot open it")
OLDER_CUDA = Machine(driver={"cuda_version": 12_040})
TOO_OLD_CUDA = Machine(driver={"cuda_version": 11_040}, torch=says(OLD_DRIVER))
NO_DEVICE = replace(TORCH, device_count=0)
UNKNOWN_ERROR = Machine(torch=says("CUDA unknown error."))
BINDINGS = {"nvidia-ml-py": "13.580.82"}
TWO_BINDINGS = {**BINDINGS, "pynvml": "11.5.3"}
NO_TERMINAL = replace(under(TERM=""), changes={"on_terminal": False})
EXCLUSIVE = one(compute_mode=3)
VOLTA = one(compute_capability_major=7)
IDLE = {"gpu_utilization_percent": 0, "performance_state": 8, "pcie_generation": 1}

NO_WIDTH = {"nvmlDeviceGetCurrPcieLinkWidth": NO_PERMISSION}
UNLISTED = {"nvmlDeviceGetComputeRunningProcesses_v3": NO_PERMISSION}
SW_THERMAL = 0x20


TABLE = [
    # Driver
    Row("library", OK, "is loaded", "", Machine(root=without(HEALTHY, "/usr"))),
    Row("library", PROBLEM, "is not found", "Install the driver", fails(NO_LIBRARY, {})),
    Row("library", NOTE, "is not found", "", fails(NO_LIBRARY, NOUVEAU)),
    Row("library", PROBLEM, "links to gone.so", "Reinstall", fails(NO_LIBRARY, DANGLING)),
    Row("library", NOTE, "links to gone.so", "", fails(DRIVER_NOT_LOADED, DANGLING)),
    Row("module", OK, "the Windows driver", "", Machine(root={**WSL, **WSL_LIBRARY})),
    Row("module", PROBLEM, "not loaded", "modprobe", fails(DRIVER_NOT_LOADED, LIBRARY)),
    Row("module", PROBLEM, "not built for", "Reinstall", fails(DRIVER_NOT_LOADED, NOT_BUILT)),
    Row("module", NOTE, "not loaded", "", fails(NO_LIBRARY, {})),
    Row("versions", PROBLEM, "550.54.14, the library is 580.95.05", "Reboot", MISMATCH),
    Row("permission", PROBLEM, "/dev/nvidiactl: is a", "access", fails(NO_PERMISSION, REFUSED)),
    Row("permission", PROBLEM, "is missing", "modprobe", fails(DRIVER_NOT_LOADED, LOADED)),
    Row("permission", PROBLEM, "/dev/nvidiactl: is a directory", "Restart the", UNREADABLE),
    Row("permission", WARNING, "cannot be opened", "access", Machine(root=HEALTHY | REFUSED)),
    Row("nouveau", OK, "has no GPU", "", Machine(root={**HEALTHY, "/sys/module/nouveau/x": ""})),
    Row("nouveau", PROBLEM, "has the GPU", "Blacklist", fails(DRIVER_NOT_LOADED, NOUVEAU)),
    Row("nouveau", WARNING, "nouveau has 0000:27:00.0", "Blacklist", beside(gpu(1, "nouveau"))),
    Row("container", OK, "docker, with 1 GPU", "", Machine(root={**HEALTHY, **DOCKER})),
    Row("container", NOTE, "sees only GPUs passed to it", "", fails(NO_LIBRARY, DOCKER)),
    Row("container", PROBLEM, "the library is missing", "--gpus all", fails(NO_LIBRARY, INSIDE)),
    Row("wsl", OK, "the Windows driver", "", Machine(root={**WSL, **WSL_LIBRARY})),
    Row("wsl", WARNING, "hides the one in", "Remove", Machine(root={**WSL, **LIBRARY})),
    Row("wsl", NOTE, "the Windows driver", "", fails(UNKNOWN, {**WSL, **WSL_LIBRARY})),
    Row("nvml", PROBLEM, "Unknown Error (code 999)", "nvidia-smi", fails(UNKNOWN, HEALTHY)),
    Row("nvml", PROBLEM, "too old", "Upgrade", fails(TOO_OLD, HEALTHY)),
    Row("nvml", PROBLEM, "sent nothing within", "dmesg", knows(inventory=HANGS, sample=NO_SAMPLE)),
    Row("devices", OK, "3 GPUs", "", Machine(THREE)),
    Row("devices", PROBLEM, "is loaded and has none", "lspci", Machine((), root=LOADED)),
    Row("devices", WARNING, "on the PCI bus also 0000:27:00.0", "NVRM", beside(gpu(1))),
    Row("devices", OK, "1 GPU", "", Machine(root={**HEALTHY, **gpu(1, "vfio-pci")})),
    Row("devices", OK, "1 GPU", "", Machine(root={**HEALTHY, **gpu(1), **DOCKER})),
    # Devices
    Row("state", PROBLEM, "LOST", "dmesg", one(code=GPU_IS_LOST)),
    Row("state", PROBLEM, "NEEDS RESET", "--gpu-reset -i 0", one(code=RESET_REQUIRED)),
    Row("state", WARNING, "has not answered", "again", knows(sample=NO_SAMPLE)),
    Row("xid", PROBLEM, "Xid 79: the GPU has fallen off the bus, 1:00 ago", "reboot", logged(79)),
    Row("xid", NOTE, "Xid 31: a program touched memory", "program", logged(31)),
    Row("xid", OK, "none", "", logged(79, 90000.0)),
    Row("xid", OK, "none", "", logged(79, address="0000:27:00")),
    Row("xid", PROBLEM, "(double bit), just now", "reset", Machine(xids=(48,))),
    Row("xid", NOTE, "/dev/kmsg, no such file", "sudo", Machine(root=without(HEALTHY, "/dev/k"))),
    Row("xid", PROBLEM, "off the bus, 2:00 ago, and 1 more", "only a reboot", TWO_XIDS),
    Row("ecc", PROBLEM, "3 uncorrected", "replaced", one(**has(uncorrected=3))),
    Row("ecc", NOTE, "7 uncorrected in its life", "Watch", one(**has(lifetime=7))),
    Row("ecc", NOTE, "disabled", "-i 0 -e 1", one(ecc_mode=0)),
    Row("ecc", OK, "not supported", "", one(ecc_mode=None, **lacks(3, 4, 5, 6))),
    Row("recovery", PROBLEM, "needs a reset", "--gpu-reset -i 0", one(**has(recovery=1))),
    Row("unattributed", NOTE, "no permission", "", one(fail=UNLISTED)),
    Row("thermal", WARNING, "throttled by heat", "fans", one(clock_event_reasons=SW_THERMAL)),
    Row("thermal", OK, "not supported", "", one(clock_event_reasons=None)),
    Row("power_limit", WARNING, "500 W, below its default of 700 W", "-i 0 -pl 700", limited(500)),
    Row("power_limit", OK, "no problem", "", limited(696)),
    Row("persistence", NOTE, "off", "-i 0 -pm 1", one(persistence_mode=0)),
    Row("persistence", OK, "not supported", "", one(persistence_mode=None)),
    Row("compute_mode", PROBLEM, "prohibited", "-i 0 -c 0", one(compute_mode=2)),
    Row("compute_mode", NOTE, "one program at a time", "-i 0 -c 0", EXCLUSIVE),
    Row("link_degraded", WARNING, "gen 5 ×8 of gen 5 ×16 under load", "riser", one(pcie_width=8)),
    Row("link_degraded", NOTE, "little load, at gen 1 ×16 of gen 5 ×16", "again", one(**IDLE)),
    Row("link_degraded", OK, "not supported", "", one(pcie_width=None)),
    Row("link_degraded", NOTE, "no permission", "", one(fail=NO_WIDTH)),
    # CUDA and torch
    Row("torch", WARNING, "No Python with torch", "--python", Machine(torch=None)),
    Row("torch", WARNING, "was found", "--python PATH", knows(torch=None, found=HELPLESS)),
    Row("torch", PROBLEM, "ImportError: libcudart.so.12", "Reinstall", Machine(torch=BROKEN_TORCH)),
    Row("torch_build", OK, "no GPU", "", Machine((), torch=TorchFacts("2.9.0+cpu"))),
    Row("torch_build", PROBLEM, "without CUDA", "CUDA build", Machine(torch=TorchFacts("2.9"))),
    # of the same major version it goes
    Row("torch_cuda", OK, "the driver takes CUDA up to 12.4", "", OLDER_CUDA),
    Row("torch_cuda", PROBLEM, "takes CUDA up to 11.4", "a build for CUDA 11", TOO_OLD_CUDA),
    Row("torch_cuda", PROBLEM, "cannot use the GPUs: CUDA unknown", "nvidia-smi", UNKNOWN_ERROR),
    Row("torch_cuda", PROBLEM, "sees no device", "nvidia-smi", Machine(torch=NO_DEVICE)),
    Row("architecture", PROBLEM, "compute capability 7.0, only for", "Install", VOLTA),
    Row("visible_devices", OK, "2,0: 2 of 3 GPUs", "", sees("2,0")),
    Row("visible_devices", WARNING, "hides every GPU", "Unset", sees("")),
    Row("visible_devices", WARNING, "ends at '7'", "by UUID", sees("0,7,1")),
    Row("visible_devices", WARNING, "names '1' twice", "Unset", sees("0,1,1")),
    Row("visible_devices", NOTE, "there is no GPU", "", sees("0", devices=())),
    # gputop
    Row("version", OK, ", textual 8.0", "", knows(libraries={"textual": "8.0"})),
    Row("bindings", OK, "nvidia-ml-py 13.580.82", "", binds(**BINDINGS)),
    Row("bindings", NOTE, "used although pynvml 11.5.3 installs a", "", binds(**TWO_BINDINGS)),
    Row("installation", WARNING, "another project's", "pip uninstall", knows(other_gputop="0.3.1")),
    Row("terminal", OK, "true colour", "", under(COLORTERM="truecolor")),
    Row("terminal", OK, "without colours", "", under(NO_COLOR="1")),
    Row("terminal", WARNING, "TERM is dumb", "Set TERM", under(TERM="dumb")),
    Row("terminal", WARNING, "TERM is not set", "Set TERM", under(TERM="")),
    Row("terminal", NOTE, "TERM is not set", "Set TERM", NO_TERMINAL),
    Row("terminal", NOTE, "not known", "Set TERM", knows(colours=None)),
    Row("terminal", NOTE, "8 colours", "Set TERM", knows(colours=8)),
    Row("characters", OK, "locale C", "", under(LANG="C")),
    Row("characters", NOTE, "drawn in ASCII", "LC_ALL=C.UTF-8", under(LC_ALL="C")),
    Row("characters", NOTE, "de_DE.ISO-8859-1 is not UTF-8", "", under(LANG="de_DE.ISO-8859-1")),
    Row("characters", NOTE, "the Linux console", "--no-ascii", under(TERM="linux")),
]
NEVER_WRONG = {"version"}
"""It only says what it is."""


def named(row: Row) -> str:
    return f"{row.check}: {row.finding}"


def found_by(name: str, findings: tuple[Finding, ...]) -> list[Finding]:
    return [finding for finding in findings if finding.rule == name]


@pytest.mark.parametrize("row", TABLE, ids=named)
def test_a_check_finds_what_the_machine_has(row: Row, nvml: FakeDriver, tmp_path: Path) -> None:
    facts = row.machine.facts(nvml, tmp_path)
    findings = examine(facts)
    found = found_by(row.check, findings)
    for said in found:
        remedy = fill_index(
            said.remedy, [each for each in facts.gpus if each.uuid == said.device_uuid]
        )
        if said.severity is row.status and row.finding in said.title and row.remedy in remedy:
            break
    else:
        pytest.fail(f"found instead: {found}")
    assert said.title
    assert said.title.strip(" .") == said.title
    assert not remedy.endswith(".")
    assert bool(remedy) or said.severity in (OK, NOTE)
    assert said.severity is not OK or not remedy
    if row.status is PROBLEM:  # one cause has one finding
        others = [each.rule for each in findings if each.severity is PROBLEM]
        assert set(others) == {row.check}


def test_each_check_has_a_row_that_finds_something() -> None:
    rules = {rule.name for rule in RULES if not rule.needs_history and rule.name != "xid"}
    assert rules < BY_NAME.keys()
    seen = {row.check for row in TABLE if row.status is not OK}
    assert seen | rules == BY_NAME.keys() - NEVER_WRONG


def test_a_machine_that_is_well_has_no_other_finding(nvml: FakeDriver, tmp_path: Path) -> None:
    findings = examine(Machine().facts(nvml, tmp_path))
    assert {finding.severity for finding in findings} == {OK}
    assert {finding.rule for finding in findings} == {check.name for check in CHECKS}


def test_a_machine_that_has_nothing_can_be_examined() -> None:
    statuses = {finding.severity for finding in examine(DoctorFacts())}
    assert PROBLEM not in statuses


def test_a_problem_that_names_no_check_is_nvmls() -> None:
    for check in ("", "a later one"):
        facts = DoctorFacts(
            replace(NO_INVENTORY, problem=Problem("It stopped", "it ended", "Try again", check))
        )
        (finding,) = found_by("nvml", examine(facts))
        assert finding.severity is PROBLEM
        assert finding.title == "It stopped: it ended"


@pytest.mark.parametrize("platform", [gb10, orin])
def test_what_a_platform_does_not_support_is_no_problem(
    platform: Callable[[], FakeDevice], nvml: FakeDriver, tmp_path: Path
) -> None:
    facts = Machine((platform(),), torch=None).facts(nvml, tmp_path)
    groups = [finding for finding in examine(facts) if BY_NAME[finding.rule].group == "Devices"]
    assert groups
    assert [each for each in groups if each.severity is PROBLEM] == []


def test_a_selection_that_hides_all_is_why_torch_has_no_device(
    nvml: FakeDriver, tmp_path: Path
) -> None:
    torch = replace(TORCH, device_count=0, fault="No CUDA GPUs are available")
    findings = examine(sees("", torch=torch).facts(nvml, tmp_path))
    wrong = {each.rule for each in findings if each.severity in (WARNING, PROBLEM)}
    assert wrong == {"visible_devices"}
    assert found_by("torch_cuda", findings) == []
