// A small language model behind OpenAI's chat completions, streamed; only what a test needs.
// Usage: node server.mjs MODEL.gguf PORT-FILE, with node-llama-cpp found from here or NODE_PATH.
import { createServer } from "node:http";
import { writeFileSync, renameSync } from "node:fs";
import { getLlama, LlamaChatSession } from "node-llama-cpp";

const [modelPath, portFile] = process.argv.slice(2);
const llama = await getLlama({ gpu: false, build: "never", skipDownload: true, maxThreads: 2 });
const model = await llama.loadModel({ modelPath });

const roles = {
  system: (text) => ({ type: "system", text }),
  user: (text) => ({ type: "user", text }),
  assistant: (text) => ({ type: "model", response: [text] }),
};

async function complete(request, response) {
  const history = request.messages.map(({ role, content }) => roles[role](content));
  const { text: asked } = history.pop();
  const context = await model.createContext({ contextSize: 1024 });
  const sequence = context.getSequence();
  const session = new LlamaChatSession({ contextSequence: sequence });
  session.setChatHistory(history);
  const id = "chatcmpl-real";
  const send = (fields) =>
    response.write(`data: ${JSON.stringify({ id, object: "chat.completion.chunk", model: request.model, ...fields })}\n\n`);
  const choice = (delta, finish_reason = null) => ({ choices: [{ index: 0, delta, finish_reason }] });
  response.writeHead(200, { "content-type": "text/event-stream" });
  send(choice({ role: "assistant", content: "" }));
  const before = sequence.tokenMeter.getState();
  const { stopReason } = await session.promptWithMeta(asked, {
    maxTokens: request.max_completion_tokens ?? request.max_tokens ?? 64,
    temperature: 0,
    onTextChunk: (content) => send(choice({ content })),
  });
  const used = sequence.tokenMeter.diff(before);
  send(choice({}, stopReason === "maxTokens" ? "length" : "stop"));
  const [prompt_tokens, completion_tokens] = [used.usedInputTokens, used.usedOutputTokens];
  send({ choices: [], usage: { prompt_tokens, completion_tokens, total_tokens: prompt_tokens + completion_tokens } });
  response.end("data: [DONE]\n\n");
  await context.dispose();
}

const server = createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  if (request.method !== "POST" || request.url !== "/v1/chat/completions") {
    response.writeHead(404).end();
    return;
  }
  await complete(JSON.parse(Buffer.concat(chunks).toString("utf8")), response);
});
server.listen(0, "127.0.0.1", () => {
  writeFileSync(`${portFile}.new`, String(server.address().port));
  renameSync(`${portFile}.new`, portFile);
});
