"""How Muon divides its work by cost and by rows, tested without processes. test_sharded.py uses real ranks."""

import pytest
import torch

from gristmill.lm.training.muon import Muon, orthogonalized, row_counts
from gristmill.lm.training.muon_sharing import Matrix, Sharing, assigned, rows_of_rank


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 8])
def test_work_is_balanced_by_cost(num_ranks):
    shapes = [(64, 64)] * 12 + [(64, 192)] * 6 + [(16, 64)] * 7
    matrices = [Matrix(number, 0, rows, columns) for number, (rows, columns) in enumerate(shapes)]
    owners = assigned(matrices, num_ranks)
    work = [
        sum(matrix.cost for matrix, owner in zip(matrices, owners, strict=True) if owner == r) for r in range(num_ranks)
    ]
    assert max(work) - min(work) <= max(matrix.cost for matrix in matrices)


def test_the_cost_of_a_matrix_is_that_of_its_transpose():
    assert Matrix(0, 0, 3, 7).cost == Matrix(0, 2, 9, 3).cost == 3 * 3 * 7


@pytest.mark.parametrize("num_rows", [0, 1, 5, 6, 7])
@pytest.mark.parametrize("num_ranks", [1, 2, 3, 8])
def test_rows_of_ranks_are_those_of_torch(num_rows, num_ranks):
    """fully_shard divides rows like torch.chunk, and the last ranks may have none."""
    chunks = torch.arange(num_rows).chunk(num_ranks)
    for rank in range(num_ranks):
        begin, end = rows_of_rank(num_rows, rank, num_ranks)
        assert list(range(begin, end)) == (chunks[rank].tolist() if rank < len(chunks) else [])


class Alone(Sharing):
    """One of several ranks, with a simulated exchange that stores what is sent to each rank."""

    def __init__(self, rank, size, *, is_sharded, mail):
        self._rank, self._size, self._is_sharded, self._mail = rank, size, is_sharded, mail
        self._layouts = {}

    def _exchange(self, sent, received, dtype):
        self._mail.append((self._rank, sent, received, dtype))


def test_a_matrix_across_ranks_is_gathered_by_the_one_that_works_on_it():
    """Two ranks, weights of 6 rows: sent and received sizes match, and every row has one place."""
    counts, mail = [(6,), (2, 4)], []
    updates = [[torch.zeros(3, 4), torch.zeros(3, 5)] for _ in range(2)]
    for rank in range(2):
        Alone(rank, 2, is_sharded=True, mail=mail).apply(
            updates[rank], counts, lambda whole: None, dtype=torch.bfloat16
        )
    (_, sent_0, room_0, there), (_, back_0, _, back), (_, sent_1, room_1, _), _ = mail
    assert there == torch.float32 and back == torch.bfloat16
    for sent, room in ((sent_0[0], room_0[0]), (sent_0[1], room_1[0]), (sent_1[0], room_0[1]), (sent_1[1], room_1[1])):
        assert [tensor.shape for tensor in sent] == [tensor.shape for tensor in room]
    assert sum(tensor.numel() for part in (*sent_0, *sent_1) for tensor in part) == 6 * 4 + 6 * 5
    assert back_0 is not sent_0 and [len(part) for part in back_0] == [len(part) for part in room_0]


@pytest.mark.parametrize(("stacked", "rows"), [(1, (12,)), (3, (4, 4, 4)), ((8, 2, 2), (8, 2, 2))])
def test_each_stacked_matrix_is_made_orthogonal_for_itself(stacked, rows):
    weight = torch.nn.Parameter(torch.zeros(12, 4))
    weight.grad = torch.randn(12, 4, generator=torch.Generator().manual_seed(0))
    assert row_counts(12, stacked) == rows
    Muon([{"params": [weight], "num_stacked": stacked}], lr=1.0, momentum=0.0).step()
    expected = [orthogonalized(part[None])[0] * max(1.0, len(part) / 4) ** 0.5 for part in weight.grad.split(rows)]
    torch.testing.assert_close(weight.detach(), -torch.cat(expected))
