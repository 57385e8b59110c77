"""The official OpenAI client against a node: lists models, chats with and without streaming.

Reads OPENAI_BASE_URL and OPENAI_API_KEY, as the client does. Prints one JSON document.
"""

import json

import openai

client = openai.OpenAI(max_retries=0, timeout=60)

models = [model.id for model in client.models.list()]
model = client.models.retrieve("default")

pieces, usage, finish, roles = [], None, None, []
stream = client.chat.completions.create(
    model="default",
    messages=[
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hello there"},
    ],
    stream=True,
    stream_options={"include_usage": True},
)
for chunk in stream:
    if chunk.usage is not None:
        usage = chunk.usage
    for choice in chunk.choices:
        if choice.delta.role:
            roles.append(choice.delta.role)
        if choice.delta.content:
            pieces.append(choice.delta.content)
        finish = choice.finish_reason or finish

whole = client.chat.completions.create(
    model="default",
    messages=[
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "reply to: one"},
        {"role": "user", "content": "two"},
    ],
    temperature=0.5,
    max_tokens=100,
)

sessions = []
for text in ["remember", "what?"]:
    reply = client.chat.completions.create(
        model="default", user="ada", messages=[{"role": "user", "content": text}]
    )
    sessions.append(reply.choices[0].message.content)

errors = {}
for name, call in {
    "model": lambda: client.chat.completions.create(
        model="nobody", messages=[{"role": "user", "content": "x"}]
    ),
    "n": lambda: client.chat.completions.create(
        model="default", n=2, messages=[{"role": "user", "content": "x"}]
    ),
    "key": lambda: openai.OpenAI(api_key="wrong", max_retries=0).models.list(),
}.items():
    try:
        call()
        errors[name] = None
    except openai.APIStatusError as error:
        errors[name] = {"status": error.status_code, "class": type(error).__name__}

print(
    json.dumps(
        {
            "models": models,
            "model": model.id,
            "roles": roles,
            "pieces": pieces,
            "finish": finish,
            "usage": usage and usage.total_tokens,
            "whole": whole.choices[0].message.content,
            "whole_finish": whole.choices[0].finish_reason,
            "sessions": sessions,
            "errors": errors,
        }
    )
)
