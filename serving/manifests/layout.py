"""How the GPUs of one replica lie on machines."""

from __future__ import annotations

from dataclasses import dataclass

GPUS_PER_NODE = 8


@dataclass(frozen=True, slots=True)
class Layout:
    """One replica: `tensor` x `pipeline` (x vLLM's own ranks) GPUs, on `nodes` machines with `gpus` each."""

    tensor: int
    pipeline: int
    nodes: int
    gpus: int


def layout(tensor: int, pipeline: int | None, ranks: int = 1, most: int = GPUS_PER_NODE) -> Layout:
    """The layout on as few machines as possible, each with at most `most` GPUs.

    Without a `pipeline` a `tensor` that exceeds one machine is taken as the number of GPUs: tensor parallel inside each
    machine, whose links are fast, pipeline parallel between them (vLLM's advice). With one, both are kept; a tensor
    group that fits one machine is not split. `ranks`: vLLM's data parallel size. ValueError where they need several
    machines, which one command cannot say.
    """
    if pipeline is None:
        stages = next(n for n in range(1, tensor + 1) if tensor % n == 0 and tensor // n <= most)
        tensor, pipeline = tensor // stages, stages
    gpus = tensor * pipeline * ranks
    if gpus <= most:
        return Layout(tensor, pipeline, 1, gpus)
    if ranks > 1:
        raise ValueError(f"{ranks} data parallel ranks need {gpus} GPUs, one machine has {most}")
    unit = tensor if tensor <= most else 1
    nodes = next(n for n in range(1, gpus + 1) if gpus % n == 0 and gpus // n <= most and gpus // n % unit == 0)
    return Layout(tensor, pipeline, nodes, gpus // nodes)
