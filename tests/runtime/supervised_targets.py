"""Functions that the supervision tests run in a child."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any

import numpy as np


def double(array: Any, *, plus: int = 0) -> Any:
    """Numbers in, numbers out."""
    return {"result": array * 2 + plus, "pid": os.getpid()}


def hang() -> None:
    """Never returns; says so first."""
    print("about to hang", flush=True)
    time.sleep(600)


def hang_with_a_child(path: str) -> None:
    """Never returns, and neither does a process that it starts."""
    code = "import time; time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-c", code])
    with open(path, "w") as file:
        file.write(str(child.pid))
    time.sleep(600)


def fail() -> None:
    """Raises."""
    raise KeyError("no such tile")


def die() -> None:
    """Ends by a signal, as a crash in native code does."""
    print("last words", flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)


def leave() -> None:
    """Ends the process without a result."""
    os._exit(3)


def unpicklable() -> Any:
    """Returns what no other process can have."""
    return (np.float32(number) for number in range(3))
