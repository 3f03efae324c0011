"""What ``--report`` and ``--timeline`` ask for, and where it goes: standard output or files."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from tilec.cli_options import check_folder

F = TypeVar("F", bound=Callable[..., Any])
_SHOWN = "-"


@dataclass(frozen=True)
class Wanted:
    """What to do with the reports of a run."""

    text: bool = False
    json: Path | None = None
    svg: Path | None = None

    def __bool__(self) -> bool:
        """Whether a report is wanted at all."""
        return self.text or self.json is not None or self.svg is not None

    def give(self, reports: Sequence[Any]) -> None:
        """Print and write."""
        from tilec.emulator.report.report import as_json, as_svg, as_text

        if self.text:
            click.echo(as_text(reports))
        if self.json is not None:
            text = json.dumps(as_json(reports), indent=1)
            self.json.write_text(text + "\n", encoding="utf-8")
        if self.svg is not None:
            self.svg.write_text(as_svg(reports), encoding="utf-8")


def with_report(function: F) -> F:
    """The options of a command that can report."""
    report = click.option(
        "--report",
        is_flag=False,
        flag_value=_SHOWN,
        metavar="[FILE.json]",
        help="What each line did and a timeline, from a model of time; as text, or to a file.",
    )
    timeline = click.option("--timeline", metavar="FILE.svg", help="Draw the timeline to a file.")
    return report(timeline(function))


def read_report(report: str | None, timeline: str | None, made: Path | None = None) -> Wanted:
    """The options' meaning; refuses files that cannot be meant or written."""
    wanted = Wanted(
        report == _SHOWN,
        None if report in (None, _SHOWN) else _file("--report", str(report), ".json"),
        None if timeline is None else _file("--timeline", timeline, ".svg"),
    )
    check_folder(wanted.json, made)
    check_folder(wanted.svg, made)
    return wanted


def _file(option: str, text: str, suffix: str) -> Path:
    if not text.endswith(suffix):
        bare = "; `--report` alone prints it, last on the line" if option == "--report" else ""
        raise click.UsageError(f"{option} writes a {suffix} file, got `{text}`{bare}")
    path = Path(text)
    if path.is_dir():
        raise click.UsageError(f"{option} writes a file, and {text} is a folder")
    return path
