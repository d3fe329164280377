// Models, completions, embeddings.

import { chunksOf, connect, tell } from "./client.mjs";

const client = connect();
const models = [];
for await (const { id } of client.models.list()) models.push(id);
const whole = await client.completions.create({ model: "auto", prompt: "def f():", max_tokens: 5 });
const pieces = await chunksOf(await client.completions.create({ model: "auto", prompt: "a b c", stream: true }));
const embeddings = await client.embeddings.create({ model: "auto", input: ["ab", "abc"], encoding_format: "float" });
const packed = await client.embeddings.create({ model: "auto", input: "x" });

tell({
  models,
  whole: whole.choices[0].text,
  streamed: pieces.map(({ choices }) => choices[0].text).join(""),
  embeddings: embeddings.data.map(({ embedding }) => embedding),
  packed: packed.data[0].embedding,
});
