/**
 * The operations page. Snapshots come in by `feed.js`, every panel is drawn from the latest one.
 */

import { Actions, toast } from "./actions.js";
import { ApiError, JSON_TYPE, call } from "./api.js";
import { Charts } from "./charts.js";
import { showChanges, showOverrides } from "./changes.js";
import { announce, at, h, mark, show } from "./dom.js";
import { Feed } from "./feed.js";
import { showModels, showUpstreams } from "./fleet.js";
import { Flow } from "./flow.js";
import { long } from "./format.js";
import { History, MINUTES } from "./history.js";
import { Errors, showCauses, showExperiments, showFigures, showLimits, showStrip, showUnknown } from "./now.js";
import { showSpeculation } from "./speculation.js";
import { Story } from "./story.js";
import { TryIt } from "./tryit.js";

const VIEWS = ["now", "request", "try", "changes"];
/** Seconds after which figures count as old. */
const STALE = 7;
const THEME = "turnout-theme";
/** Kept while somebody is logged in: the cookie itself is not for scripts. */
const SESSION = "turnout-session";

class Page {
    constructor() {
        /** @type {any} */
        this.state = null;
        /** @type {string | null} */
        this.trouble = null;
        this.arrived = 0;
        this.history = new History();
        this.feed = new Feed((state) => this.update(state), (trouble) => this.told(trouble));
        this.charts = new Charts();
        this.flow = new Flow();
        this.errors = new Errors();
        this.story = new Story();
        this.tryIt = new TryIt();
        this.actions = new Actions(() => this.state, () => this.changed());
        this.theme();
        this.session();
        at("logout").hidden = !localStorage.getItem(SESSION);
        window.addEventListener("hashchange", () => this.turn());
        document.addEventListener("click", (event) => this.jump(event));
        setInterval(() => this.age(), 1000);
        this.turn();
        this.feed.start();
    }

    /** @param {any} state */
    update(state) {
        this.state = state;
        this.arrived = performance.now();
        at("loading").hidden = true;
        at("login").hidden = true;
        at("views").hidden = false;
        this.history.add(state);
        const point = this.history.points.at(-1) ?? {};
        showStrip(state, point);
        showFigures(state, point);
        const first = Number(this.history.points[0]?.at ?? state.at);
        at("span").textContent = `Last ${Math.min(MINUTES, Math.max(2, Math.ceil((state.at - first) / 60)))} minutes`;
        this.charts.update(this.history.points);
        const recent = this.history.recent(state);
        this.flow.update(recent, state);
        showCauses(recent);
        showUpstreams(state);
        showModels(state);
        showSpeculation(state);
        showLimits(state);
        showExperiments(state);
        showOverrides(state);
        this.tryIt.update(state);
        void this.errors.update(state);
        this.age();
    }

    /** @param {string | null} trouble */
    told(trouble) {
        this.trouble = trouble;
        if (trouble && !this.state) show(at("loading"), h("p", { class: "none" }, `${trouble} Trying again …`));
        this.age();
    }

    /** Says how old the figures are, and dims them when they are too old. */
    age() {
        if (!this.state) return;
        const old = (performance.now() - this.arrived) / 1000;
        const stale = old > STALE || this.trouble !== null;
        document.body.classList.toggle("stale", stale);
        const ago = old < 3 ? "just now" : `${long(old)} ago`;
        const why = this.trouble ? ` ${this.trouble} Trying again …` : "";
        if (stale) announce("The figures are old: the gateway does not answer.");
        if (old > STALE) showUnknown(ago);
        show(at("live"), stale ? mark("warn", `Figures of ${ago}.${why}`) : mark("good", `Live, ${ago}`));
    }

    /** Show the view that the address names: `#now`, `#request/ID`, `#try`, `#changes`. */
    turn() {
        const [name, ...rest] = location.hash.slice(1).split("/");
        const view = VIEWS.includes(name) ? name : "now";
        for (const one of VIEWS) {
            at(`view-${one}`).hidden = one !== view;
            const link = document.querySelector(`nav a[href="#${one}"]`);
            if (one === view) link?.setAttribute("aria-current", "page");
            else link?.removeAttribute("aria-current");
        }
        window.scrollTo(0, 0);
        if (view === "request") void this.story.open(decodeURIComponent(rest.join("/")));
        if (view === "changes") void showChanges();
    }

    /** A problem's link leads to its panel. @param {Event} event */
    jump(event) {
        const link = /** @type {any} */ (event.target).closest?.("[data-jump]");
        if (!link) return;
        event.preventDefault();
        const panel = at(link.dataset.jump).closest(".panel");
        panel.scrollIntoView();
        panel.focus({ preventScroll: true });
    }

    changed() {
        if (!at("view-changes").hidden) void showChanges();
    }

    theme() {
        const set = (/** @type {string | null} */ name) => {
            if (name) document.documentElement.dataset.theme = name;
            const dark = name ? name === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
            at("theme").setAttribute("aria-label", dark ? "Light colours" : "Dark colours");
            at("theme").dataset.dark = String(dark);
            window.dispatchEvent(new CustomEvent("themed"));
        };
        const kept = () => (["dark", "light"].includes(localStorage.getItem(THEME) ?? "") ? localStorage.getItem(THEME) : null);
        set(kept());
        matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => set(kept()));
        at("theme").addEventListener("click", () => {
            localStorage.setItem(THEME, at("theme").dataset.dark === "true" ? "light" : "dark");
            set(kept());
        });
    }

    /** Login and logout. */
    session() {
        window.addEventListener("locked", () => {
            this.feed.stop();
            this.state = null;
            at("dialog").close();
            at("loading").hidden = at("views").hidden = true;
            at("login").hidden = false;
            at("logout").hidden = true;
            localStorage.removeItem(SESSION);
            show(at("live"));
            at("login-key").focus();
        });
        at("login-form").addEventListener("submit", async (/** @type {Event} */ event) => {
            event.preventDefault();
            try {
                await call("ops/session", { method: "POST", headers: JSON_TYPE, body: JSON.stringify({ key: at("login-key").value }) });
                at("login-error").textContent = at("login-key").value = "";
                at("logout").hidden = false;
                localStorage.setItem(SESSION, "1");
                this.feed.start();
            } catch (error) {
                const wrong = error instanceof ApiError && error.status === 401;
                at("login-error").textContent = wrong ? "This is not the admin key." : /** @type {Error} */ (error).message;
            }
        });
        at("logout").addEventListener("click", async () => {
            try {
                await call("ops/session", { method: "DELETE" });
                this.history.forget();
                window.dispatchEvent(new CustomEvent("locked"));
            } catch (error) {
                toast(/** @type {Error} */ (error).message, true);
            }
        });
    }
}

new Page();
