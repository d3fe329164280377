/**
 * Speculative decoding: how well it works by kind of answer, beside what the checkpoint began with, and what the alarm says.
 */

import { at, h, mark, meter, show, table } from "./dom.js";
import * as f from "./format.js";

/** @type {Record<string, string>} */
const KINDS = { text: "text", tool: "tool calls", json: "JSON" };
/** Evidence of the alarm from which on it is worth a look. */
const UNSURE = 0.5;

/** How much of the baseline is left, below which: a colour and its words. @type {[number, "bad" | "warn", string][]} */
const FALLEN = [[0.5, "bad", "far below the baseline"], [0.75, "warn", "below the baseline"]];
/** What the alarm does with calls when it finds something, by `alarm.action`. @param {string} action @param {string} kind */
const acts = (action, kind) => `Action ${action}: ${action === "move" && kind !== "text" ? "such calls go to the next model" : "nothing but a warning"}`;

/** A bar of what is accepted now, with a line where the baseline is. @param {any} kind */
function acceptance({ recent, baseline }) {
    if (recent === null || recent === undefined) return "–";
    const [, tone, words] = FALLEN.find(([share]) => baseline.rate && recent < share * baseline.rate) ?? [1, "", ""];
    const line = baseline.rate ? h("i", { class: "was", style: { left: `${Math.round(baseline.rate * 100)}%` }, title: `Baseline ${f.percent(baseline.rate)}` }) : null;
    const bar = h("span", { class: "bar long" }, h("span", { class: "against" }, meter(recent, "Draft tokens accepted lately", tone), line), f.percent(recent));
    return [bar, tone ? h("div", {}, mark(tone, words)) : null];
}

/** The share of each draft position, as small columns. @param {any} kind */
function began({ baseline }) {
    if (!baseline.calls) return "–";
    const learning = baseline.final ? null : h("div", { class: "quiet" }, `learning, ${f.count(baseline.calls)} calls so far`);
    const words = baseline.per_position.map(f.percent).join(", ");
    const columns = h("span", { class: "steps", role: "img", "aria-label": `By position: ${words}`, title: `By position: ${words}` },
        baseline.per_position.map((/** @type {number} */ share) => h("i", { style: { height: `${Math.max(1, Math.round(share * 16))}px` } })));
    return [h("span", { class: "bar" }, columns, f.percent(baseline.rate), baseline.acceptance_length ? h("span", { class: "quiet" }, `${f.rate(baseline.acceptance_length)} tokens a step`) : null), learning];
}

/** @param {any} kind @param {string | undefined} moved @param {string} action */
function alarm({ kind, findings, evidence }, moved, action) {
    const most = Math.max(0, ...Object.values(evidence).map(Number));
    const said = findings.map((/** @type {any} */ one) => h("div", {}, mark("warn", `${one.what}: ${one.text}`), h("span", { class: "quiet" }, ` since ${f.time(one.at)}`)));
    const figures = Object.entries(evidence).map(([name, value]) => `${name} ${f.percent(Number(value))}`).join(", ");
    const quiet = most >= UNSURE ? mark("warn", "evidence grows") : mark("good", "quiet");
    return [
        said.length ? said : h("span", { class: "bar", title: `Evidence: ${figures || "none"}` }, quiet, meter(most, "Evidence of the alarm", most >= UNSURE ? "warn" : "good")),
        moved ? h("div", {}, mark("warn", "calls go to the next model"), h("span", { class: "quiet" }, `: ${moved}`)) : null,
        h("div", { class: "quiet" }, acts(action, kind)),
    ];
}

/** @param {string} model @param {string} kind @param {string | undefined} moved */
function button(model, kind, moved) {
    if (kind === "text") return "–";
    const act = moved ? "takeback" : "move";
    return h("button", { class: "small", "data-act": act, "data-name": model, "data-kind": kind }, moved ? "Take back" : "Move");
}

/** @param {any} one @param {any} state */
function rows(one, state) {
    const moved = state.models.find((/** @type {any} */ model) => model.name === one.model)?.moved ?? {};
    const seen = new Map(one.kinds.map((/** @type {any} */ kind) => [kind.kind, kind]));
    for (const kind of seen.size ? ["tool", "json"] : Object.keys(moved)) {
        if (!seen.has(kind)) seen.set(kind, { kind, calls: 0, recent: null, evidence: {}, findings: [], baseline: { calls: 0, per_position: [] } });
    }
    return [...seen.values()].map((kind) => ({
        key: `${one.model} ${kind.kind}`,
        cells: [
            [h("b", {}, one.model), ` ${KINDS[kind.kind] ?? kind.kind}`],
            f.count(kind.calls),
            acceptance(kind),
            began(kind),
            alarm(kind, moved[kind.kind], one.action),
            button(one.model, kind.kind, moved[kind.kind]),
        ],
    }));
}

/** @param {any} state */
export function showSpeculation(state) {
    const all = state.speculation.flatMap((/** @type {any} */ one) => rows(one, state));
    at("t-speculation").closest(".panel").hidden = !all.length && !state.acceptance.length;
    const columns = ["Model, kind", { name: "Calls", number: true }, "Accepted lately", "At first, by position", "Alarm", "Action"];
    const lengths = state.acceptance.map((/** @type {any} */ one) => ({
        key: [one.model, one.task, one.arm, one.kind].join(" "),
        cells: [h("b", {}, one.model), one.task || "–", one.arm || "–", KINDS[one.kind] ?? one.kind, f.count(one.drafts),
            f.percent(one.draft_tokens ? one.accepted_tokens / one.draft_tokens : null), one.acceptance_length ? f.rate(one.acceptance_length) : "–"],
    }));
    const heads = ["Model", "Task", "Arm", "Kind", { name: "Drafts", number: true }, { name: "Accepted", number: true }, { name: "Tokens a step now", number: true }];
    show(at("speculation"),
        all.length ? table("Speculation by model and kind of answer", columns, all) : h("p", { class: "none" }, "No engine of ours speculates, or its first call has not ended."),
        lengths.length ? h("details", { "data-key": "lengths" }, h("summary", {}, "By task and arm"), table("Acceptance by task and arm", heads, lengths)) : null);
}
