/**
 * Where requests went: route -> model -> upstream as a Sankey picture, and as a table. What failed is a red part of its band.
 */

import { at, h, show, svg, table } from "./dom.js";
import { classOf, count, long, percent } from "./format.js";

const NODE = 10;
const GAP = 8;
/** Pixels that all requests together are high, and that a name needs. */
const TALL = 220;
const LINE = 18;
/** Below this width names are cut, and shares are left to the table. */
const NARROW = 560;
const DIRECT = "(named directly)";
const NOWHERE = "(not sent)";

/** @typedef {{column: number, name: string, total: number, failed: number, y: number, left: number, right: number}} Place */
/** @typedef {{from: Place, to: Place, total: number, failed: number}} Link */

/**
 * @param {any[]} rows of the counter of requests
 * @param {Set<string>} models their names: callers may name one instead of a route
 * @returns {{places: Place[], links: Link[], total: number}}
 */
export function graph(rows, models) {
    /** @type {Map<string, Place>} */
    const places = new Map();
    /** @type {Map<string, Link>} */
    const links = new Map();
    let total = 0;
    for (const row of rows) {
        const failed = classOf(row.outcome) === "failed" ? row.count : 0;
        const path = [!row.route || models.has(row.route) ? DIRECT : row.route, row.model || NOWHERE, row.upstream || NOWHERE].map((name, column) => {
            const key = `${column} ${name}`;
            const place = places.get(key) ?? { column, name, total: 0, failed: 0, y: 0, left: 0, right: 0 };
            places.set(key, place);
            place.total += row.count;
            place.failed += failed;
            return place;
        });
        total += row.count;
        for (const [from, to] of [[path[0], path[1]], [path[1], path[2]]]) {
            const key = `${from.column} ${from.name}\n${to.name}`;
            const link = links.get(key) ?? { from, to, total: 0, failed: 0 };
            links.set(key, link);
            link.total += row.count;
            link.failed += failed;
        }
    }
    const sorted = [...places.values()].sort((a, b) => a.column - b.column || b.total - a.total);
    return { places: sorted.filter((p) => p.total > 0), links: [...links.values()].filter((l) => l.total > 0), total };
}

/**
 * Heights are shares of the whole, but no name lies on another.
 * @param {Place[]} places
 * @param {number} total
 * @returns {{scale: number, height: number}} scale: pixels of one request
 */
function arrange(places, total) {
    const scale = TALL / Math.max(1, total);
    const slot = (/** @type {Place} */ place) => Math.max(LINE, thick(place.total, scale)) + GAP;
    const columns = [0, 1, 2].map((column) => places.filter((place) => place.column === column));
    const heights = columns.map((inside) => inside.reduce((sum, place) => sum + slot(place), 0));
    const height = Math.max(...heights);
    columns.forEach((inside, column) => {
        let y = (height - heights[column]) / 2;
        for (const place of inside) {
            place.y = place.left = place.right = y + (slot(place) - thick(place.total, scale)) / 2;
            y += slot(place);
        }
    });
    return { scale, height };
}

/** @param {number} amount @param {number} scale */
const thick = (amount, scale) => (amount ? Math.max(1.5, amount * scale) : 0);

/**
 * @param {number} x0
 * @param {number} x1
 * @param {number} y0
 * @param {number} y1
 * @param {number} size
 */
function band(x0, x1, y0, y1, size) {
    const middle = (x0 + x1) / 2;
    return `M${x0},${y0}C${middle},${y0} ${middle},${y1} ${x1},${y1}v${size}C${middle},${y1 + size} ${middle},${y0 + size} ${x0},${y0 + size}Z`;
}

/** @param {string} name @param {{total: number, failed: number}} of @param {number} total */
const figures = (name, of, total) =>
    `${name}: ${count(of.total)} requests, ${percent(of.total / total)} of all${of.failed ? `, ${percent(of.failed / of.total)} of them failed` : ""}`;

/**
 * @param {{places: Place[], links: Link[], total: number}} graph
 * @param {number} width
 */
function picture({ places, links, total }, width) {
    const { scale, height } = arrange(places, total);
    const x = [0, (width - NODE) / 2, width - NODE];
    const order = [...links].sort((a, b) => a.from.column - b.from.column || a.from.y - b.from.y || a.to.y - b.to.y);
    const drawn = order.map((link) => {
        const [x0, x1] = [x[link.from.column] + NODE, x[link.to.column]];
        const said = figures(`${link.from.name} → ${link.to.name}`, link, total);
        const parts = [{ size: thick(link.total - link.failed, scale), tone: "" }, { size: thick(link.failed, scale), tone: "failing" }];
        const paths = parts.filter((part) => part.size).map((part) => {
            const d = band(x0, x1, link.from.right, link.to.left, part.size);
            link.from.right += part.size;
            link.to.left += part.size;
            return svg("path", { d, class: `band ${part.tone}` });
        });
        return svg("g", { class: "link", "data-tip": said, "data-key": said.split(":")[0] }, svg("title", {}, said), paths);
    });
    const nodes = places.map((place) => node(place, total, x[place.column], thick(place.total, scale), width < NARROW));
    return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Traffic from routes to models to upstreams; the figures are in the table below" }, drawn, nodes);
}

/**
 * @param {Place} place
 * @param {number} total
 * @param {number} x
 * @param {number} size
 * @param {boolean} narrow
 */
function node(place, total, x, size, narrow) {
    const said = figures(place.name, place, total);
    const end = place.column === 2;
    const label = { x: end ? x - 6 : x + NODE + 6, y: place.y + size / 2, class: "label", "text-anchor": end ? "end" : "start" };
    return svg(
        "g",
        { class: "node", tabindex: "0", role: "img", "aria-label": said, "data-tip": said, "data-key": `${place.column} ${place.name}` },
        svg("rect", { x, y: place.y, width: NODE, height: size, rx: 2 }),
        svg("text", label, narrow && place.name.length > 10 ? `${place.name.slice(0, 9)}…` : place.name, !narrow && svg("tspan", { class: "share" }, ` ${percent(place.total / total)}`)),
    );
}

/** @param {number | null} span seconds */
export const when = (span) => (span === null ? "since the gateway’s start" : `in the last ${long(Math.max(60, Math.round(span / 60) * 60))}`);

/** The panel. */
export class Flow {
    constructor() {
        this.root = at("flow");
        for (const event of ["pointerover", "focusin"]) {
            this.root.addEventListener(event, (/** @type {any} */ happened) => this.tip(happened.target.closest?.("[data-tip]")));
        }
        this.root.addEventListener("pointerleave", () => this.tip(null));
        new ResizeObserver(() => this.rows && this.draw()).observe(this.root);
    }

    /** @param {Element | null} element */
    tip(element) {
        at("flow-tip").textContent = element?.getAttribute("data-tip") ?? "Point at a band, or move to a name with Tab, for its figures.";
    }

    /**
     * @param {{rows: Record<string, any[]>, span: number | null}} recent
     * @param {any} state
     */
    update({ rows, span }, { models }) {
        this.models = new Set(models.map((/** @type {any} */ model) => model.name));
        this.rows = rows.requests;
        at("flow-span").textContent = when(span);
        this.draw();
    }

    draw() {
        const made = graph(this.rows ?? [], this.models ?? new Set());
        at("flow-figure").hidden = made.total === 0;
        at("flow-none").hidden = made.total !== 0;
        if (!made.total) return;
        show(at("flow-picture"), picture(made, Math.max(280, at("flow-picture").clientWidth)));
        const rows = made.links.map((link) => ({
            key: `${link.from.column} ${link.from.name} ${link.to.name}`,
            cells: [link.from.name, link.to.name, count(link.total), percent(link.total / made.total), link.failed ? percent(link.failed / link.total) : "none"],
        }));
        const columns = ["From", "To", { name: "Requests", number: true }, { name: "Of all", number: true }, { name: "Failed", number: true }];
        show(at("flow-table"), h("div", { class: "wide" }, table("Traffic by route, model and upstream", columns, rows)));
    }
}
