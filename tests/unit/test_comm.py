"""The serial twin of the communicator, and how errors travel."""

from __future__ import annotations

import numpy as np
import pytest

from loki_core.errors import DivergenceError, InputError
from loki_core.parallel.comm import SERIAL, SerialCommunicator, one_fails_all_fail, world


class TwoRanks(SerialCommunicator):
    """Rank 1 of two; the other rank's share of every collective is given."""

    size = 2
    rank = 1

    def __init__(self, others):
        self.others = list(others)

    def all_gather(self, array):
        return [np.asarray(self.others.pop(0), array.dtype), array]

    def all_reduce(self, array, operation):
        other = np.asarray(self.others.pop(0), array.dtype)
        return {"max": np.maximum, "sum": np.add, "min": np.minimum}[operation](array, other)


def test_collectives_of_one_rank_are_the_identity():
    array = np.arange(4.0)
    assert (SERIAL.rank, SERIAL.size) == (0, 1)
    np.testing.assert_array_equal(SERIAL.all_gather(array)[0], array)
    for operation in ("sum", "min", "max"):
        np.testing.assert_array_equal(SERIAL.all_reduce(array, operation), array)
    np.testing.assert_array_equal(SERIAL.all_to_all([array])[0], array)
    assert SERIAL.broadcast(b"loki") == b"loki"
    assert SERIAL.any(True) and not SERIAL.any(False)
    assert SERIAL.maximum(2.5) == 2.5 and SERIAL.total(7) == 7
    SERIAL.barrier()


def test_posting_to_oneself_copies():
    sent, received = np.arange(3.0), np.zeros(3)
    SERIAL.post({0: sent}, {0: received}).wait()
    np.testing.assert_array_equal(received, sent)


def test_without_a_launcher_there_is_one_rank(monkeypatch):
    for name in ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MPI_LOCALRANKID"):
        monkeypatch.delenv(name, raising=False)
    assert world() is SERIAL


def test_no_error_raises_nothing():
    SERIAL.raise_together(None)
    TwoRanks([[0]]).raise_together(None)


def test_an_error_of_one_rank_keeps_its_type_and_text():
    with pytest.raises(InputError, match=r"^particle 3 is bad$"):
        SERIAL.raise_together(InputError("particle 3 is bad"))


def test_the_first_error_by_rank_is_raised_on_all():
    theirs = np.frombuffer(b"DivergenceError\nparticle 9\nflew off", np.uint8)
    for mine in (None, InputError("mine")):
        with pytest.raises(DivergenceError, match=r"particle 9\nflew off \(rank 0 of 2\)"):
            TwoRanks([[1], theirs]).raise_together(mine)
    with pytest.raises(InputError, match=r"mine \(rank 1 of 2\)"):
        TwoRanks([[0], []]).raise_together(InputError("mine"))


def test_an_unknown_error_name_is_not_executed():
    theirs = np.frombuffer(b"did_you_mean\nhello", np.uint8)
    with pytest.raises(Exception, match="hello") as raised:
        TwoRanks([[1], theirs]).raise_together(None)
    assert type(raised.value).__name__ == "LokiError"


def test_one_rank_alone_fails_as_python_does():
    with pytest.raises(ZeroDivisionError), one_fails_all_fail(SERIAL):
        raise ZeroDivisionError


class Aborted(Exception):
    pass


class AbortingRanks(TwoRanks):
    def abort(self, code):
        raise Aborted(code)


@pytest.mark.parametrize(
    ("error", "code"),
    [(InputError("bad seed"), 4), (ValueError("bad seed"), 1), (KeyboardInterrupt(), 1)],
)
def test_one_of_many_ranks_aborts_all_with_its_traceback(capsys, error, code):
    with pytest.raises(Aborted) as raised, one_fails_all_fail(AbortingRanks([])):
        raise error
    assert raised.value.args == (code,)
    told = capsys.readouterr().err
    assert "rank 1 of 2 failed" in told and "Traceback" in told and type(error).__name__ in told


def test_a_rank_that_exits_with_a_failure_aborts_all(capsys):
    # sys.exit(3) on one rank alone would leave the others waiting for ever.
    with pytest.raises(Aborted) as raised, one_fails_all_fail(AbortingRanks([])):
        raise SystemExit(3)
    assert raised.value.args == (3,)


def test_a_rank_that_exits_with_success_just_ends():
    with pytest.raises(SystemExit), one_fails_all_fail(AbortingRanks([])):
        raise SystemExit(0)
