"""A plugin of clawnode in Python: says what it was told, counts what it remembers, fetches, and keeps."""

import json

from componentize_py_types import Err
from wit_world.imports import http, store
from wit_world.imports.types import Call, EffectClass, Risk, ToolSpec

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
URL = {"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]}

calls = 0


def tool(name: str, description: str, schema: dict) -> ToolSpec:
    return ToolSpec(name, description, json.dumps(schema), EffectClass.SAFE, Risk.READ_ONLY)


class WitWorld:
    def describe(self) -> list[ToolSpec]:
        return [
            tool("say", "Says the text that it is told.", TEXT),
            tool("count", "Says how often it was called.", {"type": "object"}),
            tool("fetch", "Fetches a URL and says what is there.", URL),
            tool("keep", "Keeps a text, and says which one it kept before.", TEXT),
            tool("refuse", "Says that it cannot.", {"type": "object"}),
            tool("panic", "Breaks.", {"type": "object"}),
        ]

    def handle_tool_call(self, call: Call) -> str:
        global calls
        calls += 1
        arguments = json.loads(call.arguments)
        match call.tool:
            case "say":
                return arguments["text"]
            case "count":
                return str(calls)
            case "fetch":
                reply = http.fetch(http.Request(http.Method.GET, arguments["url"], []))
                return f"{reply.status} {reply.body.decode()}"
            case "keep":
                before = store.get("notes", "text")
                store.put("notes", "text", arguments["text"].encode(), None)
                return before.value.decode() if before else "nothing"
            case "refuse":
                raise Err("not today")
            case "panic":
                raise RuntimeError("on purpose")
            case other:
                raise Err(f"there is no tool `{other}`")
