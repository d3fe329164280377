// A long event and a long prompt.

import { createHash } from "node:crypto";

import { chunksOf, connect, input, say, tell } from "./client.mjs";

const { completions } = connect().chat;
const chunks = await chunksOf(await completions.create({ model: "auto", messages: say(), stream: true }));
const answer = await completions.create({ model: "auto", messages: say("0123456789abcdef".repeat(input / 16)) });

tell({
  hashes: chunks.map(({ choices }) => createHash("sha256").update(choices[0].delta.content ?? "").digest("hex")),
  answer: answer.choices[0].message.content,
});
