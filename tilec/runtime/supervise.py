"""Run code that may hang or crash in a child process with a time limit.

Idea: a kernel with a lost arrival spins for ever, and a bad address poisons the CUDA context of its
process.  Both stay inside a child; the parent gets the result or an exception that says what
happened.

Invariants: the child is gone when `run` returns, with its whole process group; arguments and
results travel pickled through files (numpy arrays included); what the child printed is kept.

Never: uses fork (a CUDA context does not survive one), or retries.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_OUTPUT_TAIL = 4000


class SupervisedError(RuntimeError):
    """The child did not deliver; `output` is what it printed last."""

    def __init__(self, message: str, output: str = "") -> None:
        """Join the message and the tail of the child's output."""
        self.output = output[-_OUTPUT_TAIL:]
        super().__init__(f"{message}\n{self.output}".rstrip() if self.output else message)


class TimeLimitExceeded(SupervisedError):
    """The child ran past its limit and was killed."""


class ChildCrashed(SupervisedError):
    """The child ended without a result: a signal, or an exit of its own."""


class ChildRaised(SupervisedError):
    """The callable raised; `kind` is the exception's class name."""

    def __init__(self, kind: str, message: str, trace: str) -> None:
        """Keep the class name and message of the child's exception; the trace is the output."""
        self.kind = kind
        super().__init__(f"{kind}: {message}", trace)


@dataclass(frozen=True)
class Finished:
    """How a supervised script ended well."""

    output: str


def run(
    target: Callable[..., Any] | str,
    *arguments: Any,
    limit_s: float,
    environment: Mapping[str, str] | None = None,
    **options: Any,
) -> Any:
    """Call `target(*arguments, **options)` in a child and return its result.

    `target` is a module-level function or its "module:function" name.  Arguments and the result
    must be picklable.  Raises `TimeLimitExceeded`, `ChildCrashed` or `ChildRaised`.
    """
    name = target if isinstance(target, str) else _name_of(target)
    with tempfile.TemporaryDirectory(prefix="tilec-run-") as folder:
        request, reply = Path(folder) / "request", Path(folder) / "reply"
        request.write_bytes(pickle.dumps((list(sys.path), name, arguments, options)))
        command = [sys.executable, "-m", "tilec.runtime.supervise", str(request), str(reply)]
        paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
        extra = {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}
        output, code = _run_command(command, limit_s, extra | dict(environment or {}))
        if not reply.exists():
            raise ChildCrashed(f"{name} {_how_it_ended(code)} before it had a result", output)
        ok, *payload = pickle.loads(reply.read_bytes())
        if not ok:
            raise ChildRaised(*payload)
        if code:
            raise ChildCrashed(f"{name} {_how_it_ended(code)} after it had its result", output)
        return payload[0]


def run_script(
    command: Sequence[str], *, limit_s: float, environment: Mapping[str, str] | None = None
) -> Finished:
    """Run a command to its end under the limit; a non-zero exit raises `ChildCrashed`."""
    output, code = _run_command(list(command), limit_s, dict(environment or {}))
    if code:
        raise ChildCrashed(f"{' '.join(command)} {_how_it_ended(code)}", output)
    return Finished(output)


def _name_of(target: Callable[..., Any]) -> str:
    module, name = target.__module__, target.__qualname__
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if module == "__main__" and spec is not None:  # started as `python -m package.module`
        module = spec.name
    if module == "__main__" or "<" in name:
        raise ValueError(f"{module}.{name}: a child can import only a module-level function")
    return f"{module}:{name}"


def _how_it_ended(code: int) -> str:
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit status {code}"


def _run_command(
    command: list[str], limit_s: float, environment: Mapping[str, str]
) -> tuple[str, int]:
    # Output goes to a file: a pipe held open by a grandchild would outlive the kill.
    with tempfile.TemporaryFile("w+", errors="replace") as printed:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            start_new_session=True,
        )
        expired = False
        try:
            child.wait(limit_s)
        except subprocess.TimeoutExpired:
            expired = True
        finally:
            _kill_group(child)
        printed.seek(0)
        output = printed.read()
    if expired:
        raise TimeLimitExceeded(f"no result within {limit_s:g} s; the child was killed", output)
    return output, child.returncode


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # nobody of the group is left
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _serve(request: Path, reply: Path) -> None:
    search_path, name, arguments, options = pickle.loads(request.read_bytes())
    sys.path[:] = search_path
    module_name, function_name = name.split(":")
    try:
        function: Any = __import__(module_name, fromlist=["_"])
        for part in function_name.split("."):
            function = getattr(function, part)
        answer: tuple[Any, ...] = (True, function(*arguments, **options))
    except BaseException as error:  # the process boundary: whatever it is, the parent raises it
        answer = (False, type(error).__name__, str(error), traceback.format_exc())
    partial = reply.with_suffix(".part")
    partial.write_bytes(pickle.dumps(answer))
    partial.rename(reply)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), Path(sys.argv[2]))
