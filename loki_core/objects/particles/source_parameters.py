"""Source Parameters: what is painted on a source overrides the parameters of what comes out there.

A source has channels of the emitter's parameters, such as `particle_normal_speed`, on its points or
primitives, or one for all of it. What comes out at a place has the values of that place. The shared
name of a parameter, such as `radius`, is not asked for: on a source it may be that of the source.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loki_core.behavior import Behavior
from loki_core.data.mesh import Mesh
from loki_core.data.voxels import Voxels
from loki_core.objects.basics.capabilities import Capability
from loki_core.sparse_parameters import Resolved, channel_names, resolve

Array = NDArray[Any]

#: Takes a location of a mesh and a channel of it, or "voxel" and the name of one of voxels; returns
#: values at places, [n, ...].
Carry = Callable[[str, Any], Array]

#: Where a source may be painted, from broad to narrow; corners of faces last.
PLACES = (("primitive", "primitive"), ("point", "vertex"), ("vertex", "vertex"))


def resolve_on_source(
    behavior: Behavior,
    name: str,
    source: Any,
    carry: Carry,
    count: int,
    *,
    item: Capability,
    label: str,
) -> Resolved:
    """A parameter of an emitter at places of its source, in double precision.

    Args:
        behavior: The emitter, with its keyframes.
        name: Of the parameter.
        source: Its stream, a mesh or voxels.
        carry: Brings a channel to the places.
        count: How many there are.
        item: The Object that is emitted into; its own detail channels are broader.
        label: What messages call the emitter.
    """
    channels = {"detail": _details(behavior, name, source, item)}
    if isinstance(source, Mesh):
        for wanted in source_channels(type(behavior), name):
            for location, place in PLACES:
                painted = source.channels[location].get(wanted)
                if painted is not None:
                    channels.setdefault(place, {})[wanted] = carry(location, painted)
    elif isinstance(source, Voxels):
        for wanted in source_channels(type(behavior), name):
            if wanted in source.channels:
                channels.setdefault("vertex", {})[wanted] = carry("voxel", wanted)
    return _resolved(behavior, name, channels, count, item, label)


def of_source(behavior: Behavior, name: str, source: Any, *, item: Capability, label: str) -> Any:
    """A number or vector that holds for all of a source, whatever is painted on parts of it."""
    channels = {"detail": _details(behavior, name, source, item)}
    return _resolved(behavior, name, channels, 0, item, label).values[0]


def source_channels(behavior_class: type[Behavior], name: str) -> tuple[str, str]:
    """Channels of a source that override a parameter of its emitter."""
    own = channel_names(behavior_class, name)[0]
    return own, f"{own}_scale"


def is_painted(behavior: Behavior, name: str, source: Any) -> bool:
    """Whether parts of a source have values or factors of a parameter of their own."""
    wanted = source_channels(type(behavior), name)
    if isinstance(source, Voxels):
        return any(one in source.channels for one in wanted)
    places = [source.channels[location] for location, _ in PLACES]
    return any(one in some for some in places for one in wanted)


def says(behavior: Behavior, name: str, source: Any, *, item: Capability) -> bool:
    """Whether a parameter has a value on a source: of the emitter, the source or the Object."""
    own, _ = source_channels(type(behavior), name)
    if getattr(behavior, name) is not None or own in item.details:
        return True
    if isinstance(source, Voxels):
        return own in source.channels
    return any(own in some for some in source.channels.values())


def largest_on_source(
    behavior: Behavior, name: str, source: Any, *, item: Capability, label: str
) -> float:
    """Largest size that a parameter may have anywhere on a mesh; no less than it has somewhere."""
    own, scale = source_channels(type(behavior), name)
    channels = {"detail": _details(behavior, name, source, item)}
    values = [_resolved(behavior, name, channels, 0, item, label).values]
    factor = 1.0
    for location, _ in PLACES:
        painted = source.channels[location]
        if own in painted:
            values.append(np.asarray(painted[own], np.float64).reshape(-1, values[0][0].size))
        factor *= max(1.0, float(np.abs(painted.get(scale, np.ones(1))).max(initial=0.0)))
    sizes = [np.linalg.norm(v.reshape(len(v), -1), axis=1).max(initial=0.0) for v in values]
    return factor * float(max(sizes))


def _details(behavior: Behavior, name: str, source: Any, item: Capability) -> dict[str, Array]:
    """What holds for the whole Object, and for all of the source."""
    found = dict(item.details)
    if isinstance(source, Mesh):
        present = source.channels["detail"]
        wanted = source_channels(type(behavior), name)
        found |= {one: present[one] for one in wanted if one in present}
    return found


def _resolved(
    behavior: Behavior,
    name: str,
    channels: dict[str, dict[str, Array]],
    count: int,
    item: Capability,
    label: str,
) -> Resolved:
    settings = item.scope.settings
    return resolve(
        behavior,
        name,
        behavior_label=label,
        channels=channels,
        counts={"vertex": count, "primitive": count},
        primitive_of_vertex=np.arange(count),
        time=item.time,
        frames_per_second=settings.frames_per_second,
        start_frame=settings.start_frame,
    )
