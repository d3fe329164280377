"""A Kimi K2 checkpoint as vLLM's MTP accepts it: links to its files, and a config that says deepseek_v3.

vLLM knows MTP for model_type deepseek_v3 but not for kimi_k2, though the two are one architecture; an override of the
model type on its command line makes the config fail to load.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from serving.checkpoint.errors import CheckpointError
from serving.checkpoint.folder import CONFIG, read_bytes, read_json

SHOWN_AS = "deepseek_v3"
ARCHITECTURE = "DeepseekV3ForCausalLM"


def kimi_view(checkpoint: Path, folder: Path) -> Path:
    """Make the view `folder`/NAME of `checkpoint`, or make it anew where files have come or gone; the view's path.

    Its last name is the checkpoint's, because that is the model id by default. CheckpointError where it cannot be made.
    """
    view = folder / checkpoint.name
    config = read_json(checkpoint / CONFIG) | {"model_type": SHOWN_AS, "architectures": [ARCHITECTURE]}
    content = json.dumps(config, indent=2, ensure_ascii=False).encode() + b"\n"
    sources = {path.name: path.resolve() for path in checkpoint.iterdir() if path.name != CONFIG}
    try:
        if not _current(view, sources, content):
            _make(view, sources, content)
    except OSError as error:
        raise CheckpointError(str(view), f"cannot be written ({error.strerror})") from None
    return view


def _current(view: Path, sources: dict[str, Path], content: bytes) -> bool:
    """Whether the view shows these files and this config."""
    if not (view / CONFIG).is_file() or read_bytes(view / CONFIG) != content:
        return False
    return {path.name: path.resolve() for path in view.iterdir() if path.name != CONFIG} == sources


def _make(view: Path, sources: dict[str, Path], content: bytes) -> None:
    """Written beside it first, so that an engine never sees half of it."""
    view.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{view.name}.", dir=view.parent) as scratch:
        made = Path(scratch) / view.name
        made.mkdir()
        (made / CONFIG).write_bytes(content)
        for name, source in sources.items():
            (made / name).symlink_to(source)
        if view.exists():
            shutil.rmtree(view)
        made.rename(view)
