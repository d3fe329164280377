"""A plugin of vLLM (entry point `vllm.general_plugins`), which every process of an engine loads before its model."""

from __future__ import annotations


def register() -> None:
    """Ask Linux for the CPU's AMX registers, which a process may not touch before.

    vLLM's attention kernels use them wherever the CPU has them, and leave the asking to the first matrix product. With
    a speculator the attention comes first, and the engine core died of an illegal instruction (0.32.0, CPU build).
    """
    import torch

    if torch.cpu._is_amx_tile_supported():
        torch.cpu._init_amx()
