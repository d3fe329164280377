from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.manifests.layout import Layout, layout


@pytest.mark.parametrize(
    ("tensor", "pipeline", "most", "expected"),
    [
        (1, None, 8, Layout(1, 1, 1, 1)),
        (8, None, 8, Layout(8, 1, 1, 8)),
        (4, 2, 8, Layout(4, 2, 1, 8)),
        (16, None, 8, Layout(8, 2, 2, 8)),
        (16, None, 4, Layout(4, 4, 4, 4)),
        (12, None, 8, Layout(6, 2, 2, 6)),
        (8, 2, 8, Layout(8, 2, 2, 8)),
        (16, 1, 8, Layout(16, 1, 2, 8)),
        (4, 3, 8, Layout(4, 3, 3, 4)),
        (1, 2, 1, Layout(1, 2, 2, 1)),
    ],
)
def test_as_few_machines_as_possible(tensor: int, pipeline: int | None, most: int, expected: Layout) -> None:
    assert layout(tensor, pipeline, most=most) == expected


@given(st.integers(1, 64), st.none() | st.integers(1, 8), st.integers(1, 8))
def test_every_gpu_has_its_place(tensor: int, pipeline: int | None, most: int) -> None:
    made = layout(tensor, pipeline, most=most)
    assert made.tensor * made.pipeline == tensor * (pipeline or 1) == made.nodes * made.gpus
    assert made.gpus <= most
    assert made.tensor > most or made.gpus % made.tensor == 0, "a tensor group is split over machines"
    assert pipeline is None or (made.tensor, made.pipeline) == (tensor, pipeline)


def test_data_parallel_ranks_share_one_machine_or_none() -> None:
    assert layout(2, None, ranks=4) == Layout(2, 1, 1, 8)
    with pytest.raises(ValueError, match="2 data parallel ranks need 16 GPUs, one machine has 8"):
        layout(8, None, ranks=2)
