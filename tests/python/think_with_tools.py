"""Extended thinking and tools, against a node.

First the requests of the examples that come with Anthropic's client, in
https://github.com/anthropics/anthropic-sdk-python/tree/main/examples: `thinking.py`, `thinking_stream.py` and
`tools_runner.py`, this one with `thread=False`: a node holds no threads of Anthropic's.

Then the requests of Anthropic's own example, in its order and with its parameters, but for the names of models:
https://github.com/anthropics/claude-cookbooks/blob/main/extended_thinking/extended_thinking_with_tool_use.ipynb
(one call of a tool, two at once, and one whose thought is left out once). Then a streamed round of two calls, one of
which fails.

Reads ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY. Prints one JSON document: the types of the blocks of each
reply, what was thought, and the last text.
"""

import json
from typing import Literal

import anthropic

TOOLS = [
    {
        "name": name,
        "description": f"Gets the {name} of a place.",
        "input_schema": {
            "type": "object",
            "properties": {"location": {"type": "string"}},
            "required": ["location"],
        },
    }
    for name in ("weather", "time")
]

client = anthropic.Anthropic()


def schema(field):
    return {"type": "object", "properties": {field: {"type": "string"}}, "required": [field]}


WEATHER = {
    "name": "weather",
    "description": "Get current weather information for a location.",
    "input_schema": schema("location"),
}
NEWS = {
    "name": "news",
    "description": "Get latest news headlines for a topic.",
    "input_schema": schema("topic"),
}
RESULTS = {"weather": {"temperature": 65, "condition": "Rainy"}, "news": {"headlines": ["a", "b"]}}


def asked(tools, messages):
    return client.messages.create(
        model="claude-sonnet-4-5",
        max_tokens=4000,
        thinking={"type": "enabled", "budget_tokens": 2000},
        tools=tools,
        messages=messages,
    )


def of_kind(reply, *kinds):
    return [block for block in reply.content if block.type in kinds]


def ran(calls):
    results = [
        {"type": "tool_result", "tool_use_id": call.id, "content": json.dumps(RESULTS[call.name])}
        for call in calls
    ]
    return {"role": "user", "content": results}


def shown(reply):
    return [block.text if block.type == "text" else block.type for block in reply.content]


def one_call():
    """Only thoughts and the call go back, and the result of the first call."""
    messages = [{"role": "user", "content": "What's the weather like in Paris today?"}]
    first = asked([WEATHER], messages)
    kept = of_kind(first, "thinking", "redacted_thinking", "tool_use")
    messages.append({"role": "assistant", "content": kept})
    messages.append(ran(of_kind(first, "tool_use")[:1]))
    return [shown(first), shown(asked([WEATHER], messages))]


def many_calls():
    """All of a reply goes back, and all results in one message, until the model calls no more."""
    text = "What's the weather in London, and can you also tell me the latest news about technology?"
    messages = [{"role": "user", "content": text}]
    reply = asked([WEATHER, NEWS], messages)
    replies = [shown(reply)]
    while reply.stop_reason == "tool_use":
        messages.append({"role": "assistant", "content": reply.content})
        messages.append(ran(of_kind(reply, "tool_use")))
        reply = asked([WEATHER, NEWS], messages)
        replies.append(shown(reply))
    return replies


def left_out():
    """The example shows that Anthropic's server wants the thought back. A node has it in the journal."""
    question = {"role": "user", "content": "What's the weather like in Berlin right now?"}
    first = asked([WEATHER], [question])
    calls = of_kind(first, "tool_use")
    replies = []
    for kept in (calls, of_kind(first, "thinking") + calls):
        answer = {"role": "assistant", "content": kept}
        replies.append(shown(asked([WEATHER], [question, answer, ran(calls[:1])])))
    return replies


def thinking():
    message = client.messages.create(
        model="claude-sonnet-4-5",
        max_tokens=3200,
        thinking={"type": "enabled", "budget_tokens": 1600},
        messages=[{"role": "user", "content": "Create a haiku about Anthropic."}],
    )
    return [getattr(block, block.type) for block in message.content]


def thinking_stream():
    text = "Create a haiku about Anthropic. Think carefully about syllable counts before answering."
    told = {"thinking": "", "text": ""}
    with client.messages.stream(
        model="claude-sonnet-5",
        max_tokens=16000,
        thinking={"type": "adaptive", "display": "summarized"},
        output_config={"effort": "high"},
        messages=[{"role": "user", "content": text}],
    ) as stream:
        for event in stream:
            if event.type in told:
                told[event.type] += getattr(event, event.type)
    return list(told.values())


@anthropic.beta_tool
def get_weather(location: str, units: Literal["c", "f"]) -> str:
    """Lookup the weather for a given city in either celsius or fahrenheit

    Args:
        location: The city and state, e.g. San Francisco, CA
        units: Unit for the output, either 'c' for celsius or 'f' for fahrenheit
    Returns:
        A dictionary containing the location, temperature, and weather condition.
    """
    temperature = {"c": "20°C", "f": "68°F"}[units]
    return json.dumps({"location": location, "temperature": temperature, "condition": "Sunny"})


def tools_runner():
    runner = client.beta.messages.tool_runner(
        max_tokens=1024,
        model="claude-3-5-sonnet-latest",
        tools=[get_weather],
        messages=[{"role": "user", "content": "What is the weather in SF?"}],
        thread=False,
    )
    return [shown(message) for message in runner]


sdk = {"thinking": thinking(), "stream": thinking_stream(), "runner": tools_runner()}
example = {"one": one_call(), "many": many_calls(), "left_out": left_out()}

messages = [{"role": "user", "content": "What is the weather in Paris?"}]
kinds, thoughts, text = [], [], ""
while True:
    with client.messages.stream(
        model="default",
        max_tokens=16_000,
        thinking={"type": "enabled", "budget_tokens": 10_000},
        tools=TOOLS,
        messages=messages,
    ) as stream:
        for event in stream:
            if event.type == "thinking":
                thoughts.append(event.thinking)
        reply = stream.get_final_message()
    kinds.append([block.type for block in reply.content])
    assert all(block.signature for block in reply.content if block.type == "thinking")
    if reply.stop_reason != "tool_use":
        text = "".join(block.text for block in reply.content if block.type == "text")
        break
    messages.append({"role": "assistant", "content": reply.content})
    results = [
        {
            "type": "tool_result",
            "tool_use_id": block.id,
            "content": f"{block.name} of {block.input['location']}",
            "is_error": block.name == "time",
        }
        for block in reply.content
        if block.type == "tool_use"
    ]
    messages.append({"role": "user", "content": results})

said = {"kinds": kinds, "thoughts": "".join(thoughts), "text": text, "stop": reply.stop_reason}
print(json.dumps(said | {"example": example, "sdk": sdk}))
