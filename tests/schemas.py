"""The schemas that `gputop schema` prints, and what is wrong with a document by them."""

import json
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from tests.e2e.shipped import run


@cache
def schema(name: str) -> Any:
    return json.loads(printed("schema", name))


def problem_of(name: str, document: Any) -> str | None:
    error = best_match(Draft202012Validator(schema(name)).iter_errors(document))
    return None if error is None else f"{error.json_path}: {error.message}"


def printed(*words: str) -> str:
    done = run(*words)
    assert done.stdout, done.stderr
    return done.stdout
