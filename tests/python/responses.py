"""The official OpenAI client on the Responses API.

Reads OPENAI_BASE_URL and OPENAI_API_KEY, as the client does. Prints one JSON document: what each use of the
API returned.
"""

import json
import time

import openai
from pydantic import BaseModel

client = openai.OpenAI(max_retries=0, timeout=60)
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
TOOL = {"type": "function", "name": "look", "description": "Looks.", "parameters": SCHEMA, "strict": True}


class Person(BaseModel):
    name: str


def create(text, **more):
    return client.responses.create(model="default", input=text, **more)


def streamed():
    with client.responses.stream(model="default", input="hello there") as stream:
        kinds = [event.type for event in stream]
        return kinds[0], kinds[-1], stream.get_final_response().output_text


def tools():
    said = create("look please", tools=[TOOL])
    results = [
        {
            "type": "function_call_output",
            "call_id": call.call_id,
            "output": f"saw {json.loads(call.arguments)['name']}",
        }
        for call in said.output
        if call.type == "function_call"
    ]
    more = {"tools": [TOOL], "previous_response_id": said.id}
    answer = create(results, **more)
    # Who sends all that was said gets the same answer, as it is the same turn.
    everything = [{"role": "user", "content": "look please"}, *said.output, *results]
    again = create(everything, tools=[TOOL])
    return said.status, len(results), answer.output_text, again.output_text


def conversation():
    first = create("one")
    second = create("two", previous_response_id=first.id)
    try:
        create("three", previous_response_id=first.id)
    except openai.BadRequestError as error:
        return second.output_text, second.previous_response_id == first.id, error.param
    return "an earlier response was gone on with"


def referenced():
    first = create("uno")
    named = {"type": "item_reference", "id": first.output[0].id}
    said = [{"role": "user", "content": "uno"}, named, {"role": "user", "content": "due"}]
    answer = create(said).output_text
    try:
        create([{"role": "user", "content": "x"}, named | {"id": "msg_1"}])
    except openai.BadRequestError as error:
        return answer, error.param
    return "an item that is none was referred to"


def background():
    job = create("hello there", background=True)
    begun = job.status
    until = time.monotonic() + 60
    while job.status in ("queued", "in_progress") and time.monotonic() < until:
        time.sleep(0.05)
        job = client.responses.retrieve(job.id)
    return begun, job.status, job.output_text


def cancelled():
    job = create("waits for ever", background=True)
    return client.responses.cancel(job.id).status, client.responses.retrieve(job.id).status


def resumed():
    """Goes on after each event of a stream: says after how many of them the rest was the rest."""
    events = list(create("hello there", stream=True))
    id = events[0].response.id
    exact = 0
    for at, event in enumerate(events):
        rest = client.responses.retrieve(id, stream=True, starting_after=event.sequence_number)
        told = [(one.type, one.sequence_number) for one in rest]
        exact += told == [(one.type, one.sequence_number) for one in events[at + 1 :]]
    after = events[3].sequence_number
    with client.responses.stream(response_id=id, starting_after=after) as stream:
        numbers = [event.sequence_number for event in stream]
        whole = stream.get_final_response().output_text
    return exact == len(events), min(numbers) > after, whole, id


def labelled():
    pairs = {"order": "7"}
    said = create("hello there", metadata=pairs)
    return said.metadata == pairs, client.responses.retrieve(said.id).metadata == pairs


def deleted():
    said = create("hello there")
    client.responses.delete(said.id)
    try:
        client.responses.retrieve(said.id)
    except openai.NotFoundError as error:
        gone = error.param
    first = create("one")
    create("two", previous_response_id=first.id)
    try:
        client.responses.delete(first.id)
    except openai.BadRequestError as error:
        return gone, error.param
    return "one of several was deleted"


def refused():
    try:
        create("hello there", max_tool_calls=1)
    except openai.OpenAIError as error:
        return type(error).__name__, error.param
    return "not refused"


print(
    json.dumps(
        {
            "create": create("hello there").output_text,
            "stream": streamed(),
            "tools": tools(),
            "conversation": conversation(),
            "referenced": referenced(),
            "parse": client.responses.parse(
                model="default", input="who is it?", text_format=Person
            ).output_parsed.name,
            "background": background(),
            "cancelled": cancelled(),
            "resumed": resumed(),
            "labelled": labelled(),
            "deleted": deleted(),
            "refused": refused(),
        }
    )
)
