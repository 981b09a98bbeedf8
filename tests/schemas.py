"""The schemas that `gputop schema` prints, and what is wrong with a document by them."""

import json
import subprocess
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from gputop.stream.launch import module_command

BOUND = 150.0


@cache
def schema(name: str) -> Any:
    return json.loads(printed("schema", name))


def problem_of(name: str, document: Any) -> str | None:
    error = best_match(Draft202012Validator(schema(name)).iter_errors(document))
    return None if error is None else f"{error.json_path}: {error.message}"


def printed(*words: str) -> str:
    done = subprocess.run(
        [*module_command("gputop"), *words],
        capture_output=True,
        check=False,
        text=True,
        timeout=BOUND,
    )
    assert done.stdout, done.stderr
    return done.stdout
