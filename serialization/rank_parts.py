"""Rank parts: the streams of a frame, of which every rank has a part, made whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from loki_core.data.parts import join_parts
from loki_core.parallel.comm import Communicator
from loki_vfx.serialization.codec import pack, unpack


def gather_streams(comm: Communicator, streams: Mapping[str, Any]) -> dict[str, Any]:
    """Return whole streams by name on rank 0, nothing on the others. Collective.

    A name that only some ranks have is joined of what they have.
    """
    if comm.size == 1:
        return dict(streams)
    return _joined(comm.gather(_packed(streams)))


def share_streams(comm: Communicator, streams: Mapping[str, Any]) -> dict[str, Any]:
    """Return whole streams by name, alike on every rank. Collective."""
    if comm.size == 1:
        return dict(streams)
    return _joined(comm.all_gather(_packed(streams)))


def _packed(streams: Mapping[str, Any]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.frombuffer(pack(dict(streams)), np.uint8)


def _joined(packed: Sequence[Any]) -> dict[str, Any]:
    shares = [unpack(part, label="a rank's part") for part in packed]
    names = dict.fromkeys(name for share in shares for name in share)
    return {name: join_parts([one[name] for one in shares if name in one]) for name in names}
