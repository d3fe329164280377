/**
 * Building and updating the page's nodes. Nothing is ever parsed as HTML, so no text of a caller can become markup.
 */

const SVG = "http://www.w3.org/2000/svg";

/**
 * @typedef {Node | string | number | null | undefined | false | any[]} Child arrays are laid flat
 * @typedef {Record<string, any>} Props attributes; `style`: an object of CSS properties, which `style-src 'self'` lets
 *   scripts set; null, undefined and false leave one out
 */

/**
 * @param {Element} node
 * @param {Props} props
 * @param {any[]} children
 */
function fill(node, props, children) {
    for (const [name, value] of Object.entries(props)) {
        if (value === null || value === undefined || value === false) continue;
        if (name === "style") {
            for (const [property, text] of Object.entries(value)) /** @type {any} */ (node).style.setProperty(property, text);
        } else {
            node.setAttribute(name, value === true ? "" : String(value));
        }
    }
    node.append(...children.flat(9).filter((c) => c !== null && c !== undefined && c !== false && c !== ""));
    return node;
}

/**
 * An HTML element.
 * @param {string} tag
 * @param {Props} [props]
 * @param {...Child} children
 * @returns {HTMLElement}
 */
export function h(tag, props = {}, ...children) {
    return /** @type {HTMLElement} */ (fill(document.createElement(tag), props, children));
}

/**
 * An SVG element.
 * @param {string} tag
 * @param {Props} [props]
 * @param {...Child} children
 */
export function svg(tag, props = {}, ...children) {
    return fill(document.createElementNS(SVG, tag), props, children);
}

/**
 * The element with an id, which must be there.
 * @param {string} id
 * @returns {any}
 */
export function at(id) {
    const found = document.getElementById(id);
    if (!found) throw new Error(`no element #${id}`);
    return found;
}

/**
 * Make an element's children equal to these, keeping the nodes that fit: focus, hover and open details stay.
 * @param {Element} parent
 * @param {...Child} children
 */
export function show(parent, ...children) {
    const wanted = document.createElement("div");
    fill(wanted, {}, children);
    morphChildren(parent, wanted);
}

/**
 * Children with a key (`data-key`) keep their node wherever they move to.
 * @param {Element} from
 * @param {Element} to
 */
function morphChildren(from, to) {
    const wanted = [...to.childNodes];
    const keys = new Set(wanted.map(keyOf).filter(Boolean));
    wanted.forEach((node, index) => {
        const old = placed(from, node, index);
        if (!old) from.append(node);
        else if (alike(old, node)) morph(old, node);
        else if (keys.has(keyOf(old))) from.insertBefore(node, old);
        else from.replaceChild(node, old);
    });
    while (from.childNodes.length > wanted.length) from.lastChild?.remove();
}

/** @param {any} node */
const keyOf = (node) => node.dataset?.key;

/** @param {any} a @param {any} b */
const alike = (a, b) => a.nodeName === b.nodeName && keyOf(a) === keyOf(b);

/**
 * The child at an index, after the one with the node's key has been moved there if there is one.
 * @param {Element} from
 * @param {Node} node
 * @param {number} index
 */
function placed(from, node, index) {
    const there = from.childNodes[index];
    if (!there || !keyOf(node) || alike(there, node)) return there;
    const kept = [...from.childNodes].slice(index).find((one) => alike(one, node));
    return kept ? from.insertBefore(kept, there) : there;
}

/**
 * @param {any} from
 * @param {any} to
 */
function morph(from, to) {
    if (from.nodeType === Node.TEXT_NODE) {
        if (from.nodeValue !== to.nodeValue) from.nodeValue = to.nodeValue;
        return;
    }
    for (const { name } of [...from.attributes]) {
        if (!to.hasAttribute(name) && !(name === "open" && from.nodeName === "DETAILS")) from.removeAttribute(name);
    }
    for (const { name, value } of to.attributes) {
        if (name === "style") from.style.cssText = to.style.cssText;
        else if (from.getAttribute(name) !== value) from.setAttribute(name, value);
    }
    morphChildren(from, to);
}

/**
 * Have a screen reader say something; figures that change all the time are not said.
 * @param {string} text
 */
export function announce(text) {
    if (at("announcer").textContent !== text) at("announcer").textContent = text;
}

/**
 * A table whose cells carry their column's name, so that a narrow screen can show each row as a list.
 * @param {string} caption for screen readers
 * @param {(string | {name: string, number?: boolean})[]} columns
 * @param {{key: string, cells: Child[], class?: string}[]} rows
 */
export function table(caption, columns, rows) {
    const heads = columns.map((column) => (typeof column === "string" ? { name: column, number: false } : column));
    const kind = heads.map((head) => (head.number ? "number" : head.name === "Action" ? "action" : null));
    return h(
        "table",
        {},
        h("caption", { class: "hidden" }, caption),
        h("thead", {}, h("tr", {}, heads.map((head, i) => h("th", { scope: "col", class: kind[i] }, head.name)))),
        h("tbody", {}, rows.map((row) =>
            h("tr", { "data-key": row.key, class: row.class }, row.cells.map((cell, i) =>
                h("td", { class: cell === "–" ? `${kind[i] ?? ""} empty` : kind[i], "data-label": heads[i].name }, cell))))),
    );
}

/**
 * A bar from 0 to 1 that says so to screen readers as well.
 * @param {number} share
 * @param {string} label
 * @param {string} [tone] good, warn or bad
 */
export function meter(share, label, tone = "") {
    const percent = Math.round(Math.min(1, Math.max(0, share)) * 100);
    return h(
        "span",
        { class: "meter", role: "meter", "aria-label": label, "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": percent },
        h("span", { class: `fill ${tone}`, style: { width: `${percent}%` } }),
    );
}

/**
 * A state in words with a mark whose shape differs as its colour does.
 * @param {"good" | "warn" | "bad" | "off"} tone
 * @param {Child} text
 * @param {string} [title]
 */
export function mark(tone, text, title) {
    const shape = { good: "●", warn: "▲", bad: "■", off: "○" }[tone];
    return h("span", { class: `mark ${tone}`, title }, h("span", { class: "shape", "aria-hidden": "true" }, shape), " ", text);
}
