"""What calls tell of speculative decoding, as metrics: by model, task, arm and kind of answer."""

from __future__ import annotations

from prometheus_client.core import GaugeMetricFamily, Metric

from gateway.call import Call
from gateway.speculation import Drafted
from gateway.telemetry.families import Level, Readings, Tally
from gateway.telemetry.numbers import Numbers, Scrape

LABELS = ("model", "task", "arm", "kind")
WINDOW_SECONDS = 60.0
"""The acceptance length is that of the last one or two of these."""
Labels = tuple[str, ...]


class Acceptance:
    """The mean acceptance length, 1 + accepted / drafts, of the calls that ended lately; a gauge, exact over several
    workers since its parts are kept apart."""

    def __init__(self, name: str, text: str, numbers: Numbers) -> None:
        self.name, self.text, self.labels = f"turnout_{name}", text, LABELS
        self._now: dict[Labels, list[int]] = {}
        self._before: dict[Labels, list[int]] = {}
        self._turned = 0.0
        self._steps = Level(f"{name}_steps", "", LABELS, lambda: self._recent(0), numbers)
        self._accepted = Level(f"{name}_accepted", "", LABELS, lambda: self._recent(1), numbers)

    def add(self, labels: Labels, steps: int, accepted: int, now: float) -> None:
        """A call has ended."""
        self._turn(now)
        sums = self._now.setdefault(labels, [0, 0])
        sums[0] += steps
        sums[1] += accepted

    def _turn(self, now: float) -> None:
        """Forget what is too old."""
        if now >= self._turned + WINDOW_SECONDS:
            fresh = now < self._turned + 2 * WINDOW_SECONDS
            self._before, self._now, self._turned = self._now if fresh else {}, {}, now

    def _recent(self, part: int) -> Readings:
        found: dict[Labels, float] = {}
        for sums in (self._before, self._now):
            for labels, values in sums.items():
                found[labels] = found.get(labels, 0) + values[part]
        return found

    def publish(self, now: float) -> None:
        """Put the values where a scrape finds them."""
        self._turn(now)
        self._steps.publish()
        self._accepted.publish()

    def values(self, scrape: Scrape) -> Readings:
        """Labels -> acceptance length."""
        steps, accepted = self._steps.values(scrape), self._accepted.values(scrape)
        return {labels: 1 + accepted.get(labels, 0) / count for labels, count in steps.items() if count}

    def family(self, scrape: Scrape | None = None) -> Metric:
        """One sample per combination of labels."""
        family = GaugeMetricFamily(self.name, self.text, labels=LABELS)
        for labels, value in self.values(scrape).items() if scrape else ():
            family.add_metric(labels, value)
        return family


class Speculation:
    """All of it."""

    def __init__(self, numbers: Numbers) -> None:
        self._drafts = Tally("spec_decode_drafts", "Speculations.", LABELS, numbers)
        self._draft_tokens = Tally("spec_decode_draft_tokens", "Tokens that were drafted.", LABELS, numbers)
        self._accepted = Tally("spec_decode_accepted_tokens", "Draft tokens that were accepted.", LABELS, numbers)
        text = "Mean tokens of one step with a draft, of calls lately ended."
        self.acceptance = Acceptance("spec_decode_acceptance_length", text, numbers)
        found = "Findings of the alarm on speculation."
        self.alarms = Tally("spec_decode_alarms", found, ("model", "kind", "what"), numbers)
        self.families = (self._drafts, self._draft_tokens, self._accepted, self.acceptance, self.alarms)

    def observe(self, call: Call, drafted: Drafted, now: float) -> None:
        """Count one answered call."""
        model = call.answered.model.name if call.answered is not None else ""
        split = call.plan.split if call.plan is not None else None
        task = call.plan.task if call.plan is not None else None
        arm = split.arm if split is not None and split.arm == model else ""
        labels = (model, task or "", arm, call.kind)
        self._drafts.add(labels, drafted.steps)
        self._draft_tokens.add(labels, drafted.draft_tokens)
        self._accepted.add(labels, drafted.accepted)
        self.acceptance.add(labels, drafted.steps, drafted.accepted, now)
