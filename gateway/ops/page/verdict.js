/**
 * What a snapshot means: one sentence, a list of what is wrong, worst first, and what is good to know.
 */

import * as f from "./format.js";

/** Shares of failing requests from which on it is worth a look, and is bad. */
const SOME = 0.01;
const MANY = 0.05;
/** Entries in the ledger's queue that it should have written long since. */
const BACKLOG = 1000;

/**
 * @typedef {{tone: "bad" | "warn" | "off", text: string, target?: string}} Problem bad: callers are not served; warn: something
 *   is broken, and callers are served all the same; off: good to know. `target`: the id of the panel that tells more
 */

const ORDER = ["bad", "warn", "off"];
/** What holds while Redis is down, by `limits.on_redis_failure`. @type {Record<string, string>} */
const WITHOUT_REDIS = {
    share: "each process keeps its part of every limit",
    open: "no limit holds",
    closed: "calls that have a limit are refused with 503",
};

/** @param {Record<string, number | null>} point */
export function pace(point) {
    const sum = (/** @type {string[]} */ names) => names.reduce((all, name) => all + Number(point[name] ?? 0), 0);
    if (point.ok === undefined) return null;
    const all = sum(["ok", "left", "limited", "caller", "failed"]);
    return { all, failing: all > 0 ? Number(point.failed) / all : 0 };
}

/**
 * @param {any} state
 * @param {Record<string, number | null>} point the latest of the charts
 * @returns {Problem[]}
 */
export function problems(state, point) {
    const found = [...health(state), ...traffic(point), ...fleet(state), ...speculation(state), ...edges(state)];
    return found.sort((a, b) => ORDER.indexOf(a.tone) - ORDER.indexOf(b.tone));
}

/**
 * @param {string} route "" where there are only models, "*" for all
 * @param {any} models model -> why not
 * @returns {Problem}
 */
function unserved(route, models) {
    const reasons = Object.entries(models).map(([model, why]) => (model === "*" ? why : `${model}: ${why}`));
    const what = route && route !== "*" ? `Route ${route} cannot be served` : "No call can be served";
    return { tone: "bad", text: `${what}: ${reasons.join("; ")}.`, target: "models" };
}

/** @param {any} state @returns {Problem[]} */
function health({ health: { unusable, redis, on_redis_failure, database, ledger }, config, upstreams }) {
    const found = Object.entries(unusable).map(([route, models]) => unserved(route, models));
    if (redis === "down") found.push({ tone: on_redis_failure === "closed" ? "bad" : "warn", text: `Redis is down: ${WITHOUT_REDIS[on_redis_failure]}.` });
    if (database === "down") found.push({ tone: "warn", text: "The database is down: created keys, changes and the ledger have to wait." });
    if (ledger.dropped) found.push({ tone: "warn", text: `${f.count(ledger.dropped)} calls are missing in the ledger: it had no room for them.` });
    if (ledger.queued >= BACKLOG) found.push({ tone: "warn", text: `${f.count(ledger.queued)} calls wait to be written to the ledger.` });
    if (config.refused) found.push({ tone: "warn", text: `The changed configuration file was refused, the old one is in force: ${config.refused}` });
    const told = new Set(upstreams.map((/** @type {any} */ one) => `off: ${one.off}`));
    for (const notice of config.notices.filter((/** @type {any} */ one) => !told.has(one.text))) found.push({ tone: "off", text: `${notice.where ? `${notice.where}: ` : ""}${notice.text}` });
    return found;
}

/** @param {Record<string, number | null>} point @returns {Problem[]} */
function traffic(point) {
    const now = pace(point);
    if (!now || now.failing < SOME) return [];
    return [{ tone: now.failing >= MANY ? "bad" : "warn", text: `${f.percent(now.failing)} of the requests fail.`, target: "errors" }];
}

/** @param {any} state @returns {Problem[]} */
function fleet({ upstreams, models }) {
    /** @type {Problem[]} */
    const found = [];
    for (const upstream of upstreams) {
        if (upstream.off) found.push({ tone: "warn", text: `Upstream ${upstream.name} is off: ${upstream.off}`, target: "upstreams" });
        for (const { address, breaker, engine, drained } of upstream.replicas) {
            const where = `${upstream.name} at ${address}`;
            const [open, half] = ["open", "half-open"].map((is) => Object.keys(breaker).filter((model) => breaker[model] === is).join(", "));
            if (open) found.push({ tone: "warn", text: `The breaker of ${where} is open for ${open}.`, target: "upstreams" });
            if (half) found.push({ tone: "off", text: `${where} failed for ${half} and is tried with the next call (half-open).`, target: "upstreams" });
            if (engine && !engine.ready && !drained) found.push({ tone: "warn", text: `The engine ${where} is not ready: ${engine.why ?? "no reason given"}`, target: "upstreams" });
            if (engine?.ready && engine.kv >= 0.95) found.push({ tone: "warn", text: `The KV cache of ${where} is ${f.percent(engine.kv)} full.`, target: "upstreams" });
        }
    }
    for (const model of models) {
        if (model.closed) found.push({ tone: "off", text: `Model ${model.name} is closed${model.closed.reason ? `: ${model.closed.reason}` : "."}`, target: "models" });
    }
    return found;
}

/** @param {any} state @returns {Problem[]} */
function speculation({ speculation: models, upstreams }) {
    const found = models.flatMap((/** @type {any} */ one) => one.kinds.flatMap((/** @type {any} */ kind) => kind.findings.map((/** @type {any} */ finding) => ({
        tone: "warn", text: `Speculation of ${one.model}: ${finding.what}, ${finding.text}.`, target: "speculation",
    }))));
    const failed = upstreams.filter((/** @type {any} */ one) => one.restarting?.state.startsWith("failed"));
    return [...found, ...failed.map((/** @type {any} */ one) => ({ tone: "warn", text: `The rolling restart of ${one.name} ${one.restarting.state}`, target: "upstreams" }))];
}

/** @param {any} state @returns {Problem[]} */
function edges({ limits }) {
    return limits.filter((/** @type {any} */ limit) => limit.used >= 0.95).slice(0, 3).map((/** @type {any} */ limit) => ({
        tone: "warn", text: `${limit.kind} ${limit.name} has used ${f.percent(limit.used)} of its ${limit.what}.`, target: "limits",
    }));
}

/**
 * @param {any} state
 * @param {Record<string, number | null>} point
 * @param {Problem[]} found
 * @returns {{tone: "good" | "warn" | "bad", text: string}}
 */
export function sentence(state, point, found) {
    const now = pace(point);
    const tone = found.some((one) => one.tone === "bad") ? "bad" : found.some((one) => one.tone === "warn") ? "warn" : "good";
    const unready = state.health.ready ? "" : "Not ready. ";
    if (!now) return { tone, text: `${unready}Counting requests …` };
    if (now.all === 0) return { tone, text: `${unready}No requests just now` };
    const failing = now.failing === 0 ? "none failing" : `${f.percent(now.failing)} failing`;
    return { tone, text: `${unready}Serving ${f.rate(now.all)} requests a second, ${failing}` };
}
