"""Validates `docs/openapi.json`, then asks a node, at OPENAI_BASE_URL, all that it has and what it has not; prints
what is wrong.

Usage: try_api.py DOCUMENT SEED
"""

import json
import os
import sys

from click.testing import CliRunner
from jsonschema import Draft202012Validator
from schemathesis.cli import schemathesis
from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR

# Valid by the document is not always valid: a session's key is more than a text.
CHECKS = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
]
# These end what is tried, or the node.
NOT = "/v1/panic|/v1/nodes/.*/drain"


def invalid(api):
    """What the schemas of OpenAPI 3.1 and of JSON Schema do not accept of a document."""
    errors = OPENAPI_31_VALIDATOR.iter_errors(api)
    found = [("/".join(map(str, error.instance_path)), error.message) for error in errors]
    meta = Draft202012Validator(Draft202012Validator.META_SCHEMA)
    for name, schema in api["components"]["schemas"].items():
        found += [(f"schema {name}, {error.json_path}", error.message) for error in meta.iter_errors(schema)]
    return [f"{place}: {what[:200]}" for place, what in found]


document, seed = sys.argv[1:]
with open(document, encoding="utf-8") as file:
    api = json.load(file)
# A mistake for each of the two validators.
broken = {**api, "info": {"title": "A"}, "components": {"schemas": {"A": {"type": "text"}}}}
assert len(invalid(broken)) == 2, invalid(broken)
run = CliRunner().invoke(
    schemathesis,
    [
        "run", document,
        "--url", os.environ["OPENAI_BASE_URL"].removesuffix("/v1"),
        "--header", f"Authorization: Bearer {os.environ['OPENAI_API_KEY']}",
        "--checks", ",".join(CHECKS),
        "--exclude-path-regex", NOT,
        "--phases", "examples,coverage,fuzzing",
        "--max-examples", "10",
        "--seed", seed,
        "--generation-database", "none",
        "--request-timeout", "30",
        "--continue-on-failure",
        "--no-color",
    ],
)
print(json.dumps({"invalid": invalid(api), "exit": run.exit_code, "output": run.output[-20_000:]}))
