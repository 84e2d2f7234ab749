"""The order of evaluation: what a node depends on comes before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def in_order(sources: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return all nodes, each after the nodes that it depends on; the graph has no cycle.

    Of nodes that could stand first, the one that was written first does.
    """
    done: dict[str, None] = {}
    for first in sources:
        waiting = [first]
        while waiting:
            name = waiting[-1]
            missing = [source for source in sources[name] if source not in done]
            if missing:
                waiting.append(missing[0])
            else:
                done.setdefault(waiting.pop())
    return tuple(done)


def find_cycle(sources: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a cycle along the connections, its first node repeated at the end, or nothing."""
    finished: set[str] = set()
    for first in sources:
        path: list[str] = []
        place: dict[str, int] = {}
        waiting: list[tuple[str, bool]] = [(first, True)]
        while waiting:
            name, entering = waiting.pop()
            if not entering:
                finished.add(name)
                del place[path.pop()]
                continue
            if name in finished:
                continue
            if name in place:
                against = [*path[place[name] :], name]
                return against[::-1]
            place[name] = len(path)
            path.append(name)
            waiting.append((name, False))
            waiting += [(source, True) for source in sources[name]]
    return []
