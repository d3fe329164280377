/**
 * The snapshots of `/admin/events`, for as long as the page is open: a lost connection is made again, with pauses that
 * grow from half a second to ten.
 */

import { call, events } from "./api.js";

const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 10_000;
/** Milliseconds without an event after which a connection counts as lost: the gateway sends one every two seconds. */
const SILENCE = 12_000;

export class Feed {
    /**
     * @param {(state: any) => void} onState
     * @param {(trouble: string | null) => void} onTrouble null: it flows
     */
    constructor(onState, onTrouble) {
        this.onState = onState;
        this.onTrouble = onTrouble;
        this.pause = FIRST_PAUSE;
        /** @type {AbortController | null} */
        this.abort = null;
        /** @type {number | undefined} */
        this.timer = undefined;
        this.running = false;
        window.addEventListener("online", () => this.retry());
        document.addEventListener("visibilitychange", () => document.hidden || this.retry());
    }

    start() {
        this.stop();
        this.running = true;
        this.pause = FIRST_PAUSE;
        void this.listen();
    }

    stop() {
        this.running = false;
        this.abort?.abort();
        this.abort = null;
        clearTimeout(this.timer);
    }

    /** Try again at once if it is waiting to. */
    retry() {
        if (this.running && !this.abort) {
            clearTimeout(this.timer);
            void this.listen();
        }
    }

    async listen() {
        const abort = (this.abort = new AbortController());
        let trouble = "The connection was closed";
        try {
            await this.read(abort);
        } catch (error) {
            const failed = /** @type {any} */ (error);
            if (failed.status === 401) return void (this.running = false); // the login form starts it again
            if (failed.status !== undefined) trouble = failed.message;
        }
        if (abort !== this.abort || !this.running) return;
        this.abort = null;
        this.onTrouble(trouble);
        this.timer = setTimeout(() => void this.listen(), this.pause * (0.75 + Math.random() / 2));
        this.pause = Math.min(LONGEST_PAUSE, this.pause * 2);
    }

    /** @param {AbortController} abort */
    async read(abort) {
        let silence = setTimeout(() => abort.abort(), SILENCE);
        try {
            const response = await call("admin/events", { signal: abort.signal });
            for await (const { event, data } of events(response)) {
                clearTimeout(silence);
                silence = setTimeout(() => abort.abort(), SILENCE);
                if (event !== "state") continue;
                this.pause = FIRST_PAUSE;
                this.onTrouble(null);
                try {
                    this.onState(JSON.parse(data));
                } catch (error) {
                    reportError(error); // a fault of the page, not of the connection
                }
            }
        } finally {
            clearTimeout(silence);
        }
    }
}
