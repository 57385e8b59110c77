"""One client's part of the table of clients: what it does with each feature of a node's `/v1`.

    clients.py openai|anthropic|langchain|litellm|pydantic|llm

Reads OPENAI_BASE_URL and OPENAI_API_KEY, or the same of ANTHROPIC. Prints one JSON document, from the feature to how it ended:
"ok" if the client returned what it should, else the status and what the error names, or what it returned
instead.
"""

import base64
import json
import os
import re
import subprocess
import sys
import time

URL, KEY = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
PICTURE = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c4944415408d763f8cfc0"
        "000003010100c9fe92ef0000000049454e44ae426082"
    )
).decode()
SHOWN = [
    {"type": "text", "text": "what is it?"},
    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}},
]
# What the scripted provider answers for the text `x`.
VECTOR = [30.0] * 8
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
TOOL = {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": SCHEMA}}


def ended(error):
    """How a client tells an error: the status, and what the node's message names."""
    status, text = getattr(error, "status_code", None), str(error)
    if status is None and (found := re.search(r"Error code: (\d{3})", text)):
        status = found[1]
    names = re.search(r"`(/?[A-Za-z_][\w/]*)`", text)
    return f"{status or type(error).__name__} {names[1] if names else '(nothing named)'}"


def cell(does, expected):
    """Runs one feature; `expected` is what it returns, or says whether that is good."""
    try:
        got = does()
    except Exception as error:  # Whatever a client raises is what it makes of an answer.
        return ended(error)
    good = expected(got) if callable(expected) else got == expected
    return "ok" if good else f"broken: {got!r}"


def user(text):
    return [{"role": "user", "content": text}]


def anything(_):
    return True


def with_openai():
    import openai

    client = openai.OpenAI(max_retries=0, timeout=60)
    create = client.chat.completions.create

    def chat(text, **more):
        return create(model="default", messages=user(text), **more).choices[0].message.content

    def streamed():
        chunks = create(
            model="default", messages=user("hello there"), stream=True,
            stream_options={"include_usage": True},
        )
        text, usage = "", None
        for chunk in chunks:
            text += "".join(choice.delta.content or "" for choice in chunk.choices)
            usage = chunk.usage or usage
        return text, usage.total_tokens > 0

    def tools():
        messages = user("look please")
        said = create(model="default", messages=messages, tools=[TOOL], tool_choice="auto").choices[0]
        messages.append(said.message)
        for call in said.message.tool_calls:
            name = json.loads(call.function.arguments)["name"]
            messages.append({"role": "tool", "tool_call_id": call.id, "content": f"saw {name}"})
        answer = create(model="default", messages=messages, tools=[TOOL]).choices[0]
        return said.finish_reason, answer.finish_reason, answer.message.content

    def parsed():
        from pydantic import BaseModel

        class Person(BaseModel):
            name: str

        reply = client.chat.completions.parse(
            model="default", messages=user("who is it?"), response_format=Person
        )
        return reply.choices[0].message.parsed.name

    def background():
        response = client.responses.create(model="default", input="hello there", background=True)
        until = time.monotonic() + 60
        while response.status in ("queued", "in_progress") and time.monotonic() < until:
            time.sleep(0.05)
            response = client.responses.retrieve(response.id)
        return response.output_text

    def embeds():
        reply = client.embeddings.create(model="openai/embedder", input="x")
        return reply.data[0].embedding, reply.usage.total_tokens

    def files():
        picture = base64.b64decode(PICTURE)
        file = client.files.create(file=("picture.png", picture), purpose="vision")
        same = client.files.content(file.id).read() == picture
        asked = [{"type": "input_text", "text": "seen?"}, {"type": "input_image", "file_id": file.id}]
        seen = client.responses.create(model="default", input=[{"role": "user", "content": asked}])
        asked = [{"type": "text", "text": "seen?"}, {"type": "file", "file": {"file_id": file.id}}]
        chat(asked, user="openai-files")
        listed = file.id in [one.id for one in client.files.list()]
        deleted = client.files.delete(file.id).deleted
        is_left = file.id in [one.id for one in client.files.list()]
        return same, seen.output_text, file.filename, listed, deleted, is_left

    def busy():
        again = openai.OpenAI(timeout=60)
        return again.chat.completions.create(model="default", messages=user("busy openai"))

    def denied():
        return openai.OpenAI(api_key="wrong", max_retries=0).models.list()

    return {
        "models": cell(lambda: [model.id for model in client.models.list()], ["default"]),
        "chat": cell(lambda: chat("hello there"), "Hello!"),
        "stream with usage": cell(streamed, ("Hello!", True)),
        "top_p": cell(lambda: chat("hello there", top_p=0.5), "Hello!"),
        "session by `user`": cell(
            lambda: [chat(text, user="openai") for text in ("one", "two")],
            ["reply to: one", "reply to: two"],
        ),
        "tools": cell(tools, ("tool_calls", "stop", "I saw it.")),
        "structured output": cell(parsed, "Ada"),
        "picture": cell(lambda: chat(SHOWN), "reply to: what is it?"),
        "files": cell(files, (True, "reply to: seen?", "picture.png", True, True, False)),
        "Responses": cell(
            lambda: client.responses.create(model="default", input="hello there").output_text, "Hello!"
        ),
        "in the background": cell(background, "Hello!"),
        "embeddings": cell(embeds, (VECTOR, 1)),
        "unknown model": cell(lambda: create(model="nobody", messages=user("x")), anything),
        "wrong key": cell(denied, anything),
        "provider is busy": cell(busy, anything),
    }


def with_anthropic():
    import anthropic

    client = anthropic.Anthropic(max_retries=0, timeout=60)

    def create(content, by=client, **more):
        asked = {"model": "default", "max_tokens": 2048, "messages": user(content)}
        return by.messages.create(**(asked | more))

    def chat(content, **more):
        return "".join(block.text for block in create(content, **more).content if block.type == "text")

    def streamed():
        asked = {"model": "default", "max_tokens": 2048, "messages": user("hello there")}
        with client.messages.stream(**asked) as stream:
            text = "".join(stream.text_stream)
            message = stream.get_final_message()
        return text, message.usage.output_tokens > 0

    def tools():
        look = {"name": "look", "description": "Looks.", "input_schema": SCHEMA}
        said = create("look please", tools=[look], tool_choice={"type": "auto"})
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": f"saw {block.input['name']}"}
            for block in said.content
            if block.type == "tool_use"
        ]
        messages = user("look please")
        messages += [{"role": "assistant", "content": said.content}, {"role": "user", "content": results}]
        answer = create("", messages=messages, tools=[look])
        return said.stop_reason, answer.stop_reason, answer.content[0].text

    def parsed():
        from pydantic import BaseModel

        class Person(BaseModel):
            name: str

        reply = client.messages.parse(
            model="default", max_tokens=2048, messages=user("who is it?"), output_format=Person
        )
        return reply.parsed_output.name

    @anthropic.beta_tool
    def look(name: str) -> str:
        """Looks."""
        return f"saw {name}"

    def runner():
        asked = {"model": "default", "max_tokens": 2048, "messages": user("look please")}
        # The conversation is not held under the id of its first message.
        runner = client.beta.messages.tool_runner(tools=[look], thread=False, **asked)
        return runner.until_done().content[0].text

    def thought():
        message = create("think please", thinking={"type": "enabled", "budget_tokens": 1024})
        thinking, text = message.content
        return thinking.thinking, len(thinking.signature) > 0, text.text

    source = {"type": "base64", "media_type": "image/png", "data": PICTURE}
    shown = [{"type": "text", "text": "what is it?"}, {"type": "image", "source": source}]
    return {
        "models": cell(lambda: [model.id for model in client.models.list()], ["default"]),
        "chat": cell(lambda: chat("hello there"), "Hello!"),
        "stream with usage": cell(streamed, ("Hello!", True)),
        "top_p": cell(lambda: chat("hello there", extra_body={"top_p": 0.5}), "Hello!"),
        "session by `user`": cell(
            lambda: [chat(text, metadata={"user_id": "anthropic"}) for text in ("one", "two")],
            ["reply to: one", "reply to: two"],
        ),
        "tools": cell(tools, ("tool_use", "end_turn", "I saw it.")),
        "its own tool loop": cell(runner, "I saw it."),
        "thinking": cell(thought, ("Let me see.", True, "It is red.")),
        "structured output": cell(parsed, "Ada"),
        "picture": cell(lambda: chat(shown), "reply to: what is it?"),
        "count tokens": cell(
            lambda: client.messages.count_tokens(model="default", messages=user("x")).input_tokens > 0,
            True,
        ),
        "unknown model": cell(lambda: create("x", model="nobody"), anything),
        "wrong key": cell(lambda: create("x", by=anthropic.Anthropic(api_key="wrong", max_retries=0)), anything),
        "provider is busy": cell(lambda: create("busy anthropic", by=anthropic.Anthropic()), anything),
    }


def with_langchain():
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_openai import ChatOpenAI, OpenAIEmbeddings

    def model(**more):
        return ChatOpenAI(**({"model": "default", "max_retries": 0, "use_responses_api": False} | more))

    def streamed():
        text, tokens = "", 0
        for chunk in model(stream_usage=True).stream("hello there"):
            text += chunk.content
            tokens += (chunk.usage_metadata or {}).get("total_tokens", 0)
        return text, tokens > 0

    def chat(text="hello there", **more):
        return model(**more).invoke(text).content

    def embeds():
        return OpenAIEmbeddings(
            model="openai/embedder", check_embedding_ctx_length=False, max_retries=0
        ).embed_query("x")

    def tools(**more):
        bound = model(**more).bind_tools([TOOL])
        messages = [HumanMessage("look please")]
        said = bound.invoke(messages)
        messages.append(said)
        for call in said.tool_calls:
            messages.append(ToolMessage(f"saw {call['args']['name']}", tool_call_id=call["id"]))
        return len(said.tool_calls), str(bound.invoke(messages).text)

    schema = SCHEMA | {"title": "Person", "description": "A person."}
    return {
        "chat": cell(chat, "Hello!"),
        "stream with usage": cell(streamed, ("Hello!", True)),
        "top_p": cell(lambda: chat(top_p=0.5), "Hello!"),
        "tools": cell(tools, (1, "I saw it.")),
        "structured output": cell(
            lambda: model().with_structured_output(schema, method="json_schema").invoke("who is it?"),
            {"name": "Ada"},
        ),
        "picture": cell(lambda: chat(user(SHOWN)), "reply to: what is it?"),
        "Responses": cell(lambda: tools(use_responses_api=True), (1, "I saw it.")),
        "embeddings": cell(embeds, VECTOR),
        "unknown model": cell(lambda: chat(model="nobody"), anything),
        "wrong key": cell(lambda: chat(api_key="wrong"), anything),
        "provider is busy": cell(lambda: chat("busy langchain", max_retries=2), anything),
    }


def with_litellm():
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    import litellm

    litellm.suppress_debug_info = True
    at = {"api_base": URL, "api_key": KEY, "max_retries": 0}

    def complete(text="hello there", **more):
        return litellm.completion(**({"model": "openai/default", "messages": user(text)} | at | more))

    def chat(text="hello there", **more):
        return complete(text, **more).choices[0].message.content

    def streamed():
        text, tokens = "", 0
        for chunk in complete(stream=True, stream_options={"include_usage": True}):
            text += "".join(choice.delta.content or "" for choice in chunk.choices)
            tokens = getattr(getattr(chunk, "usage", None), "total_tokens", 0) or tokens
        return text, tokens > 0

    def tools():
        messages = user("look please")
        said = complete(messages=messages, tools=[TOOL]).choices[0].message
        messages.append(said)
        for call in said.tool_calls:
            name = json.loads(call.function.arguments)["name"]
            messages.append({"role": "tool", "tool_call_id": call.id, "content": f"saw {name}"})
        return complete(messages=messages, tools=[TOOL]).choices[0].message.content

    def responses():
        reply = litellm.responses(**({"model": "openai/default", "input": "hello there"} | at))
        return reply.output[0].content[0].text

    return {
        "chat": cell(chat, "Hello!"),
        "stream with usage": cell(streamed, ("Hello!", True)),
        "top_p": cell(lambda: chat(top_p=0.5), "Hello!"),
        "session by `user`": cell(
            lambda: [chat(text, extra_body={"user": "litellm"}) for text in ("one", "two")],
            ["reply to: one", "reply to: two"],
        ),
        "tools": cell(tools, "I saw it."),
        "structured output": cell(
            lambda: json.loads(chat("who is it?", response_format={"type": "json_object"})),
            {"name": "Ada"},
        ),
        "picture": cell(lambda: chat(SHOWN), "reply to: what is it?"),
        "Responses": cell(responses, "Hello!"),
        "embeddings": cell(
            # It keeps the first part of the name to itself.
            lambda: litellm.embedding(**({"model": "openai/embedder", "input": ["x"]} | at))
            .data[0]["embedding"],
            VECTOR,
        ),
        "unknown model": cell(lambda: chat(model="openai/nobody"), anything),
        "wrong key": cell(lambda: chat(api_key="wrong"), anything),
        "provider is busy": cell(lambda: chat("busy litellm", max_retries=2), anything),
    }


def with_pydantic():
    import openai
    from pydantic import BaseModel
    from pydantic_ai import Agent, BinaryContent, Embedder, NativeOutput
    from pydantic_ai.embeddings.openai import OpenAIEmbeddingModel
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    class Person(BaseModel):
        name: str

    def provider(key=KEY, retries=0):
        client = openai.AsyncOpenAI(base_url=URL, api_key=key, max_retries=retries, timeout=60)
        return OpenAIProvider(openai_client=client)

    def agent(name="default", kind=OpenAIChatModel, output=str, **more):
        return Agent(kind(name, provider=provider(**more)), output_type=output)

    def chat(text="hello there", settings=None, **more):
        return agent(**more).run_sync(text, model_settings=settings).output

    def streamed():
        with agent().run_stream_sync("hello there") as result:
            text = list(result.stream_text())[-1]
            return text, result.usage.total_tokens > 0

    def conversation():
        first = agent().run_sync("one")
        return agent().run_sync("two", message_history=first.all_messages()).output

    def tools(kind):
        one = agent(kind=kind)

        @one.tool_plain
        def look(name: str) -> str:
            return f"saw {name}"

        return one.run_sync("look please").output

    def embeds():
        embedder = Embedder(OpenAIEmbeddingModel("openai/embedder", provider=provider()))
        return list(embedder.embed_query_sync("x").embeddings[0])

    named = {"openai_user": "pydantic"}
    return {
        "chat": cell(chat, "Hello!"),
        "stream with usage": cell(streamed, ("Hello!", True)),
        "top_p": cell(lambda: chat(settings={"top_p": 0.5}), "Hello!"),
        "session by `user`": cell(
            lambda: [chat(text, named) for text in ("one", "two")], ["reply to: one", "reply to: two"]
        ),
        "conversation": cell(conversation, "reply to: two"),
        "tools": cell(lambda: tools(OpenAIChatModel), "I saw it."),
        "structured output": cell(lambda: chat("who is it?", output=NativeOutput(Person)).name, "Ada"),
        "picture": cell(
            lambda: chat(["what is it?", BinaryContent(base64.b64decode(PICTURE), media_type="image/png")]),
            "reply to: what is it?",
        ),
        "Responses": cell(lambda: tools(OpenAIResponsesModel), "I saw it."),
        "embeddings": cell(embeds, VECTOR),
        "unknown model": cell(lambda: chat(name="nobody"), anything),
        "wrong key": cell(lambda: chat(key="wrong"), anything),
        "provider is busy": cell(lambda: chat("busy pydantic", retries=2), anything),
    }


def with_llm():
    folder = os.path.join(os.environ["HOME"], "llm")
    os.makedirs(folder, exist_ok=True)
    about = {
        "model_id": "claw", "model_name": "default", "api_base": URL, "api_key_name": "claw",
        "vision": True, "supports_tools": True, "supports_schema": True,
    }
    other = about | {"model_id": "other", "model_name": "nobody"}
    with open(os.path.join(folder, "extra-openai-models.yaml"), "w") as file:
        json.dump([about, other], file)
    with open(os.path.join(folder, "keys.json"), "w") as file:
        json.dump({"claw": KEY}, file)
    picture = os.path.join(folder, "picture.png")
    with open(picture, "wb") as file:
        file.write(base64.b64decode(PICTURE))

    def llm(*args):
        ran = subprocess.run(
            [sys.executable, "-m", "llm", *args], capture_output=True, text=True, check=False,
            stdin=subprocess.DEVNULL, env=os.environ | {"LLM_USER_PATH": folder},
        )
        if ran.returncode:
            raise RuntimeError(ran.stderr)
        return ran.stdout.strip()

    def ask(*args):
        return llm("-m", "claw", *args)

    look = 'def look(name: str) -> str:\n    "Looks."\n    return f"saw {name}"'
    return {
        "chat": cell(lambda: ask("--no-stream", "hello there"), "Hello!"),
        "stream with usage": cell(lambda: ask("hello there"), "Hello!"),
        "conversation": cell(lambda: llm("-c", "two"), "reply to: two"),
        "top_p": cell(lambda: ask("-o", "top_p", "0.5", "hello there"), "Hello!"),
        "tools": cell(lambda: ask("--functions", look, "look please"), "I saw it."),
        "structured output": cell(
            lambda: json.loads(ask("--schema", json.dumps(SCHEMA), "who is it?")), {"name": "Ada"}
        ),
        "picture": cell(lambda: ask("what is it?", "-a", picture), "reply to: what is it?"),
        "unknown model": cell(lambda: llm("-m", "other", "hello there"), anything),
        "wrong key": cell(lambda: ask("--key", "wrong", "hello there"), anything),
        "provider is busy": cell(lambda: ask("busy llm"), anything),
    }


CLIENTS = {
    "openai": with_openai,
    "anthropic": with_anthropic,
    "langchain": with_langchain,
    "litellm": with_litellm,
    "pydantic": with_pydantic,
    "llm": with_llm,
}

if __name__ == "__main__":
    print(json.dumps(CLIENTS[sys.argv[1]]()))
