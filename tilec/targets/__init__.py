"""Facts about each GPU as frozen data; ``by_name`` finds one, no pass asks for a version number."""

from __future__ import annotations

from tilec.targets.base import Target
from tilec.targets.sm_90 import SM_90

TARGETS: dict[str, Target] = {target.name: target for target in (SM_90,)}
"""All targets by name."""


def by_name(name: str) -> Target:
    """The target called ``name`` (``sm_90a``; ``90``, ``sm_90`` and ``sm90`` mean it too).

    Raises ``KeyError`` naming the known ones.
    """
    wanted = name.lower().removeprefix("sm").removeprefix("_").removesuffix("a")
    for target in TARGETS.values():
        if target.name.removeprefix("sm_").removesuffix("a") == wanted:
            return target
    raise KeyError(f"there is no target {name}; known: {', '.join(TARGETS)}")
