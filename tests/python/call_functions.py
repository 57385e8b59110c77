"""The requests of OpenAI's own examples of function calling, in their order, with their parameters and with the results
that they send: their models are agents of the node.

- https://developers.openai.com/api/docs/guides/function-calling, for chat completions (`gpt-4o`) and for responses, as
  the guide had it for `gpt-5` and as it has it since for `gpt-6-astra`
- https://github.com/openai/openai-python/blob/main/examples/responses/tool_call_loop.py: calls of several tools at once,
  whose results continue the response before (`gpt-4o-mini`)

Reads OPENAI_BASE_URL and OPENAI_API_KEY, as the client does. Prints one JSON document: the last text of each, and the
chat completion of the first as it is read again by its id.
"""

import json

from openai import OpenAI

client = OpenAI()


def parameters(**properties):
    return {"type": "object", "properties": properties, "required": list(properties)}


def chat():
    function = {
        "name": "get_weather",
        "description": "Get current temperature for provided coordinates in celsius.",
        "parameters": parameters(latitude={"type": "number"}, longitude={"type": "number"})
        | {"additionalProperties": False},
        "strict": True,
    }
    tools = [{"type": "function", "function": function}]
    messages = [{"role": "user", "content": "What's the weather like in Paris today?"}]
    completion = client.chat.completions.create(model="gpt-4o", messages=messages, tools=tools)

    tool_call = completion.choices[0].message.tool_calls[0]
    args = json.loads(tool_call.function.arguments)
    # The example asks a server for the weather at this place.
    result = {(48.85, 2.35): 14.2}[args["latitude"], args["longitude"]]

    messages.append(completion.choices[0].message)
    messages.append({"role": "tool", "tool_call_id": tool_call.id, "content": str(result)})
    completion_2 = client.chat.completions.create(model="gpt-4o", messages=messages, tools=tools)
    return completion_2.choices[0].message.content


WEATHER = {
    "tokyo": {"temperature": "18°C", "condition": "clear"},
    "london": {"temperature": "12°C", "condition": "overcast"},
}


def loop():
    def function(name, about, **properties):
        return {"type": "function", "name": name, "description": about, "parameters": parameters(**properties)}

    def text(about):
        return {"type": "string", "description": about}

    tools = [
        function("get_weather", "Get the current weather for a city.", city=text("The city name, e.g. 'Tokyo'.")),
        function(
            "calculate",
            "Evaluate a mathematical expression using Python arithmetic and the math module.",
            expression=text("A Python arithmetic expression, e.g. '7 * 24 * 3600'."),
        ),
    ]
    run = {
        "get_weather": lambda city: json.dumps({"city": city, **WEATHER[city.lower()]}),
        "calculate": lambda expression: {"7 * 7 * 24 * 3600": "4233600"}[expression],
    }
    asked = "What's the weather like in Tokyo and London? Also, how many seconds are in 7 weeks?"
    response = client.responses.create(model="gpt-4o-mini", input=asked, tools=tools)
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


def responses(model, output):
    """`output` makes of a call's arguments what the example sends back."""
    sign = {"type": "string", "description": "An astrological sign like Taurus or Aquarius"}
    about = "Get today's horoscope for an astrological sign."
    tools = [
        {"type": "function", "name": "get_horoscope", "description": about, "parameters": parameters(sign=sign)}
    ]
    input_list = [{"role": "user", "content": "What is my horoscope? I am an Aquarius."}]
    response = client.responses.create(model=model, tools=tools, input=input_list)

    input_list += response.output
    for item in response.output:
        if item.type == "function_call" and item.name == "get_horoscope":
            found = output(json.loads(item.arguments))
            input_list.append({"type": "function_call_output", "call_id": item.call_id, "output": found})

    response = client.responses.create(
        model=model,
        instructions="Respond only with a horoscope generated by a tool.",
        tools=tools,
        input=input_list,
    )
    # The example prints the whole response as JSON.
    return [json.loads(response.model_dump_json(indent=2))["status"], response.output_text]


def horoscope(sign):
    return f"{sign}: Next Tuesday you will befriend a baby otter."


said = {
    "chat": chat(),
    # It takes all arguments for the sign.
    "responses": responses("gpt-5", lambda arguments: json.dumps({"horoscope": horoscope(arguments)})),
    "newer": responses("gpt-6-astra", lambda arguments: horoscope(arguments["sign"])),
    "loop": loop(),
    "stored": stored(),
}
print(json.dumps(said))
