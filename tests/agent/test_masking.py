import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.agent.masking import MASK, is_secret, masked_arguments, masked_text

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"
GITHUB = "ghp_" + "a1B2" * 9
OPENAI = "sk-proj-" + "a1B2" * 6


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GITHUB_TOKEN", "x"),
        ("aws_secret_access_key", "x"),
        ("PGPASSWORD", "x"),
        ("WANDB_API_KEY", "x"),
        ("AUTH", "x"),
        ("SESSION_COOKIE", "x"),
        ("SLACK_WEBHOOK", "https://hooks.slack.com/services/T0/B0/abc"),
        ("NOTIFY", "https://hooks.slack.com/services/T0/B0/abc"),
        ("SENTRY_DSN", "https://0123456789abcdef0123456789abcdef@o1.ingest.sentry.io/1"),
        ("DATABASE_URL", "postgres://ada:pw@db/runs"),
        ("DB", "Server=db;Database=runs;User Id=ada;Password=hunter2;"),
        ("DATA", "https://a.blob.core.windows.net/d?sv=2024&sig=abc%2Fdef"),
        ("ARGS", "--password=hunter2"),
        ("HEADER", "Authorization: Bearer abcdefghij"),
        ("OPENAI", OPENAI),
        ("GH", GITHUB),
        ("HUB", "hf_" + "aB" * 17),
        ("AWS_ID", "AKIAIOSFODNN7EXAMPLE"),
        ("PEM", "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----"),
        ("npm_config__authToken", "x"),
    ],
)
def test_a_secret(name: str, value: str) -> None:
    assert is_secret(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PWD", "/home/ada"),
        ("SSH_AUTH_SOCK", "/run/user/1000/ssh"),
        ("XAUTHORITY", "/home/ada/.Xauthority"),
        ("DATABASE_URL", "postgres://db/runs"),
        ("PATH", "/usr/bin:/usr/lib/passwd"),
        ("TOKENIZERS_PARALLELISM", "false"),
        ("HTTPS_PROXY", "http://proxy:3128"),
        ("COMPASS_MODE", "north"),
        ("GITHUB_TOKEN", ""),
        ("CUDA_VISIBLE_DEVICES", "GPU-8f2c2c2e-5b7a-4a7b-9d43-2f6f0a9f5c11"),
    ],
)
def test_no_secret(name: str, value: str) -> None:
    assert not is_secret(name, value)


@pytest.mark.parametrize(
    ("command", "masked"),
    [
        ("train --token=abc -x", f"train --token={MASK} -x"),
        ("train --api-key abc -x", f"train --api-key {MASK} -x"),
        ("train --max-tokens 4096", "train --max-tokens 4096"),
        ("train --tokenizer llama", "train --tokenizer llama"),
        ("train --hfToken abc", f"train --hfToken {MASK}"),
        ("env WANDB_API_KEY=abc python a.py", f"env WANDB_API_KEY={MASK} python a.py"),
        ("curl -u ada:pw https://x", f"curl -u ada:{MASK} https://x"),
        ("docker run -u 1000:1000 x", "docker run -u 1000:1000 x"),
        ("psql postgres://ada:pw@db/runs", f"psql postgres://ada:{MASK}@db/runs"),
        (f"serve {GITHUB} {OPENAI} {JWT}", f"serve {MASK} {MASK} {MASK}"),
        ("get https://x/?a=1&sig=abc&b=2", f"get https://x/?a=1&sig={MASK}&b=2"),
        ("python -m vllm --model a/b --tensor-parallel-size 8",) * 2,
    ],
)
def test_a_command_line(command: str, masked: str) -> None:
    assert " ".join(masked_arguments(command.split(" "))) == masked


def test_an_argument_with_spaces_in_it() -> None:
    said = ["-H", "Authorization: Bearer abc.def", "X-Api-Key: abc", "f(a='b', password='c')"]
    assert [*masked_arguments(said)] == [
        *("-H", f"Authorization: {MASK}", f"X-Api-Key: {MASK}", f"f(a='b', password='{MASK}')")
    ]


@given(st.text(alphabet="a:/@=&?;'\" .-_", max_size=2000))
def test_it_takes_any_text_in_time(text: str) -> None:
    assert masked_text(masked_text(text)) == masked_text(text)
