"""From a folder to a folder: on text, on prompts, broken off, taken up again, refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from serving.checkpoint.errors import CheckpointError  # noqa: E402
from serving.checkpoint.header import read_header  # noqa: E402
from serving.checkpoint.shard import same_bytes  # noqa: E402
from serving.distill.run import Outcome, Source, distill  # noqa: E402
from serving.distill.train import Settings  # noqa: E402
from tests.unit.serving.distill.conftest import Make  # noqa: E402

SHORT = Settings(steps=4, batch=2, window=16, learning_rate=0.01)


class Seen:
    """A report; broken off, as by Ctrl-C, at a stage's line that begins with `stop`."""

    def __init__(self, stop: str = "never") -> None:
        self.lines: list[tuple[str, float]] = []
        self._stop = stop

    def __call__(self, stage: str, fraction: float, line: str) -> None:
        self.lines.append((stage, fraction))
        if line.startswith(self._stop):
            raise KeyboardInterrupt


def run(path: Path, out: Path, source: Source, settings: Settings = SHORT, **options: object) -> Outcome:
    given = {"resume": False, "device": "cpu", "report": Seen(), **options}
    return distill(path, out, source, settings, **given)  # type: ignore[arg-type]


def test_text_trains_the_layer_and_leaves_a_chart(make: Make, text: Path, tmp_path: Path) -> None:
    seen = Seen()
    outcome = run(make("dropped", drop="mtp_layers"), tmp_path / "out", Source(text=text), report=seen)
    assert seen.lines == [("training", 0.25), ("training", 0.5), ("training", 0.75), ("training", 1.0)]
    assert [point.step for point in outcome.history] == [0, 1, 2, 3, 4]
    assert outcome.history[-1].loss < outcome.history[0].loss
    assert outcome.loaded == 0
    notes = tmp_path / "out" / "distill"
    assert len(json.loads((notes / "history.json").read_text())) == 5
    assert (notes / "chart.svg").read_text().startswith("<svg")


def test_prompts_are_answered_once(make: Make, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps({"prompt": word}) + "\n" for word in ("one", "two", "three")))
    folder, out = make("dropped", drop="mtp_layers"), tmp_path / "out"
    seen = Seen()
    run(folder, out, Source(prompts=log), Settings(steps=1, batch=1, window=128), report=seen)
    assert seen.lines[0] == ("asking", 1.0)
    replies = (out / "distill" / "replies.jsonl").read_text().splitlines()
    assert len(replies) == 3
    again = Seen()
    run(folder, out, Source(prompts=log), Settings(steps=2, batch=1, window=128), report=again, resume=True)
    assert again.lines == [("training", 1.0)]


def test_a_run_that_was_broken_off_ends_like_one_that_was_not(make: Make, text: Path, tmp_path: Path) -> None:
    folder = make("dropped", drop="mtp_layers")
    whole = run(folder, tmp_path / "whole", Source(text=text))
    with pytest.raises(KeyboardInterrupt):
        run(folder, tmp_path / "out", Source(text=text), report=Seen("step 2"))
    assert not (tmp_path / "out" / "config.json").exists()
    resumed = run(folder, tmp_path / "out", Source(text=text), resume=True)
    assert resumed.history == whole.history
    one, other = (read_header(tmp_path / name / "model-mtp.safetensors") for name in ("whole", "out"))
    assert all(same_bytes(a, b) for a, b in zip(one, other, strict=True))


def test_what_is_in_the_way_is_refused(make: Make, text: Path, tmp_path: Path) -> None:
    folder, out = make("dropped", drop="mtp_layers"), tmp_path / "out"
    with pytest.raises(CheckpointError, match="is the checkpoint itself"):
        run(folder, folder, Source(text=text))
    with pytest.raises(CheckpointError, match="lies in the checkpoint's own folder"):
        run(folder, folder / "deep" / "out", Source(text=text))
    with pytest.raises(CheckpointError, match="leave out --resume"):
        run(folder, out, Source(text=text), resume=True)
    with pytest.raises(KeyboardInterrupt):
        run(folder, out, Source(text=text), report=Seen("step 1"))
    with pytest.raises(CheckpointError, match="state of an earlier run"):
        run(folder, out, Source(text=text))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(CheckpointError, match="exists"):
        run(folder, tmp_path / "other", Source(text=text))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there(make: Make, text: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="finds no GPU"):
        run(make("dropped"), tmp_path / "out", Source(text=text), device="cuda")
