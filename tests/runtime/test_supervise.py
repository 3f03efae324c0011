"""Hangs and crashes stay in the child."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.runtime import supervised_targets as targets
from tilec.runtime.supervise import (
    ChildCrashed,
    ChildRaised,
    TimeLimitExceeded,
    run,
    run_script,
)


def test_arrays_travel_both_ways() -> None:
    """And the work is done in another process."""
    answer = run(targets.double, np.arange(4), limit_s=30, plus=1)
    assert answer["result"].tolist() == [1, 3, 5, 7]
    assert answer["pid"] != os.getpid()


def test_a_target_can_be_named() -> None:
    """So that a caller need not import it."""
    answer = run("tests.runtime.supervised_targets:double", 4, limit_s=30)
    assert answer["result"] == 8


def test_a_hang_ends_at_the_limit() -> None:
    """With what was printed until then."""
    start = time.monotonic()
    with pytest.raises(TimeLimitExceeded, match="about to hang"):
        run(targets.hang, limit_s=2)
    assert time.monotonic() - start < 20


def test_the_childs_own_children_are_killed(tmp_path: Path) -> None:
    """A grandchild that holds the GPU would spoil the next run."""
    note = tmp_path / "pid"
    with pytest.raises(TimeLimitExceeded):
        run(targets.hang_with_a_child, str(note), limit_s=2)
    assert _is_gone(int(note.read_text()))


def _is_gone(pid: int) -> bool:
    for _ in range(100):
        stat = Path(f"/proc/{pid}/stat")
        if not stat.exists() or stat.read_text().rsplit(")", 1)[1].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False


def test_an_exception_comes_back_with_its_name_and_trace() -> None:
    """The parent sees where it happened."""
    with pytest.raises(ChildRaised, match="no such tile") as caught:
        run(targets.fail, limit_s=30)
    assert caught.value.kind == "KeyError"
    assert "in fail" in caught.value.output


def test_a_crash_names_the_signal() -> None:
    """With the child's last words."""
    with pytest.raises(ChildCrashed, match="SIGSEGV") as caught:
        run(targets.die, limit_s=30)
    assert "last words" in caught.value.output


def test_an_exit_without_a_result_is_a_crash() -> None:
    """The status is named."""
    with pytest.raises(ChildCrashed, match="exit status 3"):
        run(targets.leave, limit_s=30)


def test_a_result_that_cannot_travel_is_reported() -> None:
    """Instead of a silent nothing."""
    with pytest.raises(ChildCrashed, match="pickle"):
        run(targets.unpicklable, limit_s=30)


def test_only_module_level_functions_can_run_in_a_child() -> None:
    """A lambda has no name to import."""
    with pytest.raises(ValueError, match="module-level"):
        run(lambda: 1, limit_s=1)


def test_scripts_run_under_the_same_rules() -> None:
    """Output on success, an exception otherwise."""
    assert run_script([sys.executable, "-c", "print(6 * 7)"], limit_s=30).output == "42\n"
    with pytest.raises(ChildCrashed, match="exit status 5"):
        run_script([sys.executable, "-c", "raise SystemExit(5)"], limit_s=30)
    with pytest.raises(TimeLimitExceeded):
        run_script([sys.executable, "-c", "import time; time.sleep(60)"], limit_s=1)
