"""Every word of the language is coloured: by Pygments, in VS Code and in Vim."""

from __future__ import annotations

import importlib
import json
import re
import tomllib
from pathlib import Path

import pytest
from pygments.token import Comment, Error, Keyword, Name, Number, String

from editors import write
from tests.cli.random_programs import Program, parser
from tilec.frontend.builtins import BUILTINS
from tilec.frontend.imports import _language_scope
from tilec.frontend.words import language_words
from tilec.ir.types import DTYPES
from tilec.pygments_lexer import TkLexer
from tilec.source import SourceFile

CHECKOUT = Path(__file__).resolve().parents[2]
KEYWORDS = sorted(
    terminal.pattern.value
    for terminal in parser().terminals
    if terminal.pattern.type == "str" and terminal.pattern.value.isidentifier()
)
VALUES = sorted(set(_language_scope(SourceFile("", "")).own) - set(DTYPES))
TEXTMATE = CHECKOUT / "editors" / "vscode" / "syntaxes" / "tk.tmLanguage.json"
VIM = CHECKOUT / "editors" / "vim" / "syntax" / "tk.vim"


def in_textmate(text: str) -> str:
    """The scope of the first pattern that matches at the start of a text."""
    for pattern in json.loads(TEXTMATE.read_text(encoding="utf-8"))["patterns"]:
        if "name" in pattern and re.match(pattern["match"], text):
            return str(pattern["name"])
    return ""


def in_vim(word: str) -> str:
    """The group of a word in Vim."""
    for line in VIM.read_text(encoding="utf-8").splitlines():
        if line.startswith("syntax keyword") and word in line.split()[3:]:
            return line.split()[2]
    return ""


def in_pygments(text: str) -> object:
    """The type of the first token of a text."""
    return next(iter(TkLexer().get_tokens(text)))[0]


def test_the_files_are_up_to_date() -> None:
    stale = [p.name for p, text in write.written().items() if p.read_text("utf-8") != text]
    assert stale == [], "bring them up to date with: python -m editors.write"


@pytest.mark.parametrize("word", KEYWORDS)
def test_keywords(word: str) -> None:
    kinds = ("constant", "tkConstant") if word == "None" else ("keyword", "tkKeyword")
    assert in_textmate(f"{word} ").startswith(kinds[0])
    assert in_vim(word) == kinds[1]
    assert in_pygments(f"{word} ") in Keyword


@pytest.mark.parametrize("word", [*BUILTINS, "tiles", "parallel", "range", "static_assert"])
def test_functions(word: str) -> None:
    assert in_textmate(f"{word}(").startswith("support.function")
    assert in_vim(word) == "tkFunction"
    assert in_pygments(f"{word}(") is Name.Builtin


@pytest.mark.parametrize("word", DTYPES)
def test_element_types(word: str) -> None:
    assert in_textmate(f"{word}[").startswith("storage.type")
    assert in_vim(word) == "tkType"
    assert in_pygments(f"{word}[") is Keyword.Type


@pytest.mark.parametrize("word", VALUES)
def test_constants(word: str) -> None:
    assert in_textmate(f"{word} ").startswith("constant.language")
    assert in_vim(word) == "tkConstant"
    assert in_pygments(f"{word} ") is Keyword.Constant


def test_no_word_is_of_two_kinds() -> None:
    words = language_words()
    all_ = [*words.keywords, *words.constants, *words.types, *words.functions]
    assert len(all_) == len(set(all_))


@pytest.mark.parametrize("text", ["tk", "formal", "kernels", "sum_of", "f320"])
def test_other_names_are_only_names(text: str) -> None:
    assert in_textmate(text) == ""
    assert in_vim(text) == ""
    assert in_pygments(text) is Name


def test_lexemes_are_those_of_the_grammar() -> None:
    """Pygments cuts random programs as the parser does, and finds no error in them."""
    kinds = {"INTEGER": Number, "FLOAT": Number.Float, "STRING": String}
    for seed in range(40):
        text = Program(seed).text
        found = {}
        for start, kind, value in TkLexer(ensurenl=False, stripnl=False).get_tokens_unprocessed(
            text
        ):
            assert kind is not Error, value
            found[start] = (kind, value)
        for token in parser().parse_interactive(text).exhaust_lexer():
            if token.type in kinds:
                kind, value = found[token.start_pos or 0]
                assert value == token
                assert kind in kinds[token.type]
        assert sum(kind is Comment.Single for kind, _ in found.values()) == text.count("# comment")


def test_the_entry_point_leads_to_the_lexer() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module, name = project["entry-points"]["pygments.lexers"]["tk"].split(":")
    assert getattr(importlib.import_module(module), name) is TkLexer
    assert "*.tk" in TkLexer.filenames


def test_the_extension_for_vs_code_names_files_that_are_there() -> None:
    folder = CHECKOUT / "editors" / "vscode"
    contributes = json.loads((folder / "package.json").read_text())["contributes"]
    paths = [contributes["languages"][0]["configuration"], contributes["grammars"][0]["path"]]
    assert all(json.loads((folder / path).read_text()) for path in paths)
    assert contributes["languages"][0]["extensions"] == [".tk"]
