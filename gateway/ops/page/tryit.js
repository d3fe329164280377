/**
 * The try-it panel: what would happen to a request (nothing is sent), and its answer as it streams.
 */

import { JSON_TYPE, call, events, send } from "./api.js";
import { announce, at, h, mark, show, table } from "./dom.js";
import * as f from "./format.js";

/** The request that the form describes. */
function request() {
    const task = at("try-task").value.trim();
    const most = Number(at("try-most").value);
    return {
        model: at("try-model").value,
        messages: [{ role: "user", content: at("try-prompt").value }],
        ...(most > 0 ? { max_tokens: most } : {}),
        ...(task ? { metadata: { task } } : {}),
    };
}

/** @param {any} plan as /v1/route tells it */
function planned(plan) {
    const facts = [
        ["Route", plan.route ?? "named directly"],
        ["Rule", plan.rule ?? "none"],
        ["Task", plan.task ?? "–"],
        ["Prompt", `${f.count(plan.facts?.prompt_tokens)} tokens, estimated`],
        ["Experiment", plan.experiment ? `${plan.experiment.experiment}, arm ${plan.experiment.arm}` : "none"],
    ];
    const rules = (plan.rules ?? []).map((/** @type {any} */ rule) => ({
        key: rule.rule,
        cells: [h("b", {}, rule.rule), rule.matched ? mark("good", `matches, to ${rule.to}`) : mark("off", "no"), rule.reason],
    }));
    const attempts = (plan.attempts ?? []).map((/** @type {any} */ attempt, /** @type {number} */ i) => ({
        key: `${i} ${attempt.model}`,
        cells: [String(i + 1), h("b", {}, attempt.model), attempt.upstream, h("code", {}, attempt.id), attempt.usd === null ? "–" : `at most ${f.usd(attempt.usd)}`, attempt.reason],
    }));
    const skipped = (plan.skipped ?? []).map((/** @type {any} */ one) => h("li", {}, mark("off", [h("b", {}, one.model), ": ", one.reason])));
    return [
        h("h3", {}, "Plan"),
        h("dl", { class: "facts" }, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
        rules.length ? table("Rules", ["Rule", "Verdict", "Why"], rules) : null,
        attempts.length ? table("Attempts in order", ["Attempt", "Model", "Upstream", "Id there", { name: "Cost", number: true }, "Reason"], attempts) : h("p", { class: "none" }, "No model can be tried."),
        skipped.length ? h("ul", { class: "plain" }, skipped) : null,
    ];
}

/** @param {Headers} headers */
function headersOf(headers) {
    const told = [...headers].filter(([name]) => name.startsWith("x-turnout-") || name === "x-request-id");
    return h("dl", { class: "facts" }, told.map(([name, value]) =>
        h("div", {}, h("dt", {}, name.replace("x-turnout-", "")), h("dd", {}, name === "x-request-id" ? h("a", { href: `#request/${encodeURIComponent(value)}` }, value) : value))));
}

/** The panel. */
export class TryIt {
    constructor() {
        /** @type {AbortController | null} */
        this.abort = null;
        /** The names that can be chosen from. */
        this.known = "";
        at("try-plan").addEventListener("click", () => this.plan());
        at("try-form").addEventListener("submit", (/** @type {Event} */ event) => {
            event.preventDefault();
            void this.send();
        });
        at("try-stop").addEventListener("click", () => this.abort?.abort());
    }

    /** @param {any} state */
    update(state) {
        const names = (/** @type {any[]} */ of) => of.map(({ name }) => h("option", { value: name }, name));
        const groups = [state.routes.length ? h("optgroup", { label: "Routes" }, names(state.routes)) : null, h("optgroup", { label: "Models" }, names(state.models))];
        const wanted = JSON.stringify([state.routes, state.models].map((of) => of.map((/** @type {any} */ one) => one.name)));
        if (wanted === this.known) return;
        this.known = wanted;
        const chosen = at("try-model").value;
        at("try-model").replaceChildren(...groups.filter(Boolean));
        if (chosen && [...at("try-model").options].some((option) => option.value === chosen)) at("try-model").value = chosen;
    }

    async plan() {
        if (!at("try-form").reportValidity()) return;
        show(at("try-result"), h("p", { class: "none" }, "Planning …"));
        try {
            show(at("try-result"), planned(await send("POST", "admin/route", request())));
        } catch (error) {
            show(at("try-result"), mark("bad", /** @type {Error} */ (error).message));
        }
    }

    async send() {
        const abort = (this.abort = new AbortController());
        const figures = h("p", { class: "lead" }, "Sent, waiting for the first token …");
        const answer = h("pre", { class: "answer", tabindex: "0", "aria-label": "Answer" });
        const head = h("div", {});
        at("try-result").replaceChildren(h("h3", {}, "Answer"), figures, answer, head);
        at("try-send").disabled = true;
        at("try-stop").disabled = false;
        const begun = performance.now();
        const since = () => (performance.now() - begun) / 1000;
        const seen = { first: /** @type {number | null} */ (null), usage: /** @type {any} */ (null), error: "" };
        try {
            const body = JSON.stringify({ ...request(), stream: true, stream_options: { include_usage: true } });
            const response = await call("admin/try", { method: "POST", headers: JSON_TYPE, body, signal: abort.signal });
            show(head, headersOf(response.headers));
            for await (const { data } of events(response)) {
                if (data === "[DONE]") break;
                const part = JSON.parse(data);
                if (part.error) seen.error = part.error.message;
                if (part.usage) seen.usage = part.usage;
                const delta = part.choices?.[0]?.delta ?? {};
                const text = (delta.reasoning ?? delta.reasoning_content ?? "") + (delta.content ?? "");
                if (text && seen.first === null) seen.first = since();
                answer.append(text);
                if (seen.first !== null) figures.textContent = `First token after ${f.seconds(seen.first)}, running for ${f.seconds(since())} …`;
            }
            announce(seen.error || this.summary(seen, since()));
            figures.replaceChildren(seen.error ? mark("bad", seen.error) : mark("good", this.summary(seen, since())));
        } catch (error) {
            const stopped = abort.signal.aborted;
            figures.replaceChildren(stopped ? mark("warn", `Stopped after ${f.seconds(since())}`) : mark("bad", /** @type {Error} */ (error).message));
        } finally {
            at("try-send").disabled = false;
            at("try-stop").disabled = true;
            this.abort = null;
        }
    }

    /**
     * @param {{first: number | null, usage: any}} seen
     * @param {number} took
     */
    summary({ first, usage }, took) {
        const tokens = usage ? `, ${f.count(usage.prompt_tokens)} tokens in, ${f.count(usage.completion_tokens)} out` : "";
        return `Done in ${f.seconds(took)}, first token after ${f.seconds(first)}${tokens}`;
    }
}
