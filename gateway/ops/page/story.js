/**
 * One request id and everything known of it: how it was routed, what was tried, how long that took, and what it cost.
 */

import { ApiError, get } from "./api.js";
import { at, h, mark, show } from "./dom.js";
import * as f from "./format.js";

/** Milliseconds. */
const AGAIN = 1200;

/** @param {any} call */
function headline(call) {
    const tries = call.tried?.length ?? 0;
    const took = `in ${f.seconds(call.total_ms / 1000)}`;
    const after = tries > 1 ? `, at attempt ${tries},` : "";
    if (call.outcome === "ok") return mark("good", `Answered by ${call.model} at ${call.upstream}${after} ${took}`);
    if (call.outcome === "client_closed") return mark("warn", `The caller left after ${f.seconds(call.total_ms / 1000)}`);
    if (f.CALLERS_FAULT.has(call.outcome)) return mark("warn", `Refused ${took}: ${f.words(call.outcome)} (status ${call.status})`);
    return mark("bad", `Failed ${took}: ${f.words(call.outcome)} (status ${call.status})`);
}

/** The attempts one below the other, each a bar from its begin to its end. @param {any} call */
function timeline(call) {
    const tried = call.tried ?? [];
    if (!tried.length) return h("p", { class: "none" }, "No upstream was asked.");
    const total = Math.max(call.total_ms / 1000, tried.reduce((/** @type {number} */ sum, /** @type {any} */ t) => sum + t.seconds, 0), 1e-6);
    const share = (/** @type {number} */ value) => `${((value / total) * 100).toFixed(2)}%`;
    let begin = Math.max(0, total - tried.reduce((/** @type {number} */ sum, /** @type {any} */ t) => sum + t.seconds, 0));
    const rows = tried.map((/** @type {any} */ attempt, /** @type {number} */ i) => {
        const bar = h("span", { class: `span ${attempt.cause ? "bad" : "good"}`, style: { left: share(begin), width: `max(2px, ${share(attempt.seconds)})` } });
        begin += attempt.seconds;
        return h("li", { "data-key": i },
            h("span", { class: "who" }, h("b", {}, attempt.model), h("span", { class: "quiet" }, ` ${attempt.upstream}`)),
            h("span", { class: "track", "aria-hidden": "true" }, bar),
            h("span", { class: "what" }, attempt.cause ? mark("bad", f.words(attempt.cause)) : mark("good", call.outcome === "ok" ? "answered" : "accepted"), h("span", { class: "quiet" }, ` ${f.seconds(attempt.seconds)}`)));
    });
    const first = call.first_token_ms === null || call.first_token_ms === undefined ? null
        : h("li", { class: "first" }, h("span", { class: "who" }, "First token"), h("span", { class: "track", "aria-hidden": "true" }, h("span", { class: "tick", style: { left: share(call.first_token_ms / 1000) } })), h("span", { class: "what" }, f.seconds(call.first_token_ms / 1000)));
    return h("ol", { class: "timeline", "aria-label": "Attempts in order" }, rows, first);
}

/** @param {any} call */
function told(call) {
    const tokens = [`${f.count(call.prompt_tokens)} in${call.cached_tokens ? ` (${f.count(call.cached_tokens)} cached)` : ""}`, `${f.count(call.completion_tokens)} out${call.reasoning_tokens ? ` (${f.count(call.reasoning_tokens)} reasoning)` : ""}`];
    const chance = call.probability === null || call.probability === undefined ? "" : `, chance ${f.percent(call.probability)}`;
    const rows = [
        ["Came", f.time(call.at)],
        ["Endpoint", `${call.endpoint ?? "–"}${call.stream ? ", streamed" : ""}`],
        ["Key", [call.key || "–", call.team ? `, team ${call.team}` : ""]],
        ["Route", call.route || "named directly"],
        ["Rule", call.rule || "–"],
        ["Task", call.task || "–"],
        ["Experiment", call.experiment ? `${call.experiment}, arm ${call.arm}${chance}` : "–"],
        ["Tokens", call.prompt_tokens || call.completion_tokens ? `${tokens.join(", ")}${call.reported ? "" : " (estimated)"}` : "none"],
        ["Cost", f.usd(call.usd)],
        ["Gateway’s own time", f.seconds((call.own_ms ?? NaN) / 1000)],
        ...(call.drafts ? [["Speculation", `${f.count(call.accepted)} draft tokens accepted in ${f.count(call.drafts)} steps`]] : []),
    ];
    return h("dl", { class: "facts" }, rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

/**
 * The ledger has a call half a second after its end, so that one that is not there is asked for once more.
 * @param {string} id
 */
async function found(id) {
    const path = `admin/requests/${encodeURIComponent(id)}`;
    try {
        return await get(path);
    } catch (error) {
        if (!(error instanceof ApiError && error.status === 404)) throw error;
        await new Promise((done) => setTimeout(done, AGAIN));
        return get(path);
    }
}

/** The view. */
export class Story {
    constructor() {
        at("story-form").addEventListener("submit", (/** @type {Event} */ event) => {
            event.preventDefault();
            const id = at("story-id").value.trim();
            if (id) location.hash = `#request/${encodeURIComponent(id)}`;
        });
    }

    /** @param {string} id */
    async open(id) {
        at("story-id").value = id;
        if (!id) return show(at("story"), h("p", { class: "none" }, "Every answer carries its id in the header x-request-id."));
        show(at("story"), h("p", { class: "none" }, "Looking …"));
        try {
            const { calls } = await found(id);
            if (at("story-id").value !== id) return; // another one was asked for meanwhile
            show(at("story"), calls.map((/** @type {any} */ call, /** @type {number} */ i) =>
                h("article", { "data-key": `${id} ${i}` }, calls.length > 1 ? h("h3", {}, `Call ${i + 1} of ${calls.length} with this id`) : null, h("p", { class: "lead" }, headline(call)), timeline(call), told(call))));
        } catch (error) {
            const missing = error instanceof ApiError && error.status === 404;
            show(at("story"), h("p", { class: "none" }, missing ? `No call with the id “${id}” is known.` : /** @type {Error} */ (error).message));
        }
    }
}
