/**
 * The view of what was changed: changes in force, created keys, and the audit.
 */

import { get } from "./api.js";
import { at, h, mark, show, table } from "./dom.js";
import * as f from "./format.js";

/** @param {any} answer @returns {any[]} */
const rowsOf = (answer) => (Array.isArray(answer) ? answer : answer.data);

/** @param {any} value */
function plain(value) {
    if (value === null || value === undefined || value === "") return "";
    if (typeof value !== "object") return String(value);
    return Object.entries(value).filter(([, v]) => v !== null && v !== "").map(([name, v]) => `${name}: ${typeof v === "object" ? JSON.stringify(v) : v}`).join(", ");
}

/** What the audit calls an action -> what was done. @type {Record<string, string>} */
const DID = {
    "models.close": "closed the model", "models.open": "opened the model",
    "traffic.move": "moved calls away from the model", "traffic.return": "took calls of the model back",
    "replicas.drain": "drained a replica", "replicas.return": "took a replica back", "replicas.move": "moved a replica to another port",
    "engines.restart": "rolling restart of the engine",
    "experiments.split": "changed the split", "experiments.reset": "took the split of the file again",
    "keys.create": "created the key", "keys.rotate": "gave the key a new secret", "keys.revoke": "revoked the key",
    "alarm.found": "found a fault in speculation", "alarm.over": "saw a fault in speculation end",
};

/** @param {any} key */
function keyRow(key) {
    const live = key.state === "live";
    return {
        key: key.name,
        cells: [
            h("b", {}, key.name),
            key.team ?? "–",
            (key.models ?? []).join(", ") || "all",
            key.revoked || key.expires ? f.time(key.revoked ?? key.expires) : "never",
            live ? mark("good", "in use") : mark("off", key.state),
            live && h("button", { class: "small", "data-act": "revoke", "data-name": key.name }, "Revoke"),
        ],
    };
}

/**
 * @param {string} id
 * @param {string} path
 * @param {(rows: any[]) => any} draw
 */
async function fill(id, path, draw) {
    try {
        show(at(id), draw(rowsOf(await get(path))));
    } catch (error) {
        show(at(id), h("p", { class: "none" }, /** @type {Error} */ (error).message));
    }
}

/** Read and show keys and audit. */
export async function showChanges() {
    const none = (/** @type {string} */ text) => h("p", { class: "none" }, text);
    await Promise.all([
        fill("keys", "admin/keys?all=true", (rows) =>
            rows.length ? table("Created keys", ["Key", "Team", "Models", "Ends", "State", "Action"], rows.map(keyRow)) : none("No key was created. `turnout keys create` makes one.")),
        fill("audit", "admin/audit?limit=100", (rows) =>
            rows.length
                ? h("div", { class: "wide" }, table("Audit", ["Time", "Who", "Did", "To", "Detail"], rows.map((row, i) => ({
                    key: `${row.at} ${i}`,
                    cells: [f.time(row.at), row.actor, DID[row.action] ?? f.words(row.action), h("b", {}, row.target ?? "–"), plain(row.detail)],
                }))))
                : none("Nothing was changed yet.")),
    ]);
}

/** @param {any} state */
export function showOverrides(state) {
    const rows = [
        ...state.models.filter((/** @type {any} */ m) => m.closed).map((/** @type {any} */ m) => [`Model ${m.name} is closed`, m.closed.reason, "open", m.name, "Open"]),
        ...state.upstreams.flatMap((/** @type {any} */ u) => u.replicas.filter((/** @type {any} */ r) => r.drained).map((/** @type {any} */ r) => [`Replica ${r.address} of ${u.name} is drained`, "", "undrain", u.name, "Undrain", r])),
        ...state.models.flatMap((/** @type {any} */ m) => Object.entries(m.moved).map(([kind, why]) => [`${kind === "tool" ? "Tool" : "JSON"} calls of ${m.name} go to the next model`, why, "takeback", m.name, "Take back", null, kind])),
        ...state.experiments.filter((/** @type {any} */ e) => e.overridden).map((/** @type {any} */ e) => [`Experiment ${e.name} splits ${Object.entries(e.arms).map(([arm, w]) => `${arm} ${w}`).join(", ")}`, "", "split", e.name, "Change split"]),
    ];
    const items = rows.map(([text, more, act, name, label, replica, kind]) =>
        h("li", { "data-key": `${act} ${name} ${replica?.index ?? kind ?? ""}` }, mark("warn", text), more ? h("span", { class: "quiet" }, `: ${more}`) : null, " ",
            h("button", { class: "small", "data-act": act, "data-name": name, "data-index": replica?.index, "data-address": replica?.address, "data-kind": kind }, label)));
    show(at("overrides"), items.length ? h("ul", { class: "plain" }, items) : h("p", { class: "none" }, "None: everything is as the file says."));
}
