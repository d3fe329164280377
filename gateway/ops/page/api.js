/**
 * Calls to the gateway that serves this page: same origin only. Addresses are relative, so that a prefix in front of the
 * gateway does not matter.
 */

/** What went wrong with a call, in the gateway's own words. */
export class ApiError extends Error {
    /**
     * @param {string} message
     * @param {number} status 0: nobody answered
     */
    constructor(message, status) {
        super(message);
        this.status = status;
    }
}

/**
 * @param {string} path
 * @param {RequestInit} [options]
 * @returns {Promise<Response>} an answer with a good status; throws ApiError
 */
export async function call(path, options = {}) {
    let response;
    try {
        response = await fetch(path, {
            ...options,
            credentials: "same-origin",
            cache: "no-store",
            headers: { "x-turnout-ops": "1", ...options.headers }, // another site's form cannot set this
        });
    } catch (error) {
        if (error instanceof DOMException && error.name === "AbortError") throw error;
        throw new ApiError("The gateway does not answer.", 0);
    }
    if (!response.ok) throw await refusal(response);
    return response;
}

/** @param {Response} response */
async function refusal(response) {
    const text = await response.text().catch(() => "");
    let message = `The gateway answered with status ${response.status}.`;
    try {
        message = JSON.parse(text).error.message ?? message;
    } catch {
        // not the gateway's own error: the status has to do
    }
    if (response.status === 401) window.dispatchEvent(new CustomEvent("locked"));
    return new ApiError(message, response.status);
}

/**
 * @param {string} path
 * @returns {Promise<any>}
 */
export const get = async (path) => (await call(path)).json();

/**
 * @param {string} method
 * @param {string} path
 * @param {any} [body] sent as JSON
 * @returns {Promise<any>} the answer's document; null if it has none
 */
export async function send(method, path, body) {
    const options = body === undefined ? { method } : { method, headers: JSON_TYPE, body: JSON.stringify(body) };
    const text = await (await call(path, options)).text();
    return text ? JSON.parse(text) : null;
}

export const JSON_TYPE = { "content-type": "application/json" };

/**
 * The events of a text/event-stream, as they come.
 * @param {Response} response
 * @returns {AsyncGenerator<{event: string, data: string}>}
 */
export async function* events(response) {
    if (!response.body) return;
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        rest += value;
        const blocks = rest.split(/\r?\n\r?\n/);
        rest = blocks.pop() ?? "";
        for (const block of blocks) {
            const fields = block.split(/\r?\n/).map((line) => line.match(/^(\w+): ?(.*)$/));
            const data = fields.filter((field) => field?.[1] === "data").map((field) => field?.[2] ?? "");
            const name = fields.find((field) => field?.[1] === "event")?.[2] ?? "message";
            if (data.length) yield { event: name, data: data.join("\n") };
        }
    }
}
