"""Notes: data tell the running Task's Access what is read, written or moved.

Channels are noted where their arrays are handed out, so kernels get plain arrays and no Task can
touch a channel unseen. `running` is set while Tasks are checked (`accessors.checks_access`), and
None otherwise: then noting is one comparison for each array that is handed out.
"""

from __future__ import annotations

from typing import Any, Protocol


class Notebook(Protocol):
    """Takes the notes of one Task."""

    def note_use(self, holder: Any, channel: str) -> None:
        """Values of a channel are handed out, to be read or changed."""

    def note_write(self, holder: Any, channel: str) -> None:
        """Values of a channel were changed."""

    def note_layout(self, holder: Any) -> None:
        """Elements come, go or change places."""

    def note_new(self, holder: Any) -> None:
        """The Task makes data of its own."""


#: Whoever takes notes now.
running: Notebook | None = None
