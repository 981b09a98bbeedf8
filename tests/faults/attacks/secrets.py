"""Secrets in environments and command lines, which nothing may show, record, send or export."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

from tests.driver import FakeDevice
from tests.faults.attacks.attack import Attack, Kind, Scene
from tests.faults.attacks.servers import exchanged, get

HIDDEN = "h1dd3nv4lu3"
"""In every secret; it must be nowhere."""
JWT = f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIi{HIDDEN}In0.c2lnbmF0dXJl{HIDDEN}"
PROBES = {
    "MYSQL_PWD": HIDDEN,
    "PGPASSWORD": HIDDEN,
    "GITHUB_PAT": HIDDEN,
    "AUTH": HIDDEN,
    "BASIC_AUTH": f"ada:{HIDDEN}",
    "HTTP_AUTHORIZATION": f"Bearer {HIDDEN}{HIDDEN}",
    "AWS_SECRET_ACCESS_KEY": HIDDEN * 3,
    "WANDB_API_KEY": HIDDEN * 3,
    "HF_TOKEN": HIDDEN,
    "SENTRY_DSN": f"https://{HIDDEN}{HIDDEN}@sentry.io/1",
    "DATABASE_URL": f"postgres://ada:{HIDDEN}@db/x",
    "REDIS_URL": f"redis://:{HIDDEN}@cache:6379/0",
    "AZURE_STORAGE": f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={HIDDEN}==",
    "SERVICE_BUS": f"Endpoint=sb://a/;SharedAccessKeyName=b;SharedAccessKey={HIDDEN}=",
    "ODBC": f"Server=a;Uid=b;Pwd={HIDDEN};",
    "OPTIONS": f"user=ada password={HIDDEN} host=db",
    "BLOB": f"https://a.blob.core.windows.net/c?sv=2024&sig={HIDDEN}",
    "HEADER": f"Authorization: Bearer {HIDDEN}",
    "CURL": f"-H 'X-Api-Key: {HIDDEN}'",
    "OPENAI": f"sk-proj-{HIDDEN}{HIDDEN}",
    "GH": f"ghp_{HIDDEN}{HIDDEN}{HIDDEN}",
    "LAB": f"glpat-{HIDDEN}{HIDDEN}",
    "SLACK": f"xoxb-123456-{HIDDEN}",
    "SESSION": JWT,
    "HTTP_COOKIE": f"session={HIDDEN}",
    "SLACK_WEBHOOK": f"https://hooks.slack.com/services/T0/B0/{HIDDEN}",
    "DISCORD": f"https://discord.com/api/webhooks/1/{HIDDEN}",
    "SSH_PRIVATE": f"-----BEGIN OPENSSH PRIVATE KEY-----\n{HIDDEN}\n-----END",
    "GPG_PASSPHRASE": HIDDEN,
    "MY_CREDENTIALS": HIDDEN,
    "SIGNATURE": HIDDEN,
    "npm_config__authToken": f"npm_{HIDDEN}{HIDDEN}",
}
SHOWN = {"PWD": "/srv/work", "OLDPWD": "/srv", "TOKENIZERS_PARALLELISM": "false"}
WORDS = (
    "--epochs=3",
    *(f"--token={HIDDEN}", "--api-key", HIDDEN, f"--password={HIDDEN}", f"PASSWORD={HIDDEN}"),
    *("--header", f"Authorization: Bearer {HIDDEN}", "-u", f"ada:{HIDDEN}"),
    *(f"postgres://ada:{HIDDEN}@db/x", f"--hub_token={HIDDEN}", f"ghp_{HIDDEN}{HIDDEN}{HIDDEN}"),
    *(f"--wandb-key={HIDDEN}", "--secret", HIDDEN),
)


def environment(scene: Scene) -> list[str]:
    """A process with all of them in its environment."""
    child = scene.child("sh", "-c", "read line", environment={**PROBES, **SHOWN})
    scene.driver(FakeDevice(processes=(child,)))
    return []


def looked_at(scene: Scene) -> None:
    """Open the environment of the process, and read all of it."""
    assert scene.terminal is not None
    scene.send("3")
    scene.terminal.wait_for(lambda t: "read line" in t.text)
    scene.send("e")
    scene.terminal.wait_for("OLDPWD")
    scene.said += scene.terminal.text
    for name in PROBES:
        assert f"{name}" in scene.terminal.text, name
    scene.terminal.send("\x1b")
    scene.terminal.wait_for(lambda t: "OLDPWD" not in t.text)


def commands(*arguments: str) -> Callable[[Scene], list[str]]:
    """A process with all of them in its command line."""

    def prepare(scene: Scene) -> list[str]:
        child = scene.child("sh", "-c", "read line", *WORDS)
        scene.driver(FakeDevice(processes=(child,)))
        return [word.replace("FILE", str(scene.folder / "recording.jsonl")) for word in arguments]

    return prepare


def clean(scene: Scene) -> bool:
    """The recording has a secret"""
    text = Path(scene.folder, "recording.jsonl").read_text()
    return "epochs" in text and re.search(HIDDEN, text) is None


def scraped(scene: Scene) -> None:
    """Ask until the processes are there."""
    deadline = time.monotonic() + 10
    while (
        "gputop_process_" not in (answer := exchanged(scene, get(), 5.0))
        and time.monotonic() < deadline
    ):
        time.sleep(0.1)
    scene.said += answer


ATTACKS = (
    Attack(
        name=f"{len(PROBES)} secrets in an environment, looked at with e",
        prepare=environment,
        kind=Kind.DASHBOARD,
        act=looked_at,
        says="/srv/work",
        never=HIDDEN,
        size=(150, 60),
    ),
    Attack(
        name="tokens in a command line: the dashboard",
        prepare=commands(),
        kind=Kind.DASHBOARD,
        act=lambda scene: scene.send("3"),
        says="epochs",
        never=HIDDEN,
        size=(500, 30),
    ),
    *(
        Attack(
            name=f"tokens in a command line: {' '.join(arguments)}",
            prepare=commands(*arguments),
            says="epochs",
            never=HIDDEN,
        )
        for arguments in (
            ("status", "--processes"),
            ("status", "--json"),
            ("stream", "--count", "2"),
        )
    ),
    Attack(
        name="tokens in a command line: stream --output",
        prepare=commands("stream", "--count", "2", "--output", "FILE"),
        says="",
        after=clean,
    ),
    Attack(
        name="tokens in a command line: exporter --processes",
        prepare=commands("exporter", "--processes", "--listen", "127.0.0.1:0"),
        kind=Kind.SERVICE,
        act=scraped,
        says="gputop_process_",
        never=HIDDEN,
    ),
)
