// One client's part of the table of clients, as `tests/python/clients.py` has it:
//
//     clients.mjs FOLDER openai|anthropic|vercel
//
// The packages are those in FOLDER. Reads OPENAI_BASE_URL and OPENAI_API_KEY, or the same of ANTHROPIC, and
// prints one JSON document, from the feature to how it ended.

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, client] = process.argv.slice(2);
const baseURL = process.env.OPENAI_BASE_URL;
const apiKey = process.env.OPENAI_API_KEY;
const modules = createRequire(`${folder}/`);
const load = (name) => import(pathToFileURL(modules.resolve(name)).href);

const PICTURE = Buffer.from(
  "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c4944415408d763f8cfc0" +
    "000003010100c9fe92ef0000000049454e44ae426082",
  "hex",
);
/// What the scripted provider answers for the text `x`.
const VECTOR = Array(8).fill(30);
const SCHEMA = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };

/// How a client tells an error: the status, and what the node's message names.
function ended(error) {
  const of = error.lastError ?? error;
  const status = of.status ?? of.statusCode ?? of.name;
  const text = `${of.responseBody ?? ""} ${of.message}`;
  const named = text.match(/`(\/?[A-Za-z_][\w/]*)`/);
  return `${status} ${named ? named[1] : "(nothing named)"}`;
}

/// Runs one feature; without `expected` whatever it returns is good.
async function cell(does, expected) {
  try {
    const got = JSON.stringify(await does());
    const good = expected === undefined || got === JSON.stringify(expected);
    return good ? "ok" : `broken: ${got}`;
  } catch (error) {
    return ended(error);
  }
}

const user = (content) => [{ role: "user", content }];

async function withOpenai() {
  const { default: OpenAI } = await load("openai");
  const one = new OpenAI({ maxRetries: 0 });
  const create = (content, more = {}, by = one) =>
    by.chat.completions.create({ model: "default", messages: user(content), ...more });
  const chat = async (...args) => (await create(...args)).choices[0].message.content;
  const streamed = async () => {
    let [text, tokens] = ["", 0];
    const more = { stream: true, stream_options: { include_usage: true } };
    for await (const chunk of await create("hello there", more)) {
      text += chunk.choices.map((choice) => choice.delta.content ?? "").join("");
      tokens = chunk.usage?.total_tokens ?? tokens;
    }
    return [text, tokens > 0];
  };
  const tool = { type: "function", function: { name: "look", parameters: SCHEMA } };
  const tools = async () => {
    const messages = user("look please");
    const ask = () => one.chat.completions.create({ model: "default", messages, tools: [tool] });
    const said = (await ask()).choices[0];
    messages.push(said.message);
    for (const call of said.message.tool_calls) {
      const { name } = JSON.parse(call.function.arguments);
      messages.push({ role: "tool", tool_call_id: call.id, content: `saw ${name}` });
    }
    const answer = (await ask()).choices[0];
    return [said.finish_reason, answer.finish_reason, answer.message.content];
  };
  const runner = () => {
    const runs = { parse: JSON.parse, function: ({ name }) => `saw ${name}` };
    const own = { ...tool, function: { ...tool.function, description: "Looks.", ...runs } };
    const asked = { model: "default", messages: user("look please"), tools: [own] };
    return one.chat.completions.runTools(asked).finalContent();
  };
  const parsed = async () => {
    const { zodResponseFormat } = await load("openai/helpers/zod");
    const { z } = await load("zod");
    const response_format = zodResponseFormat(z.object({ name: z.string() }), "person");
    const asked = { model: "default", messages: user("who is it?"), response_format };
    return (await one.chat.completions.parse(asked)).choices[0].message.parsed;
  };
  const background = async () => {
    const asked = { model: "default", input: "hello there", background: true };
    let response = await one.responses.create(asked);
    const until = Date.now() + 60_000;
    while (["queued", "in_progress"].includes(response.status) && Date.now() < until) {
      await new Promise((resolve) => setTimeout(resolve, 50));
      response = await one.responses.retrieve(response.id);
    }
    return response.output_text;
  };
  const files = async () => {
    const named = await (await load("openai")).toFile(PICTURE, "picture.png");
    const file = await one.files.create({ file: named, purpose: "user_data" });
    const content = Buffer.from(await (await one.files.content(file.id)).arrayBuffer());
    const part = { type: "file", file: { file_id: file.id } };
    const seen = await chat([{ type: "text", text: "seen?" }, part]);
    const listed = (await one.files.list()).data.map((other) => other.id).includes(file.id);
    const { deleted } = await one.files.delete(file.id);
    return [content.equals(PICTURE), seen, file.filename, listed, deleted];
  };
  const url = `data:image/png;base64,${PICTURE.toString("base64")}`;
  const shown = [
    { type: "text", text: "what is it?" },
    { type: "image_url", image_url: { url } },
  ];
  return {
    models: await cell(async () => (await one.models.list()).data.map((it) => it.id), ["default"]),
    chat: await cell(() => chat("hello there"), "Hello!"),
    "stream with usage": await cell(streamed, ["Hello!", true]),
    top_p: await cell(() => chat("hello there", { top_p: 0.5 }), "Hello!"),
    "session by `user`": await cell(
      async () => [await chat("one", { user: "openai-js" }), await chat("two", { user: "openai-js" })],
      ["reply to: one", "reply to: two"],
    ),
    tools: await cell(tools, ["tool_calls", "stop", "I saw it."]),
    "its own tool loop": await cell(runner, "I saw it."),
    "structured output": await cell(parsed, { name: "Ada" }),
    picture: await cell(() => chat(shown), "reply to: what is it?"),
    files: await cell(files, [true, "reply to: seen?", "picture.png", true, true]),
    Responses: await cell(
      async () => {
        const asked = { model: "default", input: "hello there" };
        const whole = await one.responses.create(asked);
        const stream = one.responses.stream(asked);
        return [whole.output_text, (await stream.finalResponse()).output_text];
      },
      ["Hello!", "Hello!"],
    ),
    "in the background": await cell(background, "Hello!"),
    embeddings: await cell(async () => {
      const reply = await one.embeddings.create({ model: "openai/embedder", input: "x" });
      return reply.data[0].embedding;
    }, VECTOR),
    "unknown model": await cell(() => chat("x", { model: "nobody" })),
    "wrong key": await cell(() => new OpenAI({ maxRetries: 0, apiKey: "wrong" }).models.list()),
    "provider is busy": await cell(() => chat("busy openai-js", {}, new OpenAI())),
  };
}

async function withAnthropic() {
  const { default: Anthropic } = await load("@anthropic-ai/sdk");
  const one = new Anthropic({ maxRetries: 0 });
  const asked = (content, more) => ({
    model: "default",
    max_tokens: 2048,
    messages: user(content),
    ...more,
  });
  const create = (content, more = {}, by = one) => by.messages.create(asked(content, more));
  const textOf = (message) =>
    message.content.map((block) => (block.type === "text" ? block.text : "")).join("");
  const chat = async (...args) => textOf(await create(...args));
  const streamed = async () => {
    const stream = one.messages.stream(asked("hello there"));
    const message = await stream.finalMessage();
    return [textOf(message), message.usage.output_tokens > 0];
  };
  const look = { name: "look", description: "Looks.", input_schema: SCHEMA };
  const tools = async () => {
    const messages = user("look please");
    const ask = () => create("", { messages, tools: [look] });
    const said = await ask();
    messages.push({ role: "assistant", content: said.content });
    const calls = said.content.filter((block) => block.type === "tool_use");
    const content = calls.map(({ id, input }) => ({
      type: "tool_result",
      tool_use_id: id,
      content: `saw ${input.name}`,
    }));
    messages.push({ role: "user", content });
    const answer = await ask();
    return [said.stop_reason, answer.stop_reason, textOf(answer)];
  };
  const runner = async () => {
    const { betaTool } = await load("@anthropic-ai/sdk/helpers/beta/json-schema");
    const run = ({ name }) => `saw ${name}`;
    const own = betaTool({ name: "look", description: "Looks.", inputSchema: SCHEMA, run });
    return textOf(await one.beta.messages.toolRunner(asked("look please", { tools: [own], thread: false })));
  };
  const thought = async () => {
    const thinking = { type: "enabled", budget_tokens: 1024 };
    const stream = one.messages.stream(asked("think please", { thinking }));
    const [first, second] = (await stream.finalMessage()).content;
    return [first.thinking, first.signature.length > 0, second.text];
  };
  const data = PICTURE.toString("base64");
  const shown = [
    { type: "text", text: "what is it?" },
    { type: "image", source: { type: "base64", media_type: "image/png", data } },
  ];
  const metadata = { user_id: "anthropic-js" };
  return {
    models: await cell(async () => (await one.models.list()).data.map((it) => it.id), ["default"]),
    chat: await cell(() => chat("hello there"), "Hello!"),
    "stream with usage": await cell(streamed, ["Hello!", true]),
    top_p: await cell(() => chat("hello there", { top_p: 0.5 }), "Hello!"),
    "session by `user`": await cell(
      async () => [await chat("one", { metadata }), await chat("two", { metadata })],
      ["reply to: one", "reply to: two"],
    ),
    tools: await cell(tools, ["tool_use", "end_turn", "I saw it."]),
    "its own tool loop": await cell(runner, "I saw it."),
    thinking: await cell(thought, ["Let me see.", true, "It is red."]),
    "structured output": await cell(
      async () => {
        const format = { type: "json_schema", schema: SCHEMA };
        return JSON.parse(await chat("who is it?", { output_config: { format } }));
      },
      { name: "Ada" },
    ),
    picture: await cell(() => chat(shown), "reply to: what is it?"),
    "count tokens": await cell(
      async () =>
        (await one.messages.countTokens({ model: "default", messages: user("x") })).input_tokens > 0,
      true,
    ),
    "unknown model": await cell(() => chat("x", { model: "nobody" })),
    "wrong key": await cell(() => chat("x", {}, new Anthropic({ maxRetries: 0, apiKey: "wrong" }))),
    "provider is busy": await cell(() => chat("busy anthropic-js", {}, new Anthropic())),
  };
}

async function withVercel() {
  const ai = await load("ai");
  const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");
  const can = { includeUsage: true, supportsStructuredOutputs: true };
  const at = (more) => createOpenAICompatible({ name: "claw", baseURL, apiKey, ...can, ...more });
  const ask = async (more) =>
    (await ai.generateText({
      model: at()("default"),
      ...(more?.messages ? {} : { prompt: "hello there" }),
      maxRetries: 0,
      ...more,
    })).text;
  const streamed = async () => {
    const result = ai.streamText({ model: at()("default"), prompt: "hello there", maxRetries: 0 });
    let text = "";
    for await (const part of result.fullStream) {
      if (part.type === "error") throw part.error;
      if (part.type === "text-delta") text += part.text;
    }
    return [text, (await result.usage).totalTokens > 0];
  };
  const inputSchema = ai.jsonSchema(SCHEMA);
  const look = ai.tool({ inputSchema, execute: ({ name }) => `saw ${name}` });
  // Its provider for OpenAI refers to what was said by the ids of items.
  const responses = async () => {
    const { createOpenAI } = await load("@ai-sdk/openai");
    const model = createOpenAI({ baseURL, apiKey })("default");
    const asked = { model, tools: { look }, stopWhen: ai.stepCountIs(2), maxRetries: 0 };
    const first = await ai.generateText({ ...asked, prompt: "look please" });
    const messages = [...user("look please"), ...first.response.messages, ...user("two")];
    return [first.text, (await ai.generateText({ ...asked, messages })).text];
  };
  const named = { providerOptions: { claw: { user: "vercel" } } };
  const shown = [
    { type: "text", text: "what is it?" },
    { type: "image", image: PICTURE, mediaType: "image/png" },
  ];
  return {
    chat: await cell(() => ask(), "Hello!"),
    "stream with usage": await cell(streamed, ["Hello!", true]),
    top_p: await cell(() => ask({ topP: 0.5 }), "Hello!"),
    "session by `user`": await cell(
      async () => [await ask({ prompt: "one", ...named }), await ask({ prompt: "two", ...named })],
      ["reply to: one", "reply to: two"],
    ),
    tools: await cell(
      () =>
        ask({
          prompt: "look please",
          tools: { look },
          stopWhen: ai.stepCountIs(2),
        }),
      "I saw it.",
    ),
    "structured output": await cell(
      async () => {
        const asked = { schema: inputSchema, prompt: "who is it?", maxRetries: 0 };
        return (await ai.generateObject({ model: at()("default"), ...asked })).object;
      },
      { name: "Ada" },
    ),
    picture: await cell(() => ask({ messages: user(shown) }), "reply to: what is it?"),
    Responses: await cell(responses, ["I saw it.", "reply to: two"]),
    embeddings: await cell(async () => {
      const model = at().embeddingModel("openai/embedder");
      return (await ai.embed({ model, value: "x", maxRetries: 0 })).embedding;
    }, VECTOR),
    "unknown model": await cell(() => ask({ model: at()("nobody") })),
    "wrong key": await cell(() => ask({ model: at({ apiKey: "wrong" })("default") })),
    "provider is busy": await cell(() => ask({ prompt: "busy vercel", maxRetries: 2 })),
  };
}

const clients = { openai: withOpenai, anthropic: withAnthropic, vercel: withVercel };
console.log(JSON.stringify(await clients[client]()));
