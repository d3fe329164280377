// Tools, plain and streamed by the SDK's own collector; JSON, several choices, logprobs, images, unknown fields.

import { chunksOf, connect, input, say, tell } from "./client.mjs";

const { completions } = connect().chat;
const ask = { model: "auto", messages: say(), tools: input.tools, parallel_tool_calls: true };
const read = ({ id, function: f }) => [id, f.name, JSON.parse(f.arguments)];

const plain = await completions.create({ ...ask, tool_choice: "required" });
const streamed = await completions.stream(ask).finalChatCompletion();
const several = await completions.create({ model: "auto", messages: say(), n: 2, logprobs: true, stream: true });
await completions.create({ model: "auto", messages: input.messages, ...input.fields });

tell({
  plain: plain.choices[0].message.tool_calls.map(read),
  streamed: streamed.choices[0].message.tool_calls.map(read),
  finish: streamed.choices[0].finish_reason,
  several: (await chunksOf(several)).flatMap(({ choices }) => choices),
});
