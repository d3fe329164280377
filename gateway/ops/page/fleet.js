/**
 * What answers: upstreams with their replicas, and models.
 */

import { at, h, mark, meter, show, table } from "./dom.js";
import * as f from "./format.js";

/** @param {number} share */
const tone = (share) => (share >= 0.95 ? "bad" : share >= 0.8 ? "warn" : "good");

/** @param {any} replica */
function condition(replica) {
    if (replica.drained) return mark("off", "drained", "It gets no new calls");
    if (replica.engine && !replica.engine.ready) return mark("bad", replica.engine.why ?? "not ready");
    return mark("good", replica.engine ? "ready" : "in use");
}

/** @param {Record<string, string>} breakers model -> state */
export function breaker(breakers) {
    const tripped = Object.entries(breakers).filter(([, state]) => state !== "closed");
    if (!tripped.length) return mark("good", "closed", "Calls go through");
    return tripped.map(([model, state]) =>
        h("div", {}, state === "open" ? mark("bad", `open: ${model}`, "Left alone for a while after failures") : mark("off", `half-open: ${model}`, "The next call tries whether it works again")));
}

/** @param {any} engine */
function cache(engine) {
    if (!engine) return "–";
    return h("span", { class: "bar" }, meter(engine.kv, "KV cache in use", tone(engine.kv)), f.percent(engine.kv));
}

/**
 * @param {any} upstream
 * @param {any} replica
 */
function row(upstream, replica) {
    const engine = replica.engine;
    const act = replica.drained ? "undrain" : "drain";
    const button = h("button", { class: "small", "data-act": act, "data-name": upstream.name, "data-index": replica.index, "data-address": replica.address }, replica.drained ? "Undrain" : "Drain");
    return {
        key: String(replica.index),
        class: replica.drained ? "faint" : undefined,
        cells: [
            h("code", {}, replica.address),
            condition(replica),
            breaker(replica.breaker),
            f.count(replica.in_flight),
            engine ? f.count(engine.waiting) : "–",
            cache(engine),
            engine?.acceptance_length ? f.rate(engine.acceptance_length) : "–",
            button,
        ],
    };
}

/** @param {any} upstream */
function what({ kind, replicas }) {
    if (kind !== "engine") return "service";
    const versions = [...new Set(replicas.map((/** @type {any} */ one) => one.engine?.version).filter(Boolean))];
    return versions.length ? `our engine, vLLM ${versions.join(" and ")}` : "our engine";
}

/** Seconds after which somebody should have begun a restart that was asked for. */
const BEGUN = 30;

/** @param {any} upstream @param {number} now */
function restart({ name, kind, restarting }, now) {
    if (kind !== "engine") return null;
    const button = h("button", { class: "small side", "data-act": "restart", "data-name": name }, "Rolling restart");
    if (!restarting) return button;
    const unheard = restarting.state === "asked for" && now - restarting.at > BEGUN;
    const failed = restarting.state.startsWith("failed") || unheard;
    const text = unheard ? "Restart asked for, but nobody runs this engine" : `Restart ${restarting.state}`;
    return [mark(failed ? "bad" : "warn", text, `Asked for at ${f.time(restarting.at)}`), failed ? button : null];
}

const COLUMNS = ["Replica", "State", "Breaker", { name: "In flight", number: true }, { name: "Queue", number: true }, "KV cache", { name: "Acceptance", number: true }, "Action"];

/** @param {any} state */
export function showUpstreams(state) {
    const blocks = state.upstreams.map((/** @type {any} */ upstream) =>
        h(
            "section",
            { "data-key": upstream.name, class: "upstream" },
            h("h3", { class: "row" }, upstream.name, " ", h("span", { class: "quiet" }, what(upstream)), restart(upstream, state.at), upstream.off ? [" ", mark("bad", `off: ${upstream.off}`)] : null),
            upstream.replicas.length ? table(`Replicas of ${upstream.name}`, COLUMNS, upstream.replicas.map((/** @type {any} */ replica) => row(upstream, replica))) : null,
        ));
    show(at("upstreams"), blocks);
}

/** @param {any} model */
function use(model) {
    if (model.closed) {
        const { at: when, by, reason } = model.closed;
        return [mark("off", "closed"), h("div", { class: "quiet" }, `${reason || "no reason given"} · ${by}, ${f.time(when)}`)];
    }
    return model.why_not ? mark("bad", model.why_not) : mark("good", "in use");
}

/** @param {any} state */
export function showModels(state) {
    const rows = state.models.map((/** @type {any} */ model) => ({
        key: model.name,
        class: model.closed ? "faint" : undefined,
        cells: [
            h("b", {}, model.name),
            use(model),
            model.upstream,
            h("code", {}, model.id),
            model.context ? f.count(model.context) : "–",
            f.price(model.price),
            h("button", { class: "small", "data-act": model.closed ? "open" : "close", "data-name": model.name }, model.closed ? "Open" : "Close"),
        ],
    }));
    show(at("models"), table("Models", ["Model", "State", "Upstream", "Id there", { name: "Context", number: true }, "Price", "Action"], rows));
}
