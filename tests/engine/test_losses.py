"""Losses and scores by hand, with padding and unbalanced queries."""

import pytest
import torch
from torch.nn import functional as F

from metaforge import losses
from metaforge.contracts import InnerAlgorithm
from metaforge.metatrain import evaluate
from metaforge.tasks import TaskBatch, concatenate, unpadded

LOGITS = torch.tensor([[[2.0, 0.0], [0.0, 1.0], [3.0, 0.0], [0.0, 0.5]]])
LABELS = torch.tensor([[0, 0, 0, 1]])


def tasks(mask=None) -> TaskBatch:
    x = torch.zeros(1, 4, 1)
    return TaskBatch(x[:, :2], torch.tensor([[0, 1]]), x, LABELS, query_mask=mask)


def test_cross_entropy_is_the_mean_over_the_kept_samples():
    mask = torch.tensor([[1.0, 0.0, 1.0, 1.0]])
    expected = F.cross_entropy(LOGITS[0, [0, 2, 3]], LABELS[0, [0, 2, 3]])
    assert losses.task_losses(LOGITS, LABELS, mask)[0] == pytest.approx(float(expected))


def test_squared_error_is_the_mean_over_samples_and_outputs():
    y = torch.tensor([[[1.0, 2.0], [0.0, 0.0]]])
    found = losses.task_losses(torch.zeros(1, 2, 2), y, torch.ones(1, 2))
    assert found[0] == pytest.approx((1 + 4) / 4)


def test_micro_counts_queries_and_macro_counts_classes():
    assert losses.scores(LOGITS, tasks())[0] == pytest.approx(3 / 4)
    assert losses.macro_accuracy(LOGITS, tasks())[0] == pytest.approx((2 / 3 + 1) / 2)


def test_padding_counts_for_neither():
    without_the_miss = torch.tensor([[1.0, 0.0, 1.0, 1.0]])
    assert losses.scores(LOGITS, tasks(without_the_miss))[0] == 1.0
    assert losses.macro_accuracy(LOGITS, tasks(without_the_miss))[0] == 1.0
    one_class = torch.tensor([[1.0, 1.0, 1.0, 0.0]])
    assert losses.macro_accuracy(LOGITS, tasks(one_class))[0] == pytest.approx(2 / 3)


def test_concatenated_batches_keep_their_tasks_and_mask_the_padding():
    a, b = tasks(), tasks().support_as_query()
    both = concatenate(a, b)
    assert both.query_mask.tolist() == [[1, 1, 1, 1], [1, 1, 0, 0]]
    assert both.query_y.tolist() == [[0, 0, 0, 1], [0, 1, 0, 0]]
    assert len(both) == 2


def test_a_batch_fills_in_what_is_not_given():
    batch = TaskBatch(torch.zeros(2, 3, 5), torch.tensor([[0, 1, 2], [2, 1, 0]]))
    assert batch.outputs == 3
    assert batch.support_mask.shape == (2, 3)
    assert batch.task_ids.tolist() == [0, 1]
    regression = TaskBatch(torch.zeros(2, 3, 5), torch.zeros(2, 3, 4))
    assert regression.is_regression
    assert regression.outputs == 4


def padded_pair() -> TaskBatch:
    """Two tasks; the first has one padding row among its queries."""
    both = concatenate(tasks(), tasks())
    mask = torch.tensor([[1.0, 0.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]])
    return TaskBatch(both.support_x, both.support_y, both.query_x, both.query_y, query_mask=mask)


def test_an_unpadded_task_has_its_own_rows_alone():
    alone = unpadded(padded_pair()[[0]])
    assert alone.query_y.tolist() == [[0, 0, 1]]
    assert alone.query_mask.tolist() == [[1, 1, 1]]
    assert unpadded(alone.without_query()).query_x is None


@pytest.mark.parametrize("transductive", [True, False])
def test_only_a_transductive_learner_is_kept_from_padding(transductive):
    shown = []

    class Watches(InnerAlgorithm):
        def predict(self, params, support, query_x):
            shown.append(tuple(query_x.shape[:2]))
            return torch.zeros(*query_x.shape[:2], 2)

        init = adapt = losses = export = None

    Watches.transductive = transductive
    assert len(evaluate(Watches(), {}, [padded_pair()])) == 2
    assert shown == ([(1, 3), (1, 4)] if transductive else [(2, 4)])
