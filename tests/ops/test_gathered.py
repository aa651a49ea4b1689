"""Products with rows that are named one by one."""

from __future__ import annotations

import pytest
import torch

from gsparc.ops import _gathered
from gsparc.ops._gathered import gathered_dots, gathered_dots_reference


def example(batch: int, count: int, dim: int, device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    queries, table = (torch.randn(size, dim, generator=generator).to(device) for size in (batch, 97))
    return queries, table, torch.randint(97, (batch, count), generator=generator).to(device)


def test_products_worked_out_by_hand() -> None:
    queries, table = torch.tensor([[1.0, 2.0], [3.0, 0.0]]), torch.tensor([[5.0, 7.0], [1.0, 1.0], [0.0, 4.0]])
    found = gathered_dots(queries, table, torch.tensor([[0, 2], [1, 1]]))
    assert found.tolist() == [[19.0, 8.0], [3.0, 3.0]]


def test_no_row_asked_for() -> None:
    assert gathered_dots(*example(3, 0, 4)).shape == (3, 0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize(("batch", "count", "dim"), [(5, 7, 3), (40, 130, 64), (33, 65, 512), (2, 3, 600)])
def test_cuda_gives_the_same(batch: int, count: int, dim: int) -> None:
    queries, table, places = example(batch, count, dim, "cuda")
    expected = gathered_dots_reference(queries.double(), table.double(), places).float()
    for kind in (torch.int64, torch.int32):
        torch.testing.assert_close(gathered_dots(queries, table, places.to(kind)), expected, rtol=1e-4, atol=1e-4)
    assert not _gathered._broken


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_cuda_without_a_compiler_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: object) -> None:
        raise RuntimeError("Failed to find C compiler")

    monkeypatch.setattr(_gathered, "_run", fails)
    monkeypatch.setattr(_gathered, "_broken", [])
    asked = example(4, 5, 6, "cuda")
    torch.testing.assert_close(gathered_dots(*asked), gathered_dots_reference(*asked))
    assert _gathered._broken == [True]
