/**
 * Numbers, times and outcomes as people read them. "–" stands for what is not known.
 */

/** What callers do wrong: the gateway works, so these are no failures (`source` in the table of errors). */
export const CALLERS_FAULT = new Set([
    "invalid_request", "invalid_api_key", "model_not_allowed", "model_not_found", "unknown_path", "method_not_allowed",
    "request_timeout", "body_too_large", "unsupported_media_type", "context_length_exceeded", "content_blocked",
    "rate_limit_exceeded", "insufficient_quota",
]);
/** Those among them that limits and budgets refused. */
export const LIMITED = new Set(["rate_limit_exceeded", "insufficient_quota"]);

/**
 * @param {string} outcome
 * @returns {"ok" | "left" | "limited" | "caller" | "failed"}
 */
export function classOf(outcome) {
    if (outcome === "ok") return "ok";
    if (outcome === "client_closed") return "left";
    if (LIMITED.has(outcome)) return "limited";
    return CALLERS_FAULT.has(outcome) ? "caller" : "failed";
}

/** @param {number | null | undefined} value */
const unknown = (value) => value === null || value === undefined || Number.isNaN(value);

/**
 * @param {number} value
 * @param {number} digits
 */
const fixed = (value, digits) => value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });

/** A count: 950, 12.3 k, 4.56 M. @param {number | null | undefined} value */
export function count(value) {
    if (unknown(value)) return "–";
    const number = Number(value);
    for (const [size, unit] of /** @type {[number, string][]} */ ([[1e9, " G"], [1e6, " M"], [1e4, " k"]])) {
        if (Math.abs(number) >= size) {
            const scaled = number / (unit === " k" ? 1e3 : size);
            return fixed(scaled, scaled < 100 ? 1 : 0) + unit;
        }
    }
    return fixed(number, Number.isInteger(number) || number >= 100 ? 0 : 1);
}

/** Something per second. @param {number | null | undefined} value */
export function rate(value) {
    if (unknown(value)) return "–";
    const number = Number(value);
    if (number >= 1e4) return count(number);
    return number === 0 ? "0" : fixed(number, number >= 100 ? 0 : number >= 1 ? 1 : 2);
}

/** A share of 1. @param {number | null | undefined} value */
export function percent(value) {
    if (unknown(value)) return "–";
    const number = Number(value) * 100;
    return `${number === 0 || number >= 99.95 ? fixed(number, 0) : fixed(number, number >= 10 ? 0 : number >= 0.1 ? 1 : 2)} %`;
}

/** @param {number | null | undefined} value US dollars */
export function usd(value) {
    if (unknown(value)) return "–";
    const number = Number(value);
    if (number === 0) return "$0";
    if (number >= 1000) return `$${count(number)}`;
    if (number >= 0.1) return `$${fixed(number, 2)}`;
    return number < 0.000001 ? "< $0.000001" : `$${Number(number.toPrecision(2)).toLocaleString("en", { maximumFractionDigits: 8 })}`;
}

/** @param {number | null | undefined} value seconds */
export function seconds(value) {
    if (unknown(value)) return "–";
    const number = Number(value);
    if (number === 0) return "0 s";
    if (number < 0.01) return `${fixed(number * 1000, 1)} ms`;
    if (number < 1) return `${fixed(number * 1000, 0)} ms`;
    if (number < 120) return `${fixed(number, number < 10 ? 2 : 0)} s`;
    return long(number);
}

/** A long time in its two largest units. @param {number} value seconds */
export function long(value) {
    const parts = /** @type {[number, string][]} */ ([[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]]);
    let left = Math.max(0, Math.round(value));
    const said = [];
    for (const [size, unit] of parts) {
        const whole = Math.floor(left / size);
        left -= whole * size;
        if (whole) said.push(`${whole} ${unit}`);
        if (said.length === 2) break;
    }
    return said.join(" ") || "0 s";
}

/**
 * A moment of today as a time, another as date and time, of another year with the year.
 * @param {number | string | null | undefined} moment seconds since 1970, or a date as text
 */
export function time(moment) {
    if (moment === null || moment === undefined) return "–";
    const when = typeof moment === "number" ? new Date(moment * 1000) : new Date(moment);
    if (Number.isNaN(when.getTime())) return String(moment);
    const clock = when.toLocaleTimeString("en-GB");
    const now = new Date();
    if (when.toDateString() === now.toDateString()) return clock;
    const year = when.getFullYear() === now.getFullYear() ? undefined : "numeric";
    return `${when.toLocaleDateString("en-GB", { day: "numeric", month: "short", year })} ${clock.slice(0, 5)}`;
}

/** `upstream_rate_limited` -> `upstream rate limited`. @param {string} code */
export const words = (code) => code.replaceAll("_", " ");

/**
 * What a model costs. @param {any} price as in the configuration; null: it has none
 */
export function price(price) {
    if (!price) return "no price";
    if (price.gpu_second) return `${usd(price.gpu_second)} per GPU second`;
    if (price.plan) return `plan of ${usd(price.plan.usd)} per ${price.plan.per ?? "month"}`;
    if (!unknown(price.input)) return `${usd(price.input)} in, ${usd(price.output)} out per M tokens`;
    return "priced";
}
