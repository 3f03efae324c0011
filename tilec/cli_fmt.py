"""``tilec fmt``: lays out .tk files in the one way, or says which are not.

A file is replaced as a whole or not at all: the new text is written beside it and takes its place
in one step, with its permissions. A file that does not parse is left as it is, and the others are
still laid out. Line ends stay those of the file's first line.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import click

from tilec.diagnostics import Diagnostic, DiagnosticError
from tilec.source import SourceFile

_STDIN = "-"


@dataclass(frozen=True)
class _Text:
    """What a file holds, and how its lines end."""

    name: str
    text: str
    line_end: str

    @classmethod
    def of(cls, name: str, data: bytes) -> _Text:
        """From bytes in UTF-8."""
        line_end = "\r\n" if data.partition(b"\n")[0].endswith(b"\r") else "\n"
        return cls(name, data.decode("utf-8"), line_end)

    def as_source(self) -> SourceFile:
        """With newlines made uniform, as every file is read."""
        return SourceFile(self.name, self.text.replace("\r\n", "\n").replace("\r", "\n"))

    def with_line_ends(self, text: str) -> str:
        """A text with the line ends of this one."""
        return text.replace("\n", self.line_end)


@click.command()
@click.argument(
    "files", type=click.Path(exists=True, dir_okay=False, allow_dash=True), nargs=-1, required=True
)
@click.option("--check", is_flag=True, help="Write nothing; exit code 1 if a file would change.")
@click.option("--diff", is_flag=True, help="Like --check, and show what would change.")
def fmt(files: tuple[str, ...], check: bool, diff: bool) -> None:
    """Lay out .tk FILES in place; `-` lays out standard input to standard output."""
    from tilec.frontend.format import formatted

    found: list[Diagnostic] = []
    changed = False
    for name in files:
        given = _read(name)
        try:
            made = given.with_line_ends(formatted(given.as_source()))
        except DiagnosticError as error:
            found.extend(error.diagnostics)
            continue
        changed = changed or made != given.text
        if diff:
            click.echo(_difference(given, made), nl=False)
        elif check and made != given.text:
            click.echo(f"{given.name}: would be laid out anew")
        elif not check:
            _give(name, given, made)
    if found:
        raise DiagnosticError(found)
    if changed and (check or diff):
        sys.exit(1)


def _read(name: str) -> _Text:
    if name == _STDIN:
        return _Text.of("<stdin>", sys.stdin.buffer.read())
    return _Text.of(name, Path(name).read_bytes())


def _give(name: str, given: _Text, made: str) -> None:
    """Hand back what was made: standard input as text, a file in its place if it changed."""
    if name == _STDIN:
        sys.stdout.buffer.write(made.encode("utf-8"))
    elif made != given.text:
        replace_file(Path(name), made.encode("utf-8"))
        click.echo(f"{name}: laid out anew")


def _difference(given: _Text, made: str) -> str:
    """A patch; ``patch`` takes it where line ends are those of Unix."""
    old, new = (text.replace("\r\n", "\n") for text in (given.text, made))
    lines = difflib.unified_diff(_lines(old), _lines(new), given.name, f"{given.name} (laid out)")
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


def _lines(text: str) -> list[str]:
    """Lines with their ends; only a line feed is one, whatever comments may hold."""
    return re.findall(r"[^\n]*\n|[^\n]+$", text)


def replace_file(path: Path, data: bytes) -> None:
    """Give a file new contents in one step: whoever reads it finds all of the old or the new."""
    target = path.resolve()  # a link stays a link
    handle, beside = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(beside, target.stat().st_mode & 0o7777)
        os.replace(beside, target)
    except BaseException:
        os.unlink(beside)
        raise
