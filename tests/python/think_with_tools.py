"""Anthropic's example of extended thinking with tools, against a node: a streamed round of two tool calls.

Reads ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY. Prints one JSON document: the types of the blocks of each
reply, what was thought, and the last text.
"""

import json

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

print(json.dumps({"kinds": kinds, "thoughts": "".join(thoughts), "text": text, "stop": reply.stop_reason}))
