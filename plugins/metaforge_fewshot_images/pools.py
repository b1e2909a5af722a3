"""What tasks are drawn from. numpy alone."""

from __future__ import annotations

from metaforge.class_pools import Division
from metaforge.errors import DataError
from metaforge.pools import Pool
from metaforge.turned import turned_pools
from metaforge_fewshot_images.content import Content
from metaforge_fewshot_images.options import BenchmarkOptions, OmniglotOptions


def task_pools(options: BenchmarkOptions, content: Content) -> dict[str, list[Pool]]:
    """The pools of each split: tasks across groups, within one, or both by ``within``; classes
    turned, if that is asked for. Raises ``DataError`` where the files tell no groups."""
    if options.within and content.groups is None:
        raise DataError(
            f"within is {options.within:g}, but the {content.layout} tell no groups of classes: "
            "leave within out, or place the files in another layout"
        )
    apart = isinstance(options, OmniglotOptions) and options.drawers
    division = Division(
        content.classes,
        content.class_names,
        content.split,
        content.groups,
        content.group_names,
        content.drawers if apart else None,
    )
    plain = division.pools(options.within)
    return turned_pools(plain, len(content), options.augment.rotations)
