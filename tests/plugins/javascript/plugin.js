// A plugin of clawnode in JavaScript: says what it was told, counts what it remembers, fetches, and keeps.

import { fetch as get } from 'clawnode:plugin/http@0.1.0';
import * as store from 'clawnode:plugin/store@0.1.0';

const TEXT = { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] };
const URL_OF = { type: 'object', properties: { url: { type: 'string' } }, required: ['url'] };

let calls = 0;

const tool = (name, description, schema) => ({
  name,
  description,
  inputSchema: JSON.stringify(schema),
  class: 'safe',
  risk: 'read-only',
});

export function describe() {
  return [
    tool('say', 'Says the text that it is told.', TEXT),
    tool('count', 'Says how often it was called.', { type: 'object' }),
    tool('fetch', 'Fetches a URL and says what is there.', URL_OF),
    tool('keep', 'Keeps a text, and says which one it kept before.', TEXT),
    tool('refuse', 'Says that it cannot.', { type: 'object' }),
    tool('panic', 'Breaks.', { type: 'object' }),
  ];
}

export function handleToolCall(call) {
  calls += 1;
  const given = JSON.parse(call.arguments);
  switch (call.tool) {
    case 'say':
      return given.text;
    case 'count':
      return String(calls);
    case 'fetch': {
      const reply = get({ method: 'get', url: given.url, headers: [] });
      return `${reply.status} ${new TextDecoder().decode(reply.body)}`;
    }
    case 'keep': {
      const before = store.get('notes', 'text');
      store.put('notes', 'text', new TextEncoder().encode(given.text), undefined);
      return before ? new TextDecoder().decode(before.value) : 'nothing';
    }
    // What is thrown is the error of the call.
    case 'refuse':
      throw 'not today';
    case 'panic':
      return undefined.on.purpose;
    default:
      throw `there is no tool \`${call.tool}\``;
  }
}
