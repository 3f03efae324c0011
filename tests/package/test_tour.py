"""docs/tour.md cannot go stale: its commands are run, and what it shows is looked up.

The fence's first line says where its lines must occur: ```` ```tir PASS ```` in that pass's dump,
```` ```tk ```` in the source, ```` ```ptx ```` in the PTX, ```` ```text FILE ```` in a file of the
dump; ```` ```diff ```` and a bare ```` ```text ```` in what the commands before them printed.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import pytest

from tilec.cli import main
from tilec.pipeline import PIPELINE

CHECKOUT = Path(__file__).resolve().parents[2]
PAGE = CHECKOUT / "docs" / "tour.md"
TEXT = PAGE.read_text(encoding="utf-8")
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
GAP = "..."


# --- excerpts ----------------------------------------------------------------------------------


def _pattern(line: str) -> re.Pattern[str]:
    """A shown line, with `...` for anything; indentation does not count."""
    return re.compile(".*".join(re.escape(part) for part in line.strip().split(GAP)))


def missing(excerpt: str, text: str) -> str:
    """The first stretch of an excerpt that is not in the text behind those before it, or nothing.

    Lines of a stretch must follow each other in the text; a line of `...` ends a stretch.
    """
    lines = [line.strip() for line in text.splitlines()]
    at = 0
    for stretch in re.split(r"^\s*\.\.\.\s*$", excerpt, flags=re.MULTILINE):
        wanted = [_pattern(line) for line in stretch.splitlines() if line.strip()]
        places = range(at, len(lines) - len(wanted) + 1)
        found = next(
            (p for p in places if all(w.fullmatch(lines[p + n]) for n, w in enumerate(wanted))),
            None,
        )
        if found is None:
            first = stretch.strip().splitlines()[0]
            near = get_close_matches(first, lines, n=2, cutoff=0.4)
            return "\n".join([stretch.strip(), "-- nearest to its first line:", *near])
        at = found + len(wanted)
    return ""


@pytest.mark.parametrize(
    ("excerpt", "is_missing"),
    [
        ("b\nc", False),
        ("a\n...\nd", False),
        ("  a = 1..., 3", False),
        ("a\nc", True),
        ("d\n...\na", True),
        ("a = 2", True),
        ("a =", True),
    ],
)
def test_an_excerpt_is_found_only_where_its_lines_follow_each_other(
    excerpt: str, is_missing: bool
) -> None:
    assert bool(missing(excerpt, "a\nb\nc\n  d\na = 1, 2, 3\n")) is is_missing


# --- the page, followed ------------------------------------------------------------------------


@dataclass(frozen=True)
class Followed:
    """What following the page gave: each fence with the text that it quotes, and the folder."""

    fences: tuple[tuple[str, str, str], ...]
    printed: tuple[str, ...]
    dumped: tuple[str, ...]
    folder: Path

    def dump(self, name: str) -> str:
        """One file of the dump."""
        (path,) = (self.folder / "out").glob(name)
        return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Followed:
    """Run all commands in order, in a folder that has the examples and `tilec` on the path."""
    folder = tmp_path_factory.mktemp("tour")
    shutil.copytree(CHECKOUT / "examples", folder / "examples")
    (folder / "bin").mkdir()
    command = folder / "bin" / "tilec"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m tilec "$@"\n')
    command.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(CHECKOUT),
    }
    fences: list[tuple[str, str, str]] = []
    printed: list[str] = []
    dumped: list[str] = []
    for head, body in FENCE.findall(TEXT):
        kind, _, which = head.partition(" ")
        if kind == "sh":
            done = subprocess.run(
                ["bash", "-c", body], capture_output=True, text=True, check=False, cwd=folder,
                env=environment, timeout=120,
            )  # fmt: skip
            printed.append(done.stdout + done.stderr)
            if not dumped:
                assert done.returncode == 0, printed[-1]
                dumped = sorted(path.name for path in (folder / "out").iterdir())
            continue
        result = Followed((), (), (), folder)
        if kind == "tir":
            text = result.dump(f"[0-9]*-{which}.tir")
        elif kind == "tk":
            text = result.dump("00-gemm.tk")
        elif kind == "ptx":
            text = result.dump("gemm.ptx")
        elif which:
            text = result.dump(which)
        else:
            assert kind in ("diff", "text"), f"nothing says where a fence `{head}` is from"
            text = printed[-1]
        fences.append((head, body, text))
    return Followed(tuple(fences), tuple(printed), tuple(dumped), folder)


def test_every_line_shown_is_there_now(followed: Followed) -> None:
    lost = [f"```{head}\n{gone}" for head, body, text in followed.fences
            if (gone := missing(body, text))]  # fmt: skip
    assert not lost, "\n\n".join(lost)


def test_the_index_leads_to_every_file_of_the_dump(followed: Followed) -> None:
    index = followed.dump("index.md")
    linked = {"index.md", *re.findall(r"\]\(([^)]+)\)", index)}
    assert [name for name in followed.dumped if name not in linked and name[-4:] != ".svg"] == []


def test_only_what_the_page_says_is_refused_is_refused(followed: Followed) -> None:
    shown = "\n".join(body for _, body, _ in followed.fences)
    wrong = [text for text in followed.printed if "error" in text.lower()]
    assert len(wrong) == shown.count("error[") == 2, "\n".join(wrong)
    assert all("error[invalid-ir]" in text for text in wrong)
    assert not any("Traceback" in text for text in followed.printed)


def test_every_edit_is_followed_by_what_came_of_it() -> None:
    heads = [(head, body) for head, body in FENCE.findall(TEXT)]
    edits = [n for n, (head, body) in enumerate(heads) if head == "sh" and "tilec opt" in body]
    assert len(edits) >= 8
    assert all(heads[n + 1][0] in ("diff", "text") for n in edits)


def test_every_name_in_the_prose_exists(followed: Followed) -> None:
    prose = FENCE.sub("", TEXT)
    commands = "\n".join(body for head, body in FENCE.findall(TEXT) if head == "sh")
    sources = [path.read_text(encoding="utf-8") for path in _dump_texts(followed.folder / "out")]
    options = [o for c in main.commands.values() for p in c.params for o in p.opts]
    known = "\n".join([*sources, *followed.printed, commands, *options, *PIPELINE])
    ops = (CHECKOUT / "docs" / "ops.md").read_text(encoding="utf-8")
    unknown = [
        span
        for span in re.findall(r"`([^`]+)`", prose)
        if span not in known
        and span not in ops
        and span != GAP
        and not (CHECKOUT / span).exists()
        and not (followed.folder / span).exists()
    ]
    assert not unknown


def _dump_texts(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.iterdir()) if path.suffix in (".tir", ".ptx", ".tk"))


# --- laws and completeness ---------------------------------------------------------------------


def _words(text: str) -> str:
    return " ".join(text.replace("`", "").split())


def _quotes(section: str) -> Sequence[str]:
    blocks = re.findall(r"(?:^> .*\n)+", section, re.MULTILINE)
    return [_words(re.sub(r"^> ", "", block, flags=re.MULTILINE)) for block in blocks]


def test_laws_are_quoted_from_the_passes_that_the_section_links() -> None:
    quoted = 0
    for section in re.split(r"^## ", FENCE.sub("", TEXT), flags=re.MULTILINE):
        links = re.findall(r"\]\(\.\./(tilec/[\w/]+\.py)\)", section)
        trees = [ast.parse((CHECKOUT / link).read_text(encoding="utf-8")) for link in links]
        docs = _words(" ".join(ast.get_docstring(tree) or "" for tree in trees))
        for quote in _quotes(section):
            quoted += 1
            assert quote in docs, f"not in {links}: {quote}"
    assert quoted >= 8


def test_every_pass_has_its_place_in_the_order_of_the_pipeline() -> None:
    prose = FENCE.sub("", TEXT)
    headings = " ".join(re.findall(r"^## (.*)$", prose, re.MULTILINE))
    named = [name for name in re.findall(r"`([\w-]+)`", headings) if name in PIPELINE]
    assert named == list(PIPELINE)


def test_links_lead_to_files() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", FENCE.sub("", TEXT))
    assert links
    assert [link for link in links if not (PAGE.parent / link).exists()] == []
