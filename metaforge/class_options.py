"""Options of data sets whose classes are divided into splits, and may have groups. Torch-free."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from metaforge.task_options import TaskOptions

Share = Annotated[float, Field(ge=0, le=1)]
Split = Literal["train", "val", "test"]
#: Shares of the classes that become train, val and test, unless said otherwise.
SHARES = (0.64, 0.16, 0.2)


class ClassOptions(TaskOptions):
    """Base of such a data set's options.

    A subclass says what ``split`` may be beside three shares, and by ``has_groups`` whether its
    classes have groups.
    """

    within: Share = Field(
        0.0, description="share of tasks whose classes are all of one group; 1 for all"
    )
    split: Any = Field(SHARES, description="three shares that sum to 1")
    split_values: dict[Split, Any] | None = Field(
        None,
        description="what split's own values mean, e.g. {train: background, test: evaluation}",
    )
    split_by: Literal["class", "group"] = Field(
        "class", description="what shares (and val_share) divide: classes, or whole groups"
    )
    split_seed: int = Field(0, description="seed of the division, apart from the run's seed")
    val_share: Share = Field(
        0.0, description="share of the training classes that become val, where split has none"
    )
    licence: str = Field("not stated", description="the data's licence, for the results")

    @property
    def shares(self) -> tuple[float, float, float] | None:
        """The shares of train, val and test, where ``split`` is three of them."""
        three = isinstance(self.split, list | tuple) and len(self.split) == 3
        if not three or not any(isinstance(share, float) for share in self.split):
            return None
        train, val, test = map(float, self.split)
        return train, val, test

    @property
    def has_groups(self) -> bool:
        """Whether the options name groups of the classes."""
        raise NotImplementedError

    @model_validator(mode="after")
    def _divided(self) -> Self:
        if self.shares is not None and (abs(sum(self.shares) - 1) > 1e-6 or min(self.shares) < 0):
            raise ValueError(f"split: the shares {list(self.shares)} do not sum to 1")
        if not self.has_groups:
            unmet = [name for name in ("within", "group_names") if getattr(self, name, None)]
            unmet += ["split_by: group"] if self.split_by == "group" else []
            if unmet:
                raise ValueError(f"{', '.join(unmet)}: needs group, a group for each class")
        unread = {"split_values"} if self.shares is not None else set()
        if self.shares is None and not self.val_share:
            unread = {"split_by", "split_seed"}
        if unread := unread & self.model_fields_set:
            why = "split is shares" if self.shares is not None else "nothing is divided by shares"
            raise ValueError(f"{', '.join(sorted(unread))}: not read, as {why}")
        return self
