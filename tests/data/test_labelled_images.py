"""The images of a split with their labels, of any source that draws from pools."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from metaforge.errors import DataError
from metaforge.image_options import Augment
from metaforge.labelled_images import LabelledSource
from metaforge.pooled import PooledTasks
from metaforge.storage import DiskRows
from metaforge.task_sizes import TaskSizes
from metaforge.turned import turned_pools
from tests.data.classes import CLASSES, ROWS, drawers, pool, source, splits

N = CLASSES * ROWS


def images() -> torch.Tensor:
    """Row r is an image of the byte r % 251."""
    return (torch.arange(N) % 251).to(torch.uint8).view(N, 1, 1, 1).expand(N, 1, 4, 4).contiguous()


def of_images(x=None, pools=None, **options) -> PooledTasks:
    sizes = TaskSizes(5, 2, 3)
    x = images() if x is None else x
    given = {"scale": 1 / 255, "seed": 0, "name": "bytes"} | options
    return PooledTasks(x, pools or splits(), sizes, **given)


def test_every_image_of_the_split_is_there_once_with_its_class():
    made = of_images()
    assert isinstance(made, LabelledSource)
    found = made.labelled_images("val")
    assert len(found) == 7 * ROWS
    assert found.rows.tolist() == list(range(14 * ROWS, 21 * ROWS))
    assert found.names["class"] == tuple(f"class {c}" for c in range(14, 21))
    assert found.labels["class"].tolist() == [c for c in range(7) for _ in range(ROWS)]
    assert set(found.labels) == {"class"}
    assert found.sample_groups is None
    some = found.inputs(torch.tensor([0, 13]))
    expected = images()[[14 * ROWS, 14 * ROWS + 13]] / 255
    torch.testing.assert_close(some, expected)


def test_pools_that_share_classes_name_each_image_once_with_groups_and_drawers():
    groups = {"class_groups": np.arange(14) % 3, "class_group_names": ("a", "b", "c")}
    pools = splits()
    pools["train"] = [
        pool(range(14), sample_groups=drawers(), name=name, **groups) for name in ("x", "y")
    ]
    found = of_images(pools=pools).labelled_images("train")
    assert len(found) == 14 * ROWS
    assert found.names["group"] == ("a", "b", "c")
    assert found.labels["group"].tolist() == [c % 3 for c in range(14) for _ in range(ROWS)]
    assert found.sample_groups.tolist() == drawers()[: 14 * ROWS].tolist()


def test_turned_classes_are_left_out():
    pools = turned_pools(splits(), N, "all")
    found = of_images(pools=pools, augment=Augment(rotations="all")).labelled_images("train")
    assert len(found) == 14 * ROWS
    assert len(found.names["class"]) == 14


def test_images_on_disk_stay_there(tmp_path):
    np.save(tmp_path / "x.npy", images().numpy())
    disk = DiskRows(tmp_path / "x.npy", "digest")
    found = of_images(disk).labelled_images("test").to("cpu")
    assert found.images is disk
    rows = torch.tensor([5, 2, 2])
    assert torch.equal(found.inputs(rows), of_images().labelled_images("test").inputs(rows))


def test_features_are_refused_unless_their_images_are_given_beside_them():
    with pytest.raises(DataError, match=r"numbers: its samples have shape \[2\]: images"):
        source().labelled_images("train")
    found = source(images=images()).labelled_images("train")
    assert found.shape == (1, 4, 4)
    assert found.inputs(torch.tensor([0])).max() == 0
    assert found.inputs(torch.tensor([1])).unique().tolist() == pytest.approx([1 / 255])
    with pytest.raises(DataError, match="no split 'dev'"):
        of_images().labelled_images("dev")
