"""A client that openapi-python-client makes of `docs/openapi.json`: sends a message, follows its turn, approves its
tool call, and sends the message again. Prints what it saw as one JSON document.

Usage: generated_client.py DOCUMENT SESSION. The client is made in the current directory.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

document, session = sys.argv[1:]
settings = Path("generator.yml")
# The hooks would format the code, which nobody reads.
settings.write_text("package_name_override: made\npost_hooks: []\nliteral_enums: true\n")
# A warning is a part of the document that the client would not have.
subprocess.run(
    [
        sys.executable, "-m", "openapi_python_client", "generate", "--fail-on-warning",
        "--path", document, "--config", settings, "--meta", "none", "--output-path", "made",
    ],
    check=True,
    stdout=sys.stderr,
)
sys.path.insert(0, os.getcwd())

from made import AuthenticatedClient  # noqa: E402
from made.api.approvals import get_approvals, post_approvals_call  # noqa: E402
from made.api.sessions import get_sessions, post_sessions_session_messages  # noqa: E402
from made.models import PostApprovalsCallBody, Problem, SessionMessage  # noqa: E402

url = os.environ["OPENAI_BASE_URL"].removesuffix("/v1")
client = AuthenticatedClient(base_url=url, token=os.environ["OPENAI_API_KEY"], timeout=60)
send = {"session": session, "idempotency_key": "one"}


def approve():
    """Approves the only call that waits, once the list has it."""
    until = time.monotonic() + 60
    while not (waiting := get_approvals.sync(client=client, limit=10)).approvals:
        assert time.monotonic() < until, "no call waits"
        time.sleep(0.05)
    (approval,) = waiting.approvals
    body = PostApprovalsCallBody(decision="approve", digest=approval.digest)
    decided = post_approvals_call.sync(approval.action.call, client=client, body=body)
    return {"tool": approval.action.tool, "decision": decided.decided.decision}


# The client has no call for a stream: the request is its own, and what comes is server-sent events.
request = post_sessions_session_messages._get_kwargs(
    body=SessionMessage(content="go", stream=True), **send
)
events, approved = [], None
with client.get_httpx_client().stream(**request) as answer:
    answer.raise_for_status()
    for line in answer.iter_lines():
        if line.startswith("event: "):
            events.append(line.removeprefix("event: "))
            if events[-1] == "approval_request":
                approved = approve()

# The same message again is the same turn, which has ended.
reply = post_sessions_session_messages.sync(
    client=client, body=SessionMessage(content="go"), **send
)
other = post_sessions_session_messages.sync(
    session + "2", client=client, body=SessionMessage(content="go on")
)

# All sessions, a page at a time.
keys, page = [], get_sessions.sync(client=client, limit=1)
while page.sessions:
    keys += [row.key for row in page.sessions]
    if not page.next_:
        break
    page = get_sessions.sync(client=client, limit=1, cursor=page.next_)

refused = get_sessions.sync(client=client, cursor="nonsense")
assert isinstance(refused, Problem), refused
print(json.dumps({
    "events": events,
    "approved": approved,
    "reply": reply.text,
    "other": other.text,
    "sessions": keys,
    "refused": refused.code,
}))
