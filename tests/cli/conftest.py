"""Running the command line in-process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tilec.cli import main

CHECKOUT = Path(__file__).resolve().parents[2]
Command = Callable[..., Result]


@pytest.fixture
def examples() -> Path:
    """The folder of example programs."""
    return CHECKOUT / "examples"


@pytest.fixture
def tilec() -> Command:
    """Run ``tilec`` with these words; a traceback fails the test."""

    def run(*words: object, code: int = 0) -> Result:
        result = CliRunner().invoke(main, [str(word) for word in words])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return result

    return run
