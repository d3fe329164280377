/**
 * What an operator can change. Every change is confirmed in a dialog that says what it does, and told in a toast.
 * A button names its action in `data-act`.
 */

import { send } from "./api.js";
import { at, h, meter, show } from "./dom.js";
import * as f from "./format.js";

/**
 * @typedef {{title: string, text: string, button: string, danger?: boolean, fields?: any, begin?: () => void,
 *   run: () => Promise<string>}} Action `run` gives what to tell when it is done
 */

/** @param {string} text @param {boolean} [bad] */
export function toast(text, bad = false) {
    const one = h("p", { class: `toast ${bad ? "bad" : "good"}` }, h("span", { class: "shape", "aria-hidden": "true" }, bad ? "■ " : "● "), text);
    at("toasts").append(one);
    setTimeout(() => one.remove(), bad ? 12_000 : 6_000);
}

/** @param {string} name */
const path = (name) => encodeURIComponent(name);

/** @param {string} label @param {any} input */
const field = (label, input) => h("label", {}, h("span", {}, label), input);

/** @param {DOMStringMap} on @returns {Action} */
function closeModel({ name = "" }) {
    const reason = /** @type {any} */ (h("input", { id: "reason", maxlength: 200, autocomplete: "off", placeholder: "Seen by other operators and in the plan" }));
    return {
        title: `Close model ${name}?`,
        text: "It is not tried any more, on every process within a second. Its routes use their fallbacks. Calls under way go on.",
        button: "Close model",
        danger: true,
        fields: field("Reason", reason),
        run: async () => {
            await send("POST", `admin/models/${path(name)}`, { closed: true, reason: reason.value.trim() });
            return `Model ${name} is closed.`;
        },
    };
}

/** @param {DOMStringMap} on @returns {Action} */
function openModel({ name = "" }) {
    return {
        title: `Open model ${name}?`,
        text: "Routes and callers use it again, within a second.",
        button: "Open model",
        run: async () => {
            await send("POST", `admin/models/${path(name)}`, { closed: false });
            return `Model ${name} is open.`;
        },
    };
}

/** @param {boolean} drained @returns {(on: DOMStringMap) => Action} */
const drain = (drained) => ({ name = "", index = "0", address = "" }) => ({
    title: `${drained ? "Drain" : "Undrain"} ${address} of ${name}?`,
    text: drained ? "It gets no new calls; those under way go on until they end. The last replica drained takes the upstream out of use." : "It gets calls again, within a second.",
    button: drained ? "Drain replica" : "Undrain replica",
    danger: drained,
    run: async () => {
        await send("POST", `admin/upstreams/${path(name)}/replicas/${path(index)}`, { drained });
        return `${address} of ${name} is ${drained ? "drained" : "in use again"}.`;
    },
});

/** @param {DOMStringMap} on @param {any} state @returns {Action} */
function split({ name = "" }, state) {
    const one = state.experiments.find((/** @type {any} */ experiment) => experiment.name === name);
    const inputs = Object.entries(one.arms).map(([arm, weight]) => ({
        arm, input: /** @type {any} */ (h("input", { type: "number", min: 0, max: 1_000_000, step: "any", required: true, value: String(weight), name: arm })),
    }));
    const preview = h("ul", { class: "plain preview", "aria-live": "polite" });
    const asFile = /** @type {any} */ (h("input", { type: "checkbox", id: "as-file" }));
    const redraw = () => {
        const sum = inputs.reduce((all, { input }) => all + Number(input.value), 0);
        for (const { input } of inputs) input.disabled = asFile.checked;
        inputs[0].input.setCustomValidity(sum > 0 || asFile.checked ? "" : "One weight must be more than 0.");
        const shares = inputs.map(({ arm, input }) => ({ arm, share: sum ? Number(input.value) / sum : 0 }));
        show(preview, asFile.checked ? h("li", {}, "As the file says.") : shares.map(({ arm, share }) => h("li", {}, h("b", {}, arm), " ", h("span", { class: "bar long" }, meter(share, `Share of ${arm}`), f.percent(share)))));
    };
    const back = one.overridden ? h("label", { class: "check" }, asFile, h("span", {}, "Back to the weights of the file")) : null;
    const fields = [inputs.map(({ arm, input }) => field(`Weight of ${arm}`, input)), back, preview];
    for (const { input } of [...inputs, { input: asFile }]) input.addEventListener("input", redraw);
    return {
        title: `Change the split of ${name}?`,
        text: "New units are assigned by these weights, in every process within a second. Units that the change moves see another model.",
        button: "Change split",
        fields,
        begin: redraw,
        run: async () => {
            const arms = asFile.checked ? null : Object.fromEntries(inputs.map(({ arm, input }) => [arm, Number(input.value)]));
            await send("POST", `admin/experiments/${path(name)}`, { arms });
            return `The split of ${name} is changed.`;
        },
    };
}

/** @param {boolean} moved @returns {(on: DOMStringMap) => Action} */
const traffic = (moved) => ({ name = "", kind = "" }) => {
    const calls = kind === "tool" ? "calls with tools" : "calls in JSON mode";
    const reason = /** @type {any} */ (h("input", { id: "reason", maxlength: 200, autocomplete: "off", placeholder: "Seen by other operators and in the plan" }));
    return {
        title: moved ? `Move the ${calls} of ${name}?` : `Take the ${calls} of ${name} back?`,
        text: moved ? "They go to the next model of their plan, on every process within a second; this model comes last. Other calls stay." : "They go to this model again, within a second, and its alarm watches them anew.",
        button: moved ? "Move calls" : "Take back",
        danger: moved,
        fields: moved ? field("Reason", reason) : null,
        run: async () => {
            await send("POST", `admin/models/${path(name)}/traffic`, { kind, moved, reason: moved ? reason.value.trim() : "" });
            return moved ? `The ${calls} of ${name} go to the next model.` : `The ${calls} of ${name} are back.`;
        },
    };
};

/** @param {DOMStringMap} on @returns {Action} */
function restart({ name = "" }) {
    return {
        title: `Restart the engine ${name}?`,
        text: "Replica by replica: each one's successor is ready before it ends, and no call fails. It needs the memory of one more replica, and `turnout up` or `turnout engine` that runs it.",
        button: "Restart",
        run: async () => {
            await send("POST", `admin/upstreams/${path(name)}/restart`, {});
            return `A rolling restart of ${name} is asked for.`;
        },
    };
}

/** @param {DOMStringMap} on @returns {Action} */
function revoke({ name = "" }) {
    return {
        title: `Revoke key ${name}?`,
        text: "It ends with all its secrets, within a second and for good: nobody can call with it any more.",
        button: "Revoke key",
        danger: true,
        run: async () => {
            await send("DELETE", `admin/keys/${path(name)}`);
            return `Key ${name} is revoked.`;
        },
    };
}

/** @returns {Action} */
function reload() {
    return {
        title: "Reload the configuration?",
        text: "The whole file is checked first; a bad file changes nothing. Calls under way keep the configuration they began with.",
        button: "Reload",
        run: async () => {
            const { result, problems } = await send("POST", "admin/reload", {});
            if (result === "refused") throw new Error(`The file was refused, nothing has changed: ${problems}`);
            return result === "same" ? "The file says what is in force already." : "The configuration is reloaded.";
        },
    };
}

/** @type {Record<string, (on: DOMStringMap, state: any) => Action>} */
const ACTIONS = { close: closeModel, open: openModel, drain: drain(true), undrain: drain(false), split, revoke, reload, move: traffic(true), takeback: traffic(false), restart };

export class Actions {
    /**
     * @param {() => any} state the latest snapshot
     * @param {() => void} onChange
     */
    constructor(state, onChange) {
        this.dialog = at("dialog");
        this.onChange = onChange;
        /** @type {Action | null} */
        this.action = null;
        document.addEventListener("click", (event) => {
            const button = /** @type {any} */ (event.target).closest?.("[data-act]");
            if (button && state()) this.ask(ACTIONS[button.dataset.act](button.dataset, state()));
        });
        at("dialog-cancel").addEventListener("click", () => this.dialog.close());
        at("dialog-form").addEventListener("submit", (/** @type {Event} */ event) => {
            event.preventDefault();
            void this.run();
        });
    }

    /** @param {Action} action */
    ask(action) {
        this.action = action;
        at("dialog-title").textContent = action.title;
        at("dialog-text").textContent = action.text;
        at("dialog-fields").replaceChildren(...[action.fields ?? []].flat(9).filter(Boolean));
        at("dialog-error").textContent = "";
        at("dialog-go").textContent = action.button;
        at("dialog-go").className = action.danger ? "danger" : "main";
        action.begin?.();
        this.dialog.showModal();
        (at("dialog-fields").querySelector("input") ?? at("dialog-cancel")).focus();
    }

    async run() {
        const { action } = this;
        if (!action) return;
        at("dialog-go").disabled = true;
        try {
            toast(await action.run());
            this.dialog.close();
            this.onChange();
        } catch (error) {
            at("dialog-error").textContent = /** @type {Error} */ (error).message;
        } finally {
            at("dialog-go").disabled = false;
        }
    }
}
