"""Asks a node, at OPENAI_BASE_URL, all that `docs/openapi.json` has and what it has not; prints what is wrong.

Usage: try_api.py DOCUMENT SEED
"""

import json
import os
import sys

from click.testing import CliRunner
from schemathesis.cli import schemathesis

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

document, seed = sys.argv[1:]
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
print(json.dumps({"exit": run.exit_code, "output": run.output[-20_000:]}))
