"""What is in a checkpoint: read from its config, its tokenizer and its safetensors headers, never from its weights.

folder.py    the folder's files, each read within bounds     header.py    one safetensors header
families.py  what each family calls its MTP layers           inspection.py  all findings about one checkpoint
mainmodel.py  what the main model lacks, by shapes.py  quantisation.py, tokenizer.py, mtp.py  the other parts
compare.py   one checkpoint against another                  graft.py     MTP layers from one into another
view.py      a Kimi K2 checkpoint as vLLM's MTP accepts it
"""

from __future__ import annotations

from serving.checkpoint.compare import compare
from serving.checkpoint.errors import CheckpointError
from serving.checkpoint.findings import Finding, Severity
from serving.checkpoint.graft import graft
from serving.checkpoint.inspection import Report, inspect
from serving.checkpoint.view import kimi_view

__all__ = ["CheckpointError", "Finding", "Report", "Severity", "compare", "graft", "inspect", "kimi_view"]
