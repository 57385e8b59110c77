"""The requests of OpenAI's own examples of function calling, in their order and with their parameters: their models are
agents of the node.

- https://developers.openai.com/api/docs/guides/function-calling, for chat completions and for responses
- https://github.com/openai/openai-python/blob/main/examples/responses/tool_call_loop.py: calls of several tools at once,
  whose results continue the response before

Reads OPENAI_BASE_URL and OPENAI_API_KEY, as the client does. Prints one JSON document: the last text of each, and the
chat completion of the first as it is read again by its id.
"""

import json

from openai import OpenAI

client = OpenAI()


def get_weather(latitude, longitude):
    return f"14 degrees at {latitude} {longitude}"


def get_horoscope(sign):
    return f"{sign}: Next Tuesday you will befriend a baby otter."


def chat():
    tools = [
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "description": "Get current temperature for provided coordinates in celsius.",
                "parameters": {
                    "type": "object",
                    "properties": {"latitude": {"type": "number"}, "longitude": {"type": "number"}},
                    "required": ["latitude", "longitude"],
                    "additionalProperties": False,
                },
                "strict": True,
            },
        }
    ]
    messages = [{"role": "user", "content": "What's the weather like in Paris today?"}]
    completion = client.chat.completions.create(model="gpt-5", messages=messages, tools=tools)

    tool_call = completion.choices[0].message.tool_calls[0]
    args = json.loads(tool_call.function.arguments)
    result = get_weather(args["latitude"], args["longitude"])

    messages.append(completion.choices[0].message)
    messages.append({"role": "tool", "tool_call_id": tool_call.id, "content": str(result)})
    completion_2 = client.chat.completions.create(model="gpt-5", messages=messages, tools=tools)
    return completion_2.choices[0].message.content


def loop():
    def function(name, field, about):
        parameters = {"type": "object", "properties": {field: {"type": "string"}}, "required": [field]}
        return {"type": "function", "name": name, "description": about, "parameters": parameters}

    tools = [
        function("get_weather", "city", "Get the current weather for a city."),
        function("calculate", "expression", "Evaluate a mathematical expression."),
    ]
    run = {"get_weather": lambda city: f"clear in {city}", "calculate": lambda expression: f"{expression} = 4233600"}
    text = "What's the weather like in Tokyo and London? Also, how many seconds are in 7 weeks?"
    response = client.responses.create(model="gpt-4o-mini", input=text, tools=tools)
    for _ in range(10):
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            return response.output_text
        outputs = [
            {
                "type": "function_call_output",
                "call_id": call.call_id,
                "output": run[call.name](**json.loads(call.arguments)),
            }
            for call in calls
        ]
        response = client.responses.create(
            model="gpt-4o-mini", previous_response_id=response.id, input=outputs, tools=tools
        )
    raise RuntimeError("the model calls tools without an end")


def stored():
    """A chat completion is stored with its session, and read again by its id."""
    made = client.chat.completions.create(
        model="gpt-5",
        messages=[{"role": "user", "content": "hello there"}],
        store=True,
        metadata={"topic": "demo"},
    )
    read = client.chat.completions.retrieve(made.id)
    return [read.choices[0].message.content == made.choices[0].message.content, read.metadata]


def responses():
    tools = [
        {
            "type": "function",
            "name": "get_horoscope",
            "description": "Get today's horoscope for an astrological sign.",
            "parameters": {
                "type": "object",
                "properties": {
                    "sign": {"type": "string", "description": "An astrological sign like Taurus or Aquarius"},
                },
                "required": ["sign"],
            },
        },
    ]
    input_list = [{"role": "user", "content": "What is my horoscope? I am an Aquarius."}]
    response = client.responses.create(model="gpt-5", tools=tools, input=input_list)

    input_list += response.output
    for item in response.output:
        if item.type == "function_call":
            if item.name == "get_horoscope":
                horoscope = get_horoscope(json.loads(item.arguments)["sign"])
                input_list.append(
                    {
                        "type": "function_call_output",
                        "call_id": item.call_id,
                        "output": json.dumps({"horoscope": horoscope}),
                    }
                )

    response = client.responses.create(
        model="gpt-5",
        instructions="Respond only with a horoscope generated by a tool.",
        tools=tools,
        input=input_list,
    )
    return response.output_text


print(json.dumps({"chat": chat(), "responses": responses(), "loop": loop(), "stored": stored()}))
