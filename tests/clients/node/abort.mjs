// Leaves a call in the way that is named, says so, and lives on until its input ends.

import { connect, failure, input, say, tell } from "./client.mjs";

const controller = new AbortController();
const options = input === "timeout" ? { timeout: 300 } : { signal: controller.signal };
const { completions } = connect().chat;
const start = (stream) => completions.create({ model: "auto", messages: say(), stream }, options);

async function leave() {
  if (input === "timeout") return failure(start(false));
  if (input === "signal, plain") {
    const answer = failure(start(false));
    process.stdin.once("data", () => controller.abort()); // the test knows when the upstream has the call
    return answer;
  }
  const stream = await start(true);
  for await (const _ of stream) {
    if (input === "break") break;
    if (input === "signal") controller.abort();
    if (input === "controller") stream.controller.abort();
  }
  return null;
}

tell(await leave());
process.stdin.resume();
