/**
 * What the counters did in the last fifteen minutes. The gateway tells only sums since its start; rates and quantiles come
 * from their differences. A tab keeps its history over a reload of the page.
 */

import { classOf } from "./format.js";

export const MINUTES = 15;
const KEEP = MINUTES * 60;
/** Seconds that a rate, and a quantile, is of: fewer would jump about. */
const RATE_SPAN = 10;
const QUANTILE_SPAN = 30;
const TRAFFIC_STEP = 30;
const STORE = "turnout-history-3";
/** The counters that are shown by their labels. */
const COUNTED = ["requests", "attempts", "fallbacks", "rejections"];

/**
 * @typedef {{bounds: number[], counts: number[]}} Histogram counts: up to each bound, and all
 * @typedef {{at: number, epoch: number, classes: Record<string, number>, tokens: number, cost: number,
 *   latency: Histogram, first: Histogram}} Sample
 * @typedef {Record<string, number | null>} Point what the charts show of one moment; `at` in seconds
 */

/**
 * @param {any[]} rows of one histogram, any labels
 * @returns {Histogram}
 */
export function merged(rows) {
    const bounds = rows[0]?.buckets.map((/** @type {number[]} */ pair) => pair[0]) ?? [];
    const counts = new Array(bounds.length + 1).fill(0);
    for (const row of rows) {
        row.buckets.forEach((/** @type {number[]} */ pair, /** @type {number} */ i) => (counts[i] += pair[1]));
        counts[bounds.length] += row.count;
    }
    return { bounds, counts };
}

/**
 * The value below which a share of the values lie, between the bounds of its bucket; null: there are none.
 * @param {number[]} bounds
 * @param {number[]} counts
 * @param {number} share
 */
export function quantile(bounds, counts, share) {
    const total = counts[bounds.length] ?? 0;
    if (total <= 0) return null;
    const rank = share * total;
    const i = counts.findIndex((n) => n >= rank);
    if (i >= bounds.length) return bounds[bounds.length - 1] ?? null;
    const [below, from] = i === 0 ? [0, 0] : [counts[i - 1], bounds[i - 1]];
    return from + ((bounds[i] - from) * (rank - below)) / Math.max(1e-9, counts[i] - below);
}

/**
 * @param {any} state
 * @param {number} epoch
 * @returns {Sample}
 */
function sampled(state, epoch) {
    const counters = state.counters;
    const classes = { ok: 0, left: 0, limited: 0, caller: 0, failed: 0 };
    for (const row of counters.requests) classes[classOf(row.outcome)] += row.count;
    const tokens = counters.tokens.filter((/** @type {any} */ row) => row.kind === "prompt" || row.kind === "completion");
    const sum = (/** @type {any[]} */ rows, /** @type {string} */ name) => rows.reduce((all, row) => all + row[name], 0);
    return {
        at: state.at,
        epoch,
        classes,
        tokens: sum(tokens, "count"),
        cost: sum(counters.cost, "usd"),
        latency: merged(counters.latency),
        first: merged(counters.first_token),
    };
}

export class History {
    constructor() {
        /** @type {Point[]} */
        this.points = [];
        /** @type {Sample[]} */
        this.samples = [];
        /** @type {{at: number, epoch: number, rows: Record<string, any[]>}[]} */
        this.traffic = [];
        this.epoch = 0;
        this.restore();
        window.addEventListener("pagehide", () => this.save());
    }

    /** @param {any} state */
    add(state) {
        const last = this.samples.at(-1);
        if (last && state.at <= last.at) return;
        const sample = sampled(state, this.epoch);
        if (last && fell(last, sample)) {
            sample.epoch = this.epoch += 1; // the gateway was started anew: nothing before can be subtracted
            this.points.push(hole(state.at - 0.1));
        } else if (last && state.at - last.at > 15) {
            this.points.push(hole(state.at - 0.1)); // nobody looked
        }
        this.samples.push(sample);
        this.points.push(this.point(sample));
        this.keepTraffic(state, sample.epoch);
        const oldest = state.at - KEEP;
        this.points = this.points.filter((point) => Number(point.at) >= oldest);
        this.samples = this.samples.filter((one) => one.at >= state.at - 2 * QUANTILE_SPAN);
    }

    /**
     * The latest sample that is at least so old, else the oldest; of the same run of the gateway.
     * @param {Sample} sample
     * @param {number} span seconds
     */
    before(sample, span) {
        const same = this.samples.filter((one) => one.epoch === sample.epoch && one.at < sample.at);
        return same.filter((one) => one.at <= sample.at - span).at(-1) ?? same[0];
    }

    /**
     * @param {Sample} sample
     * @returns {Point}
     */
    point(sample) {
        const base = this.before(sample, RATE_SPAN);
        if (!base) return hole(sample.at);
        const took = sample.at - base.at;
        /** @type {Point} */
        const point = { at: sample.at };
        for (const name of Object.keys(sample.classes)) point[name] = (sample.classes[name] - base.classes[name]) / took;
        point.tokens = (sample.tokens - base.tokens) / took;
        point.cost = ((sample.cost - base.cost) / took) * 3600;
        const wide = this.before(sample, QUANTILE_SPAN) ?? base;
        for (const [name, now, then] of /** @type {[string, Histogram, Histogram][]} */ ([
            ["latency", sample.latency, wide.latency],
            ["first", sample.first, wide.first],
        ])) {
            const counts = now.counts.map((n, i) => n - (then.counts[i] ?? 0));
            point[`${name}50`] = quantile(now.bounds, counts, 0.5);
            point[`${name}95`] = quantile(now.bounds, counts, 0.95);
        }
        return point;
    }

    /**
     * @param {any} state
     * @param {number} epoch
     */
    keepTraffic(state, epoch) {
        const last = this.traffic.at(-1);
        if (!last || last.epoch !== epoch || state.at - last.at >= TRAFFIC_STEP) {
            this.traffic.push({ at: state.at, epoch, rows: counted(state) });
        }
        this.traffic = this.traffic.filter((one) => one.epoch === epoch && one.at >= state.at - KEEP);
    }

    /**
     * What counters counted in the last minutes; since the start where nothing was yet.
     * @param {any} state
     * @returns {{span: number | null, rows: Record<string, any[]>}} span: seconds; null: since the gateway's start
     */
    recent(state) {
        const base = this.traffic[0];
        const now = counted(state);
        if (!base || state.at - base.at < TRAFFIC_STEP) return { rows: now, span: null };
        const rows = Object.fromEntries(COUNTED.map((name) => [name, gained(base.rows[name], now[name])]));
        return rows.requests.length ? { rows, span: state.at - base.at } : { rows: now, span: null };
    }

    save() {
        try {
            const { points, samples, traffic, epoch } = this;
            sessionStorage.setItem(STORE, JSON.stringify({ points, samples, traffic, epoch }));
        } catch {
            // no storage, or no room in it: the next page begins anew
        }
    }

    /** Whoever comes next sees nothing of it. */
    forget() {
        [this.points, this.samples, this.traffic] = [[], [], []];
        sessionStorage.removeItem(STORE);
    }

    restore() {
        try {
            Object.assign(this, JSON.parse(sessionStorage.getItem(STORE) ?? "{}"));
        } catch {
            // as above
        }
    }
}

/** @param {any} state @returns {Record<string, any[]>} */
const counted = (state) => Object.fromEntries(COUNTED.map((name) => [name, state.counters[name]]));

/**
 * The rows of a counter that have grown, and by how much.
 * @param {any[]} before
 * @param {any[]} now
 */
function gained(before, now) {
    const key = (/** @type {any} */ { count, ...labels }) => JSON.stringify(labels);
    const then = new Map(before.map((row) => [key(row), row.count]));
    return now.map((row) => ({ ...row, count: row.count - (then.get(key(row)) ?? 0) })).filter((row) => row.count > 0);
}

/**
 * @param {Sample} before
 * @param {Sample} after
 */
function fell(before, after) {
    return (
        Object.keys(after.classes).some((name) => after.classes[name] < before.classes[name]) ||
        after.tokens < before.tokens || after.cost < before.cost - 1e-9
    );
}

/**
 * A moment of which nothing is known: lines break there.
 * @param {number} at
 * @returns {Point}
 */
const hole = (at) => ({ at });
