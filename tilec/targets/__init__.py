"""Facts about each GPU as frozen data; ``by_name`` finds one, no pass asks for a version number."""

from __future__ import annotations

from tilec.targets.base import Target
from tilec.targets.sm_80 import SM_80
from tilec.targets.sm_86 import SM_86
from tilec.targets.sm_89 import SM_89
from tilec.targets.sm_90 import SM_90

TARGETS: dict[str, Target] = {target.name: target for target in (SM_80, SM_86, SM_89, SM_90)}
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
