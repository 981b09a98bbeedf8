"""The examples under `deploy/`, by the tools that read them where these are installed."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gputop.agent.device import DeviceState
from gputop.console import INTERRUPTED
from gputop.health.judge import RULES
from gputop.schema.clock_events import BY_WORD
from gputop.stream.launch import module_command
from tests import streams
from tests.e2e.test_exporter import exporting, prometheus, results_of
from tests.output.test_metrics import EVERY, found_in

DEPLOY = Path(__file__).parents[1] / "deploy"
PROMETHEUS = DEPLOY / "prometheus"
DASHBOARD = json.loads((DEPLOY / "grafana/gputop.json").read_text())
MAY_BE_EMPTY = {"What is wrong now", "Slowed down", "Findings that began"}
"""Panels without a line while the simulated devices are well."""
BOUND = 60.0


def needs(tool: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(tool) is None, reason=f"there is no {tool} on the PATH")


def rules() -> Iterator[dict[str, Any]]:
    for name in ("recording.yml", "alerts.yml"):
        for group in yaml.safe_load((PROMETHEUS / name).read_text())["groups"]:
            yield from group["rules"]


def queries() -> Iterator[tuple[str, str]]:
    for panel in DASHBOARD["panels"]:
        yield from ((panel["title"], target["expr"]) for target in panel["targets"])


def test_each_metric_label_and_word_exists() -> None:
    exported: dict[str, set[str]] = {}
    for metric in found_in(streams.inventory(1), EVERY, processes=True):
        for sample in metric.samples:
            exported.setdefault(sample.name, set()).update(sample.labels)
    exported.setdefault("gputop_finding_active", set()).update(
        ("host", "index", "rule", "severity")
    )
    everywhere = {"host", "index", "parent", "job"}
    for expression in [*(rule["expr"] for rule in rules()), *(expr for _, expr in queries())]:
        for name, matchers in re.findall(r"(?<!:)\b(gputop_\w+)(?:\{([^}]*)\})?", expression):
            assert name in exported, expression
            labels = set(re.findall(r'(\w+)(?:=~|!~|!=|=)"', matchers))
            assert labels <= exported[name] | everywhere, expression
    text = " ".join(rule["expr"] for rule in rules())
    named = re.findall(r'rule=~?"([^"]+)"', text)
    assert {word for each in named for word in each.split("|")} <= {rule.name for rule in RULES}
    assert set(re.findall(r'reason="(\w+)"', text)) <= BY_WORD.keys()
    assert set(re.findall(r'state="(\w+)"', text)) <= {state.value for state in DeviceState}


def test_each_alert_is_tested_when_it_fires_and_when_it_must_not() -> None:
    alerts = {rule["alert"] for rule in rules() if "alert" in rule}
    tests = yaml.safe_load((PROMETHEUS / "tests.yml").read_text())["tests"]
    cases = [case for each in tests for case in each.get("alert_rule_test", ())]
    assert {case["alertname"] for case in cases if case.get("exp_alerts")} == alerts
    assert {case["alertname"] for case in cases if not case.get("exp_alerts")} == alerts


@needs("promtool")
@pytest.mark.parametrize(
    "command",
    [
        ("check", "rules", "recording.yml", "alerts.yml"),
        ("check", "config", "prometheus.yml"),
        ("test", "rules", "tests.yml"),
    ],
)
def test_promtool(command: tuple[str, ...]) -> None:
    subprocess.run(["promtool", *command], cwd=PROMETHEUS, check=True)  # noqa: S607


@pytest.mark.slow
@needs("prometheus")
def test_every_query_of_the_dashboard_on_a_real_prometheus(tmp_path: Path) -> None:
    variables = {"$host": ".*", "$gpu": ".*", "$__rate_interval": "1m", "$__range": "5m"}
    config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(PROMETHEUS / name) for name in config["rule_files"]]
    with exporting("--demo", "--processes") as exporter:
        target = exporter.url.removeprefix("http://").removesuffix("/metrics")
        # As the operator of Prometheus labels a pod, and relabels it by our ServiceMonitor.
        labels = {"namespace": "monitoring", "pod": "gputop-exporter-x", "container": "exporter"}
        config["scrape_configs"][0] |= {
            "static_configs": [{"targets": [target], "labels": labels}],
            "relabel_configs": [each for each in relabelings() if "action" in each],
        }
        with prometheus(tmp_path, yaml.safe_dump(config)) as url:
            scraped = "min(count_over_time(gputop_up[1m])) >= 3"
            exporter.until(lambda: results_of(url, scraped), BOUND)
            for title, query in queries():
                for name, value in variables.items():
                    query = query.replace(name, value)  # noqa: PLW2901
                assert results_of(url, query) or title in MAY_BE_EMPTY, (title, query)
            for rule in rules():
                assert results_of(url, rule["expr"]) or "alert" in rule, rule


def test_totals_of_the_dashboard_do_not_count_instances_beside_their_gpu() -> None:
    totals = [query for _, query in queries() if re.match(r"(sum|avg)\(", query)]
    assert len(totals) == 3
    assert all('parent=""' in query for query in totals)


def test_the_operator_calls_the_job_as_the_alert_does() -> None:
    (down,) = [rule["expr"] for rule in rules() if rule.get("alert") == "GpuExporterDown"]
    (name,) = re.findall(r'job="(.*?)"', down)
    assert {"targetLabel": "job", "replacement": name} in relabelings()
    (job,) = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())["scrape_configs"]
    assert job["job_name"] == name


def test_a_recording_ends_by_itself_after_a_day() -> None:
    unit = (DEPLOY / "systemd/gputop-recorder.service").read_text()
    ((interval, count),) = re.findall(r"--interval (\d+) --count (\d+)", unit)
    assert int(interval) * int(count) == 24 * 60 * 60
    assert f"SuccessExitStatus={INTERRUPTED}" in unit


def relabelings() -> list[dict[str, Any]]:
    *_, monitor = yaml.safe_load_all((DEPLOY / "kubernetes/gputop.yml").read_text())
    return list(monitor["spec"]["endpoints"][0]["relabelings"])


@needs("systemd-analyze")
@pytest.mark.parametrize("unit", sorted((DEPLOY / "systemd").iterdir()), ids=lambda unit: unit.stem)
def test_a_unit(unit: Path, tmp_path: Path) -> None:
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace("/opt/gputop/bin/gputop", sys.executable))
    command = ["systemd-analyze", "verify", "--man=no", str(copy)]
    assert subprocess.check_output(command, stderr=subprocess.STDOUT) == b""


def test_the_container_and_the_pods_start_the_exporter() -> None:
    recipe = (DEPLOY / "container/Containerfile").read_text()
    entry, command = re.findall(r"^(?:ENTRYPOINT|CMD) (\[.*\])$", recipe, re.MULTILINE)
    daemon, service, monitor = yaml.safe_load_all((DEPLOY / "kubernetes/gputop.yml").read_text())
    (own,) = daemon["spec"]["template"]["spec"]["containers"]
    assert json.loads(entry) == ["gputop"]
    assert json.loads(command) == own["args"] == ["exporter", "--listen", ":9835"]
    (port,) = own["ports"]
    assert own["args"][-1] == f":{port['containerPort']}"
    assert service["spec"]["ports"][0]["targetPort"] == port["name"]
    assert monitor["spec"]["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]
    labels = daemon["spec"]["template"]["metadata"]["labels"]
    assert daemon["spec"]["selector"]["matchLabels"] == labels == service["spec"]["selector"]
    assert monitor["spec"]["selector"]["matchLabels"] == service["metadata"]["labels"]
    assert own["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    exporter = [*module_command("gputop"), *own["args"], "--help"]
    assert subprocess.run(exporter, capture_output=True, check=False).returncode == 0
