"""logs/CAUSE.VARIANT.txt is what a real vLLM 0.32 (CPU) printed: tracebacks are trimmed, other lines as they came."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from serving.engine.causes import CAUSES
from serving.engine.diagnose import EXITS, LONGEST, diagnose

LOGS = {path.stem: path for path in Path(__file__).with_name("logs").iterdir()}
GENERIC = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"

TEXTS = {
    "cache-too-large": "a KV cache of 838.19 GiB is asked for, 11.46 GiB of memory are free; "
    "lower engine.args.kv-cache-memory-bytes, or free memory",
    "context-too-long": "max-model-len 200000 is longer than the model's own 2048; "
    "set engine.args.max-model-len to 2048 or less",
    "damaged-weights.cut": "a weight file is damaged or cut off (Error while deserializing header: incomplete "
    "metadata, file not fully covered); copy the checkpoint again",
    "mtp-missing": "the checkpoint has no weights for its MTP layer 2: fine-tuning or quantising left them out; "
    "put them back from the base checkpoint, or remove engine.speculative",
    "quantisation-mismatch": "the checkpoint is quantised as awq, the arguments say gptq; "
    "remove quantization from engine.args",
    "speculative-settings": "vLLM refuses engine.speculative: num_speculative_tokens must be provided with speculative "
    "model unless the draft model config contains an n_predict parameter; correct it",
    "unknown-flag": "this vLLM does not know --max-modl-len; correct or remove it under engine.args",
    "silent": "it ended with exit code 1: a part of it ended without a word, as when the system kills it because "
    "memory runs out; see its log above",
}
"""What is said where the log's own words are part of it."""

LINES = {
    "no-vllm": "python: No module named vllm",
    "no-gpu": "RuntimeError: Failed to infer device type, please set the environment variable",
    "old-driver": "RuntimeError: The NVIDIA driver on your system is too old (found version 12020).",
    "parallel-gpus": "  Value error, World size (8) is larger than the number of available GPUs (4) in this node.",
    "gpu-busy": "ValueError: Free memory on device cuda:0 (3.1/79.3 GiB) on startup is less than desired GPU memory "
    "utilization (0.9, 71.3 GiB).",
    "gpu-memory": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "memory": "RuntimeError: [enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory",
    "killed": "RuntimeError: Engine core initialization failed. Failed core proc(s): {'EngineCore_0': -9}",
    "disk": "OSError: [Errno 28] No space left on device",
    "no-download": "OSError: We couldn't connect to 'https://huggingface.co' to load the files",
}
"""Causes that this machine cannot bring about, in the words of vLLM's and PyTorch's sources."""


def said(name: str) -> re.Pattern[str]:
    """What is said about a cause, whatever the log's own words in it are."""
    cause = next(cause for cause in CAUSES if cause.name == name)
    return re.compile(re.sub(r"\\\\\d", ".+", re.escape(f"{cause.reason}; {cause.remedy}")))


@pytest.mark.parametrize("log", sorted(LOGS.keys() - {"silent"}))
def test_C49_real_logs(log: str) -> None:
    assert said(log.partition(".")[0]).fullmatch(diagnose(LOGS[log].read_text().splitlines(), 1))


@pytest.mark.parametrize("log", TEXTS)
def test_C49_the_words_of_the_log_are_used(log: str) -> None:
    assert diagnose(LOGS[log].read_text().splitlines(), 1) == TEXTS[log]


@pytest.mark.parametrize("name", LINES)
def test_causes_without_a_log_of_our_own(name: str) -> None:
    assert said(name).fullmatch(diagnose([LINES[name], GENERIC], 1))


def test_every_cause_is_shown_to_work() -> None:
    assert {cause.name for cause in CAUSES} == {log.partition(".")[0] for log in LOGS} - {"silent"} | LINES.keys()


def test_an_unknown_error_is_the_last_one_above_the_generic_one() -> None:
    label = "(EngineCore pid=6504) ERROR 11-30 17:41:33 [core.py:1510]"
    tail = [f"{label} KeyError: 'first'", f"{label}     raise ValueError(", f"{label} ValueError: the cause", GENERIC]
    assert diagnose(tail, 1) == "it ended with exit code 1: ValueError: the cause"


def test_what_a_warning_quotes_has_not_happened() -> None:
    label = "(APIServer pid=1) WARNING 11-30 17:41:33 [system_utils.py:255]"
    tail = [f"{label} This can cause errors like `CUDA out of memory`", f"{label} OSError: No space left on device"]
    assert diagnose(tail, 3) == "it ended with exit code 3: it left no error message, see its log above"


def test_a_long_error_is_cut_and_pydantics_context_left_out() -> None:
    short = "  Value error, that will not do [type=value_error, input_value=ArgsKwargs((), {'model': 1})]"
    assert diagnose([short], 1) == "it ended with exit code 1: Value error, that will not do"
    assert len(diagnose([f"ValueError: {'x' * 9999}"], 1)) < LONGEST + 50


@pytest.mark.parametrize("code", EXITS)
def test_a_signal_says_more_than_silence_but_less_than_a_known_cause(code: int) -> None:
    assert diagnose([], code) == EXITS[code]
    assert "out of memory" not in diagnose(["OSError: [Errno 28] No space left on device"], code)
