"""`gputop schema NAME`: print the JSON Schema of the output of other commands."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from gputop.commands.arguments import print_json
from gputop.console import FINE

Schema = dict[str, Any]
DOCUMENTS = {
    "stream": "a line of `gputop stream` or of a recording",
    "status": "`gputop status --json`, also of several hosts",
    "users": "`gputop status --by-user --json`, also of several hosts",
    "bench": "`gputop bench --json` of a run, also on several devices, or of a check",
    "fleet": "`gputop status --prometheus URL --json`",
}
"""Names of the schemas, and the documents that each describes."""
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the argument `NAME`."""
    each = (f"{name}: {document}" for name, document in DOCUMENTS.items())
    parser.description = (
        "Prints a JSON Schema, for code generators and validators."
    )
    names = tuple(DOCUMENTS)
    parser.add_argument(
        "name",
        choices=names,
        metavar="NAME",
        help="; ".join(each),
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the schema."""
    print_json(schema(arguments.name))
    return FINE


def schema(name: str) -> Schema:
    """Return the JSON Schema of the documents in `DOCUMENTS`, generated from the types."""
    from msgspec.json import schema_components

    from gputop.agent.problem import Problem
    from gputop.agent.snapshot import Inventory, Sample
    from gputop.bench.events import Result
    from gputop.bench.run.check_parts import CheckResult
    from gputop.bench.run.series import RunCurves
    from gputop.commands.fleet import Gpu
    from gputop.output.process_tables import UserTotals

    known: dict[str, tuple[Callable[..., Schema], tuple[type, ...]]] = {
        "stream": (_stream, (Inventory, Sample)),
        "status": (_status, (Inventory, Sample, Problem)),
        "users": (_users, (UserTotals, Problem)),
        "bench": (_bench, (Result, RunCurves, Problem, CheckResult)),
        "fleet": (_fleet, (Gpu, Problem)),
    }
    make, types = known[name]
    refs, definitions = schema_components(types, ref_template="#/$defs/{name}")
    top = make(*refs)
    return {
        "$schema": DIALECT,
        "title": DOCUMENTS[name],
        **top,
        "$defs": definitions,
    }


def _stream(inventory: Schema, sample: Schema) -> Schema:
    words = {"inventory": inventory, "sample": sample}
    return {
        "oneOf": [
            {**of, **_object(type={"const": word})}
            for word, of in words.items()
        ]
    }


def _status(
    inventory: Schema,
    sample: Schema,
    problem: Schema,
) -> Schema:
    from gputop.health.findings import Bound

    word = _object(word={"enum": [*Bound]}, why={"type": "string"})
    bound_by = {"type": "object", "additionalProperties": word}
    return _also_of_hosts(
        problem, inventory=inventory, sample=sample, bound_by=bound_by
    )


def _users(totals: Schema, problem: Schema) -> Schema:
    return _also_of_hosts(
        problem,
        hostname={"type": "string"},
        time={"type": "number"},
        users=_list(totals),
    )


def _also_of_hosts(problem: Schema, **fields: Schema) -> Schema:
    """Return the schema of one object, or of a list with an object for each host."""
    host = {"type": "string"}
    hosts = [_object(host=host, **fields), _object(host=host, problem=problem)]
    return {"anyOf": [_object(**fields), _list({"anyOf": hosts})]}


def _bench(
    result: Schema,
    curves: Schema,
    problem: Schema,
    check: Schema,
) -> Schema:
    done = {**result, **_object(schema={"type": "integer"}, series=curves)}
    failed = _object(
        device={"type": "string"}, problem=problem, status={"type": "integer"}
    )
    either = {"anyOf": [done, failed]}
    parts = {**check, **_object(schema={"type": "integer"})}
    return {"anyOf": [*either["anyOf"], _list(either), parts]}


def _fleet(gpu: Schema, problem: Schema) -> Schema:
    words = ("host", "key", "kind", "severity", "text")
    finding = _object(
        **{word: {"type": "string"} for word in words}, rank={"type": "number"}
    )
    return _object(
        schema={"type": "integer"},
        gputop_version={"type": "string"},
        time={"type": "number"},
        totals={"type": "object"},
        wrong=_list(finding),
        problems=_list(problem),
        gpus=_list(gpu),
    )


def _object(**properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": [*properties],
    }


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}
