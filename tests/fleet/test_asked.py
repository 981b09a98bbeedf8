import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop import cli
from gputop.agent.problem import ProblemError
from gputop.fleet.server import PrometheusServer, parse_match, parse_url


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://prometheus:9090", "http://prometheus:9090"),
        ("https://a.example/prometheus/", "https://a.example/prometheus"),
        ("https://a.example/prom/api/v1", "https://a.example/prom"),
        ("http://[::1]:9090", "http://[::1]:9090"),
    ],
)
def test_a_url(text: str, url: str) -> None:
    assert parse_url(text) == url


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prometheus:9090", "is not the URL of a server"),
        ("http://a:99999999", "is not the URL"),
        ("http://[::1", "is not the URL"),
        ("http://a/graph?q=1", "without ? and #"),
        ("x" * 160, "is not the URL"),
    ],
)
def test_what_is_no_url(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)) as refused:
        parse_url(text)
    assert len(str(refused.value)) < 160


@pytest.mark.parametrize(
    "text", ["http://ada:s3cret@a", "http://s3cret@a/x", "https://:s3cret@[::1", "s3cret@"]
)
def test_a_password_in_a_url_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ValueError, match="GPUTOP_PROMETHEUS_USER") as refused:
        parse_url(text)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("environment", "header"),
    [
        ({}, None),
        ({"GPUTOP_PROMETHEUS_USER": "ada", "GPUTOP_PROMETHEUS_PASSWORD": "x"}, "Basic YWRhOng="),
        ({"GPUTOP_PROMETHEUS_USER": "ada"}, "Basic YWRhOg=="),
        ({"GPUTOP_PROMETHEUS_TOKEN_FILE": "token"}, "Bearer abc.def"),
        ({"NETRC": "netrc"}, "Basic YWRhOng="),
        ({"NETRC": "none"}, None),
    ],
)
def test_who_one_is(
    environment: dict[str, str], header: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("NETRC", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    Path("token").write_text(" abc.def \n")
    netrc = Path("netrc")
    netrc.write_text("machine a login ada password x\n")
    netrc.chmod(0o600)
    server = PrometheusServer.from_environment("http://a:9090", environment)
    assert server.request_headers().get("Authorization") == header


@pytest.mark.parametrize("content", [b"", b"\n", b"two\nlines\xff", b"a\nb", None])
def test_a_token_that_cannot_be_used(content: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ProblemError) as failed:
        PrometheusServer("http://a", token_file=file).request_headers()
    assert str(file) in str(failed.value)
    assert "two" not in str(failed.value)


def test_a_broken_netrc_is_not_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "netrc"
    file.write_text("machine a login ada passwort s3cret\n")
    file.chmod(0o600)
    monkeypatch.setenv("NETRC", str(file))
    with pytest.raises(ProblemError, match="it cannot be read") as failed:
        PrometheusServer("http://a").request_headers()
    assert "s3cret" not in str(failed.value)


@pytest.mark.parametrize(
    "environment",
    [
        {"GPUTOP_PROMETHEUS_USER": "a", "GPUTOP_PROMETHEUS_TOKEN_FILE": "b"},
        {"GPUTOP_PROMETHEUS_KEY": "k"},
        {"GPUTOP_PROMETHEUS_USER": "a", "GPUTOP_PROMETHEUS_HEADERS": "authorization: b"},
    ],
)
def test_an_environment_that_contradicts_itself(
    environment: Mapping[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit, match=r"^2$"):
        cli.main(["status", "--prometheus", "http://a"])
    assert capsys.readouterr().err.startswith("gputop: error: GPUTOP_PROMETHEUS_")


@pytest.mark.parametrize(
    ("text", "headers"),
    [
        ("", {}),
        ("X-Scope-OrgID: a", {"X-Scope-OrgID": "a"}),
        ("A: b, c\nD: e: f\n", {"A": "b, c", "D": "e: f"}),
    ],
)
def test_headers(text: str, headers: dict[str, str]) -> None:
    found = PrometheusServer.from_environment("http://a", {"GPUTOP_PROMETHEUS_HEADERS": text})
    assert found.headers == headers


@pytest.mark.parametrize(
    "text",
    ["s3cret", "A=s3cret", ": s3cret", "A: s3cret\x1b", "A: s3cret\r\nB", "A b: s3cret",
     "Host: s3cret", "A: é s3cret", "Content-Length: s3cret"],
)  # fmt: skip
def test_what_are_no_headers_is_not_repeated(text: str) -> None:
    number = 2 if "\n" in text else 1
    with pytest.raises(
        ValueError, match=f"header {number} in GPUTOP_PROMETHEUS_HEADERS"
    ) as refused:
        PrometheusServer.from_environment("http://a", {"GPUTOP_PROMETHEUS_HEADERS": text})
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "matchers"),
    [
        ("", ""),
        ('cluster="a"', 'cluster="a"'),
        (' cluster = "a" , rack =~ "r1.*", ', 'cluster = "a" , rack =~ "r1.*"'),
        ('{cluster!="a"}', 'cluster!="a"'),
        ("pod!~'x\"y'", "pod!~'x\"y'"),
        (r'a="\"}{"', r'a="\"}{"'),
        ('a="{x},{y}"', 'a="{x},{y}"'),
    ],
)
def test_matchers(text: str, matchers: str) -> None:
    assert parse_match(text) == matchers


@pytest.mark.parametrize(
    "text",
    [
        "cluster=a",
        'cluster="a"} or up{x="y"',
        'cluster="a" rack="b"',
        'cluster="a",,rack="b"',
        '9a="b"',
        'a="b"\nc="d"',
        '__name__="up"',
        'a="' + "b" * 3000 + '"',
    ],
)
def test_what_are_no_matchers(text: str) -> None:
    with pytest.raises(ValueError, match="is not a list of label matchers") as refused:
        parse_match(text)
    assert len(str(refused.value)) < 330


@given(st.text())
def test_whatever_is_given_stays_within_its_braces(text: str) -> None:
    try:
        found = parse_match(text)
    except ValueError:
        return
    string = r'"(?:[^"\\\n]|\\.)*"' + r"|'(?:[^'\\\n]|\\.)*'"
    matcher = rf"\s*[a-zA-Z_]\w*\s*(?:=~|!~|!=|=)\s*(?:{string})\s*"
    assert re.fullmatch(rf"(?:{matcher}(?:,{matcher})*)?", found, re.ASCII | re.DOTALL)
