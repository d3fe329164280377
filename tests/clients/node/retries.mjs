// One call per turn; tells how often each was sent and how long the SDK chose to wait. Input: [fields]

import { chunksOf, connect, failure, input, say, tell, textOf } from "./client.mjs";

const waits = [];
const { setTimeout: later } = globalThis;
globalThis.setTimeout = (act, milliseconds, ...rest) => {
  // Of all timers the SDK's; a long one is the timeout of its request.
  if (milliseconds < 10_000 && new Error().stack.includes("/openai/")) waits.push(milliseconds);
  return later(act, milliseconds, ...rest);
};

const turns = [];
for (const fields of input) {
  let text = null;
  let sent = 0;
  const counted = (...request) => (sent++, fetch(...request));
  const { completions } = connect({ maxRetries: 2, fetch: counted }).chat;
  const answer = completions.create({ model: "auto", messages: say(), ...fields });
  const failed = await failure(
    fields.stream
      ? answer.then(chunksOf).then((chunks) => (text = textOf(chunks)))
      : answer.then(({ choices }) => (text = choices[0].message.content)),
  );
  turns.push({ text, sent, waits: waits.splice(0), failed });
}
tell(turns);
