/**
 * The four live charts, drawn by uPlot. Each has a legend with figures, the text of which also follows the cursor (mouse,
 * finger, or arrow keys), and a summary for those who do not see it.
 */

import { at, h, show } from "./dom.js";
import * as f from "./format.js";
import { MINUTES } from "./history.js";

/**
 * @typedef {{field: string, label: string, colour: string, dash?: number[]}} Line
 * @typedef {{id: string, title: string, unit: string, stacked?: boolean, lines: Line[], text: (v: any) => string}} Plan
 */

/** Seconds that a chart shows when the page was just opened. */
const SHORTEST = 120;

/** @type {Plan[]} */
const PLANS = [
    {
        id: "requests", title: "Requests", unit: "per second", stacked: true, text: f.rate,
        lines: [
            { field: "ok", label: "served", colour: "--served" },
            { field: "limited", label: "over a limit", colour: "--limited" },
            { field: "caller", label: "caller’s mistake", colour: "--caller" },
            { field: "failed", label: "failed", colour: "--failed" },
        ],
    },
    {
        id: "latency", title: "Time", unit: "to the whole answer, and to the first token", text: f.seconds,
        lines: [
            { field: "latency50", label: "half", colour: "--served" },
            { field: "latency95", label: "95 %", colour: "--served", dash: [5, 3] },
            { field: "first50", label: "first token, half", colour: "--second" },
            { field: "first95", label: "first token, 95 %", colour: "--second", dash: [5, 3] },
        ],
    },
    {
        id: "tokens", title: "Tokens", unit: "per second, in and out", text: f.rate,
        lines: [{ field: "tokens", label: "tokens", colour: "--second" }],
    },
    {
        id: "cost", title: "Cost", unit: "US dollars per hour, at this pace", text: f.usd,
        lines: [{ field: "cost", label: "cost", colour: "--money" }],
    },
];

/** @param {number} at seconds since 1970 */
const clock = (at) => new Date(at * 1000).toLocaleTimeString("en-GB");

/** Times along the axis, with seconds where they differ in them. @type {(...of: any[]) => string[]} */
const clocks = (_, ticks, __, ___, step) => ticks.map((/** @type {number} */ at) => (step < 60 ? clock(at) : clock(at).slice(0, 5)));

/** From 0 to a little more than the largest value. @type {(...of: any[]) => number[]} */
const above = (_, __, most) => [0, (most || 1) * 1.1];

/** @param {string} name of a CSS property */
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

class Chart {
    /** @param {Plan} plan */
    constructor(plan) {
        this.plan = plan;
        /** @type {import("./history.js").Point[]} */
        this.points = [];
        this.legend = h("ul", { class: "legend" });
        this.canvas = h("div", { class: "plot", role: "img", tabindex: "0", "aria-label": plan.title });
        this.root = h(
            "figure",
            { id: `chart-${plan.id}`, class: "chart" },
            h("figcaption", {}, h("b", {}, plan.title), " ", h("span", { class: "quiet" }, plan.unit)),
            this.legend,
            this.canvas,
        );
        this.canvas.addEventListener("keydown", (event) => this.step(event));
        this.canvas.addEventListener("blur", () => this.plot.setCursor({ left: -10, top: -10 }));
    }

    /** Once it is in the page, and has a width. */
    begin() {
        const Plot = /** @type {any} */ (window).uPlot;
        this.plot = new Plot(this.options(), this.data(), this.canvas);
        new ResizeObserver(() => {
            const width = this.canvas.clientWidth;
            if (width && width !== this.plot.width) this.plot.setSize({ width, height: this.plot.height });
        }).observe(this.canvas);
    }

    options() {
        const { lines, stacked, text } = this.plan;
        const stroke = () => colour("--quiet");
        const grid = { stroke: () => colour("--rule"), width: 1 };
        const axis = { stroke, grid, ticks: { show: false }, font: "12px system-ui, sans-serif" };
        return {
            width: this.canvas.clientWidth || 320,
            height: 150,
            legend: { show: false },
            cursor: { y: false, drag: { x: false, y: false }, points: { show: !stacked }, sync: { key: "time" } },
            scales: { x: { time: true, range: () => this.range() }, y: { range: above } },
            axes: [
                { ...axis, grid: { show: false }, space: (/** @type {any} */ plot) => (plot.width > 500 ? 90 : 56), size: 24, values: clocks },
                { ...axis, size: 56, space: 34, values: (/** @type {any} */ _, /** @type {number[]} */ ticks) => ticks.map(text) },
            ],
            series: [
                {},
                ...lines.map((line) => ({
                    label: line.label,
                    stroke: () => colour(line.colour),
                    fill: stacked ? () => colour(`${line.colour}-fill`) : undefined,
                    dash: line.dash,
                    width: 1.5,
                    points: { show: false },
                })),
            ],
            hooks: { setCursor: [() => this.tell()] },
        };
    }

    range() {
        const now = Number(this.points.at(-1)?.at ?? Date.now() / 1000);
        const begun = Number(this.points[0]?.at ?? now);
        return [now - Math.min(MINUTES * 60, Math.max(SHORTEST, now - begun)), now];
    }

    /** The columns as uPlot wants them; stacked ones lie on those after them. */
    data() {
        const { lines, stacked } = this.plan;
        const column = (/** @type {string[]} */ fields) =>
            this.points.map((point) => {
                const known = fields.map((field) => point[field]).filter((value) => value !== null && value !== undefined);
                return known.length ? known.reduce((sum, value) => Number(sum) + Number(value), 0) : null;
            });
        const fields = lines.map((line) => line.field);
        return [this.points.map((point) => point.at), ...fields.map((field, i) => column(stacked ? fields.slice(i) : [field]))];
    }

    /** @param {import("./history.js").Point[]} points */
    update(points) {
        this.points = points;
        this.plot.setData(this.data());
        this.tell();
    }

    /** Legend and summary say the figures under the cursor, else the latest. */
    tell() {
        const index = this.plot?.cursor.idx;
        const chosen = index === null || index === undefined ? undefined : this.points[index];
        const point = chosen ?? this.points.at(-1) ?? {};
        const { lines, text, title, unit } = this.plan;
        const figures = lines.map((line) => ({ line, value: text(point[line.field]) }));
        const items = figures.map(({ line, value }) =>
            h("li", {}, h("span", { class: `key ${line.dash ? "dashed" : ""}`, style: { color: `var(${line.colour})` } }), line.label, " ", h("b", {}, value)));
        show(this.legend, items, chosen ? h("li", { class: "quiet" }, `at ${f.time(Number(chosen.at))}`) : null);
        const said = figures.map(({ line, value }) => `${line.label} ${value}`).join(", ");
        this.canvas.setAttribute("aria-label", `${title}, ${unit}, ${chosen ? `at ${f.time(Number(chosen.at))}` : "now"}: ${said}.`);
    }

    /** Arrow keys move the cursor. @param {KeyboardEvent} event */
    step(event) {
        const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -15, PageDown: 15 }[event.key];
        if (!by || !this.points.length) return;
        event.preventDefault();
        const last = this.points.length - 1;
        const index = Math.min(last, Math.max(0, (this.plot.cursor.idx ?? last) + by));
        this.plot.setCursor({ left: this.plot.valToPos(this.points[index].at, "x"), top: 10 });
    }
}

/** All charts of the page. */
export class Charts {
    constructor() {
        this.charts = PLANS.map((plan) => new Chart(plan));
        at("charts").append(...this.charts.map((chart) => chart.root));
        for (const chart of this.charts) chart.begin();
        window.addEventListener("themed", () => this.charts.forEach((chart) => chart.plot.redraw(false)));
    }

    /** @param {import("./history.js").Point[]} points */
    update(points) {
        for (const chart of this.charts) chart.update(points);
    }
}
