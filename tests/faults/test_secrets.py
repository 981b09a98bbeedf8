import gzip
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputop.agent.masking import MASK
from tests.driver import FakeDriver
from tests.e2e.shipped import ENTER, dashboard, device, held_by, run, see

pytestmark = pytest.mark.driver

WORDS = ["--token=abc-123", "--password", "two words"]
MASKED = f"--token={MASK} --password {MASK}"
VARIABLE = "0123-key"
SECRETS = ("abc-123", "two words", VARIABLE)
ENVIRONMENT = {
    "WANDB_API_KEY": VARIABLE,
    "RANK": "1",
    "WORLD_SIZE": "2",
    "MASTER_ADDR": "n",
    "MASTER_PORT": "29500",
}


@pytest.fixture(autouse=True)
def _trainer(driver: FakeDriver) -> Iterator[None]:
    with subprocess.Popen(
        [sys.executable, "-S", "-c", "print(flush=True); input()", *WORDS],
        env={**os.environ, **ENVIRONMENT},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()  # before it has begun, its command line is empty
        driver.write(device(0, processes=held_by({"trainer": process})))
        yield
        process.kill()


@pytest.mark.parametrize("option", [(), ("--show-secrets",)], ids=["masked", "shown"])
def test_secrets_are_on_the_screen_alone_and_only_where_asked(
    driver: FakeDriver, tmp_path: Path, option: tuple[str, ...]
) -> None:
    file = tmp_path / "kept.jsonl.gz"
    arguments = ["--interval", "0.25", "--record", str(file), *option]
    with dashboard(*arguments, env=driver.environment(), columns=200) as terminal:
        see(terminal, "--token=abc-123 --password two words" if option else MASKED)
        terminal.send("3")
        see(terminal, "--token=")
        terminal.send("e")
        see(terminal, "/ filters · v shows or masks secrets")
        terminal.send("/WANDB" + ENTER)
        see(terminal, f"WANDB_API_KEY={VARIABLE if option else MASK}")
        terminal.send("\x03")
        assert terminal.wait() == 0
    content = gzip.decompress(file.read_bytes()).decode()
    assert MASKED in content
    assert not any(secret in content for secret in SECRETS)


@pytest.mark.parametrize(
    "command", [("status", "--json"), ("stream", "--unmasked", "--count", "1")], ids=" ".join
)
def test_what_is_printed_is_masked(driver: FakeDriver, command: tuple[str, ...]) -> None:
    printed = run(*command, env=driver.environment()).stdout
    assert MASKED in printed
    assert '"n:29500"' in printed
    assert not any(secret in printed for secret in SECRETS)
