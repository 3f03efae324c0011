"""Tests that need a GPU: they are marked so, and wait for one by name instead of failing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilec.backend_ptx.module import available

_HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder `gpu`; without a device, say so."""
    ours = [item for item in items if _HERE in item.path.parents]
    if not ours:
        return
    missing = None if available() else pytest.mark.skip(reason="needs a CUDA device")
    for item in ours:
        item.add_marker(pytest.mark.gpu)
        if missing is not None:
            item.add_marker(missing)
