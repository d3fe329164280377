/**
 * The first view's smaller panels: the strip at the top, figures, limits, experiments, last errors.
 */

import { get } from "./api.js";
import { announce, at, h, mark, meter, show, table } from "./dom.js";
import { when } from "./flow.js";
import * as f from "./format.js";
import { problems, sentence } from "./verdict.js";

const WORD = { good: "All well", warn: "Look", bad: "Trouble" };
const SHAPE = { good: "●", warn: "▲", bad: "■" };
const SHOWN = 6;

/**
 * @param {any} state
 * @param {Record<string, number | null>} point
 */
export function showStrip(state, point) {
    const found = problems(state, point);
    const { tone, text } = sentence(state, point, found);
    at("state").className = `state ${tone}`;
    show(at("state"), h("span", { class: "shape", "aria-hidden": "true" }, SHAPE[tone]), h("span", { class: "word" }, WORD[tone]), h("span", { class: "sentence" }, text));
    announce([WORD[tone], ...found.filter((one) => one.tone !== "off").map((one) => one.target ?? one.text)].join(", "));
    document.title = `${SHAPE[tone]} ${text} · Turnout`;
    list("problems", found.filter((one) => one.tone !== "off"));
    list("notes", found.filter((one) => one.tone === "off"));
    show(at("facts"), facts(state));
}

/** The first line while no snapshot comes: what was well then need not be well now. @param {string} ago */
export function showUnknown(ago) {
    const text = `The gateway does not answer; this was ${ago}`;
    at("state").className = "state";
    show(at("state"), h("span", { class: "shape", "aria-hidden": "true" }, "○"), h("span", { class: "word" }, "Unknown"), h("span", { class: "sentence" }, text));
    document.title = `○ ${text} · Turnout`;
}

/** @param {string} id @param {import("./verdict.js").Problem[]} found */
function list(id, found) {
    const items = found.slice(0, SHOWN).map((one) => h("li", {}, mark(one.tone, one.target ? h("a", { href: `#${one.target}`, "data-jump": one.target }, one.text) : one.text)));
    const more = found.length - SHOWN;
    show(at(id), items, more > 0 ? h("li", { class: "quiet" }, `and ${more} more`) : null);
    at(id).hidden = !found.length;
}

/** @param {any} state */
function facts({ health, config, workers, uptime, version }) {
    const store = (/** @type {string | null} */ value, /** @type {string} */ none) => (value === null ? mark("off", none) : mark(value === "up" ? "good" : "bad", value));
    const { queued, dropped } = health.ledger;
    const rows = [
        ["Ready", health.ready ? mark("good", "yes") : mark("bad", "no")],
        ["Redis", store(health.redis, "not used")],
        ["Database", store(health.database, "not used")],
        ["Ledger", mark(dropped ? "bad" : queued >= 1000 ? "warn" : "good", `${f.count(queued)} waiting${dropped ? `, ${f.count(dropped)} lost` : ""}`)],
        ["Configuration", h("span", { title: `${config.file}, loaded ${f.time(config.loaded_at)}` }, h("code", {}, String(config.digest).slice(0, 12)))],
        ["Workers", String(workers)],
        ["Up for", f.long(uptime)],
        ["Version", version],
    ];
    return rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)));
}

/**
 * @param {any} state
 * @param {Record<string, number | null>} point
 */
export function showFigures({ today, month }, point) {
    const live = [
        ["Half within", f.seconds(point.latency50)],
        ["95 % within", f.seconds(point.latency95)],
        ["First token, 95 %", f.seconds(point.first95)],
        ["Tokens a second", f.rate(point.tokens)],
        ["Cost an hour", f.usd(point.cost)],
    ];
    const sums = (/** @type {any} */ of) => (of ? [f.usd(of.usd), `${f.count(of.calls)} calls`, `${f.count(of.prompt_tokens)} tokens in, ${f.count(of.completion_tokens)} out`] : ["–", "not known while the database is down"]);
    const figure = (/** @type {string[]} */ [name, value, ...more]) => h("div", {}, h("dt", {}, name), h("dd", {}, value, more.map((text) => h("small", {}, text))));
    show(at("figures"), [...live, ["Today", ...sums(today)], ["This month", ...sums(month)]].map(figure));
}

/** @param {any} state */
export function showLimits({ limits }) {
    const amount = (/** @type {any} */ limit, /** @type {number} */ n) => (limit.what === "budget" ? f.usd(n) : f.count(n));
    const rows = limits.slice(0, 12).map((/** @type {any} */ limit) => ({
        key: `${limit.kind} ${limit.name} ${limit.what}`,
        cells: [
            [h("span", { class: "quiet" }, limit.kind), " ", h("b", {}, limit.name || "(everyone)")],
            limit.what,
            h("span", { class: "bar long" }, meter(limit.used, `${limit.kind} ${limit.name}: ${limit.what} used`, limit.used >= 0.95 ? "bad" : limit.used >= 0.8 ? "warn" : "good"), f.percent(limit.used)),
            `${amount(limit, limit.left)} of ${amount(limit, limit.capacity)}`,
        ],
    }));
    show(at("limits"), rows.length ? table("Limits near their edge", ["Who", "What", "Used", { name: "Left", number: true }], rows) : h("p", { class: "none" }, "No limit was met lately."));
}

/** @param {any} state */
export function showExperiments({ experiments }) {
    const block = (/** @type {any} */ one) => {
        const [weights, seen] = [one.arms, one.exposures].map((of) => Object.values(of).reduce((a, b) => Number(a) + Number(b), 0));
        const rows = Object.entries(one.arms).map(([arm, weight]) => ({
            key: arm,
            cells: [
                h("b", {}, arm),
                h("span", { class: "bar long" }, meter(Number(weight) / (Number(weights) || 1), `Weight of ${arm}`), f.percent(Number(weight) / (Number(weights) || 1))),
                f.count(one.exposures[arm] ?? 0),
                Number(seen) ? f.percent((one.exposures[arm] ?? 0) / Number(seen)) : "–",
            ],
        }));
        return h(
            "section",
            { "data-key": one.name },
            h("h3", { class: "row" }, one.name, " ", h("span", { class: "quiet" }, `on ${one.route}${one.rules.length ? `, rules ${one.rules.join(", ")}` : ""}, by ${one.unit}`), one.overridden ? [" ", mark("warn", "changed here", "Other weights than the file's are in force")] : null,
                h("button", { class: "small side", "data-act": "split", "data-name": one.name }, "Change split")),
            table(`Arms of ${one.name}`, ["Arm", "Weight", { name: "Exposures", number: true }, { name: "Share seen", number: true }], rows),
        );
    };
    show(at("experiments"), experiments.length ? experiments.map(block) : h("p", { class: "none" }, "None is configured."));
}

/**
 * What went wrong by cause: attempts at upstreams, and what limits refused.
 * @param {{rows: Record<string, any[]>, span: number | null}} recent
 */
export function showCauses({ rows, span }) {
    at("causes-span").textContent = when(span);
    const all = new Map();
    for (const { model, count } of rows.attempts) all.set(model, (all.get(model) ?? 0) + count);
    const most = (/** @type {any[]} */ of) => [...of].sort((a, b) => b.count - a.count).slice(0, 10);
    const lines = [
        ...most(rows.attempts.filter(({ result }) => result !== "ok")).map(({ model, upstream, result, count }) => {
            const moved = rows.fallbacks.filter((row) => row.from === model && row.cause === result);
            const next = moved.map((row) => row.to).filter((name, i, names) => names.indexOf(name) === i).join(", ");
            return [f.words(result), `${model} at ${upstream}`, count, `${f.percent(count / all.get(model))} of its attempts`, next ? `went on to ${next}` : "–"];
        }),
        ...most(rows.rejections).map(({ limit, count }) => ["over a limit", `${limit.slice(limit.indexOf("_") + 1)} of a ${limit.split("_")[0]}`, count, "–", "refused"]),
    ];
    const whole = () => table("What went wrong, by cause", ["Cause", "Where", { name: "Times", number: true }, "Share", "Then"], lines.map(([cause, where, count, share, then]) => ({
        key: `${cause} ${where}`, cells: [h("b", {}, cause), where, f.count(count), share, then],
    })));
    show(at("causes"), lines.length ? whole() : h("p", { class: "none" }, "Nothing."));
}

/** The last failed calls; asked for when the number of failures changes, and not more often than every two seconds. */
export class Errors {
    constructor() {
        this.seen = -1;
        this.asking = false;
        /** @type {any[]} newest first */
        this.rows = [];
        at("errors-all").addEventListener("change", () => this.show());
    }

    /** @param {any} state */
    async update(state) {
        const failed = state.counters.requests.filter((/** @type {any} */ row) => row.outcome !== "ok").reduce((/** @type {number} */ sum, /** @type {any} */ row) => sum + row.count, 0);
        if (this.asking || failed === this.seen) return;
        this.asking = true;
        try {
            this.rows = await get("admin/errors?limit=200");
            this.seen = failed;
            this.show();
        } catch (error) {
            show(at("errors"), h("p", { class: "none" }, `They cannot be read now: ${/** @type {Error} */ (error).message}`));
        } finally {
            this.asking = false;
        }
    }

    show() {
        const all = at("errors-all").checked;
        const rows = this.rows.filter((one) => all || f.classOf(one.outcome) === "failed").slice(0, 12);
        const none = h("p", { class: "none" }, all || !this.rows.length ? "No call has failed." : "No call has failed by the gateway or an upstream.");
        show(at("errors"), rows.length ? table("Last failed calls", ERROR_COLUMNS, rows.map(errorRow)) : none);
    }
}

const ERROR_COLUMNS = ["Time", "Request", "Outcome", "Route", "Key", "Attempts", { name: "Took", number: true }];

/** @param {any} one */
function errorRow(one) {
    return {
        key: `${one.request_id} ${one.at}`,
        cells: [
            f.time(one.at),
            h("a", { href: `#request/${encodeURIComponent(one.request_id)}` }, h("code", {}, one.request_id)),
            [h("b", {}, f.words(one.outcome)), one.status ? h("span", { class: "quiet" }, ` ${one.status}`) : null],
            one.route || "–",
            one.key || "–",
            one.tried.map((/** @type {any} */ t) => `${t.model}: ${f.words(t.cause || "answered")}`).join(", ") || "nothing was tried",
            f.seconds(one.total_ms / 1000),
        ],
    };
}
