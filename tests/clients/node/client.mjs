// What every script needs: a client of the gateway that is named on the command line, and one line of JSON as result.
//   node SCRIPT URL [JSON]

import OpenAI from "openai";

const [url, given] = process.argv.slice(2);

/** What the test hands over; undefined if nothing. */
export const input = given === undefined ? undefined : JSON.parse(given);

/** A client that does not retry unless told to. */
export function connect(options = {}) {
  return new OpenAI({ apiKey: "sk-any", baseURL: `${url}/v1`, maxRetries: 0, timeout: 15_000, ...options });
}

export function say(text = "hello there") {
  return [{ role: "user", content: text }];
}

export function tell(result) {
  process.stdout.write(`${JSON.stringify(result)}\n`);
}

/** All chunks of a stream. */
export async function chunksOf(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

export function textOf(chunks) {
  return chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join("");
}

/** What an application sees of an error, or null if there is none. */
export async function failure(promise) {
  try {
    await promise;
    return null;
  } catch (error) {
    const { status, code, type, param, message, requestID } = error;
    const told = { status, code, type, param, message, requestID, header: error.headers?.get?.("x-request-id") };
    return { name: error.constructor.name, isOpenAI: error instanceof OpenAI.APIError, ...told };
  }
}
