"""The official OpenAI client with its own retries and a short timeout.

Reads OPENAI_BASE_URL and OPENAI_API_KEY, as the client does. Prints one JSON document: the name of the
error that each call ended with.
"""

import json

import openai

ended = {}
for user, timeout in [("fails", 60), ("waits", 1)]:
    client = openai.OpenAI(timeout=timeout)
    try:
        client.chat.completions.create(
            model="default", user=user, messages=[{"role": "user", "content": user}]
        )
    except openai.OpenAIError as error:
        ended[user] = type(error).__name__
print(json.dumps(ended))
