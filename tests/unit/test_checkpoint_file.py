"""Checkpoint files: the state comes back bit for bit, and damage never goes unnoticed."""

from __future__ import annotations

import json

import numpy as np
import pytest

from loki_core.errors import FormatError, InputError
from loki_vfx.serialization.checkpoint_file import (
    checkpoint_frames,
    commit_checkpoint,
    latest_checkpoint,
    open_checkpoint,
    read_checkpoint,
    remove_checkpoint,
    write_checkpoint,
    write_rank_state,
)


def state(frame: int, rank: int = 0) -> dict:
    rng = np.random.default_rng([frame, rank])
    return {
        "frame": frame,
        "time": 0.1 * frame,
        "particles": {"position": rng.random((50, 3)), "id": np.arange(50)},
        "warm_start": [rng.random(5, dtype=np.float32), None],
        "random_counter": 2**63 + frame,
    }


def save(folder, frame, ranks=1, **options):
    for rank in range(ranks):
        write_rank_state(folder, frame, state(frame, rank), rank=rank)
    return commit_checkpoint(folder, frame, ranks=ranks, **options)


def test_one_file_comes_back_bit_for_bit(tmp_path):
    path = tmp_path / "state.loki"
    write_checkpoint(path, state(3))
    found, expected = read_checkpoint(path), state(3)
    assert found["time"].hex() == expected["time"].hex()
    assert found["random_counter"] == 2**63 + 3
    position = found["particles"]["position"]
    assert position.tobytes() == expected["particles"]["position"].tobytes()
    np.testing.assert_array_equal(found["warm_start"][0], expected["warm_start"][0])


def test_every_rank_has_its_own_part(tmp_path):
    save(tmp_path, 4, ranks=3, notes={"setup_hash": "abc"})
    found = latest_checkpoint(tmp_path)
    assert (found.frame, found.ranks, found.notes) == (4, 3, {"setup_hash": "abc"})
    for rank in range(3):
        expected = state(4, rank)["particles"]["position"]
        np.testing.assert_array_equal(found.read(rank)["particles"]["position"], expected)
    with pytest.raises(InputError, match="ranks 0 to 2; asked for 3"):
        found.read(3)


def test_the_trail_keeps_the_last_few(tmp_path):
    for frame in range(1, 7):
        save(tmp_path, frame, keep=2)
    assert checkpoint_frames(tmp_path) == [5, 6]
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == ["000005", "000006"]


def test_nothing_counts_before_the_commit(tmp_path):
    assert latest_checkpoint(tmp_path) is None
    write_rank_state(tmp_path, 1, state(1), rank=0)
    assert latest_checkpoint(tmp_path) is None
    with pytest.raises(InputError, match=r"rank_0001\.loki was not written"):
        commit_checkpoint(tmp_path, 1, ranks=2)
    assert checkpoint_frames(tmp_path) == []


def test_rewriting_on_fewer_ranks_leaves_no_old_ranks(tmp_path):
    save(tmp_path, 1, ranks=4)
    save(tmp_path, 1, ranks=2)
    assert latest_checkpoint(tmp_path).ranks == 2
    files = sorted(p.name for p in (tmp_path / "checkpoints" / "000001").iterdir())
    assert files == ["index.json", "rank_0000.loki", "rank_0001.loki"]


def test_a_damaged_newest_is_an_error_or_is_passed_over_with_its_reason(tmp_path):
    for frame in (1, 2, 3):
        save(tmp_path, frame)
    path = tmp_path / "checkpoints" / "000003" / "rank_0000.loki"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(FormatError, match="newest checkpoint, of frame 3, is damaged"):
        latest_checkpoint(tmp_path)
    found = latest_checkpoint(tmp_path, skip_damaged=True)
    assert found.frame == 2
    assert len(found.skipped) == 1
    assert "frame 3" in found.skipped[0]


def test_no_whole_checkpoint_at_all_is_an_error(tmp_path):
    save(tmp_path, 1)
    (tmp_path / "checkpoints" / "000001" / "rank_0000.loki").unlink()
    with pytest.raises(FormatError, match="no whole checkpoint"):
        latest_checkpoint(tmp_path, skip_damaged=True)


def test_a_file_swapped_for_another_whole_one_is_noticed(tmp_path):
    save(tmp_path, 1, ranks=2)
    folder = tmp_path / "checkpoints" / "000001"
    (folder / "rank_0001.loki").write_bytes((folder / "rank_0000.loki").read_bytes())
    with pytest.raises(FormatError, match="not the file that the index was written for"):
        open_checkpoint(tmp_path, 1)


@pytest.mark.parametrize(
    "damage",
    [
        lambda i: i.update(version=9),
        lambda i: i.update(format="x"),
        lambda i: i.update(frame=2),
        lambda i: i.update(checksums=[]),
        lambda i: i.update(checksums=[3]),
        lambda i: i.update(checksums=["a" * 64] * 70_000),
        lambda i: i.update(notes=[]),
        lambda i: i.clear(),
    ],
)
def test_hand_edited_indexes_raise_format_errors(tmp_path, damage):
    save(tmp_path, 1)
    path = tmp_path / "checkpoints" / "000001" / "index.json"
    index = json.loads(path.read_text())
    damage(index)
    path.write_text(json.dumps(index))
    with pytest.raises(FormatError):
        open_checkpoint(tmp_path, 1)


def test_asking_for_what_is_not_there(tmp_path):
    save(tmp_path, 1)
    with pytest.raises(InputError, match=r"no checkpoint of frame 7; there are \[1\]"):
        open_checkpoint(tmp_path, 7)
    remove_checkpoint(tmp_path, 1)
    assert list((tmp_path / "checkpoints").iterdir()) == []
    with pytest.raises(FormatError, match="cannot be read"):
        read_checkpoint(tmp_path / "none.loki")
