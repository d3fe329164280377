// Chat, plain and streamed; headers; usage for those who ask for it.

import { chunksOf, connect, say, tell, textOf } from "./client.mjs";

const client = connect();
const { completions } = client.chat;
const { data, response, request_id } = await completions.create({ model: "auto", messages: say() }).withResponse();
const streamed = async (fields) => {
  const chunks = await chunksOf(await completions.create({ model: "auto", messages: say(), stream: true, ...fields }));
  return { text: textOf(chunks), usage: chunks.flatMap(({ usage }) => (usage ? [usage.total_tokens] : [])) };
};

tell({
  text: data.choices[0].message.content,
  usage: data.usage.total_tokens,
  id: [request_id, data._request_id, response.headers.get("x-request-id")],
  model: response.headers.get("x-turnout-model"),
  asked: await streamed({ stream_options: { include_usage: true } }),
  notAsked: await streamed({}),
  api: (await connect({ baseURL: client.baseURL.replace("/v1", "/api/v1") }).models.retrieve("m0")).id,
});
