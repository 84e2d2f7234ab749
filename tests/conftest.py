"""Every test runs with Tasks watched: a write that was not declared is an error."""

from __future__ import annotations

import os

os.environ["LOKI_CHECK_ACCESS"] = "1"
