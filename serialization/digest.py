"""A digest of streams and documents, the same in every host and session."""

from __future__ import annotations

import hashlib
from typing import Any

from loki_vfx.serialization.codec import encode


def digest(*parts: Any) -> str:
    """Return 32 letters that tell whether streams, or plain documents, are the same bit for bit."""
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        for frame in encode(part):
            found.update(frame)
    return found.hexdigest()
