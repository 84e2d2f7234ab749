"""What the validation checks on ranks, at a small size: smoke, hair and liquids of every kind."""

from __future__ import annotations

import pytest

from validation import distributed


@pytest.mark.mpi
def test_the_scenes_of_the_validation_do_not_depend_on_ranks_and_threads():
    found = distributed.run(sizes=(8,), ranks=(2, 3))
    assert len(found) == len(distributed.SCENES) * (2 * 2 + 1)
    assert [one for one in found if not one["pass"]] == []
