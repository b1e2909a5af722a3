"""The controls that a run can have."""

import pytest

from metaforge.arms import check_groups
from metaforge.errors import DataError
from tests.engine.toys import Points, recipe


class Ungrouped(Points):
    group_names = ()


def test_oracle_needs_groups_and_only_oracle_does():
    with_oracle = recipe(evaluate={"controls": ["random_m", "oracle"]})
    check_groups(with_oracle, Points())
    check_groups(recipe(evaluate={"controls": ["random_m"]}), Ungrouped())
    with pytest.raises(DataError, match=r"evaluate\.controls: oracle .* 'points' have no groups"):
        check_groups(with_oracle, Ungrouped())
