"""Colours for .tk texts in Pygments (Sphinx, rich, MkDocs), found through its entry point.

Its words are those of the language, so it cannot fall behind. Only Pygments imports this module.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pygments.lexer import RegexLexer, bygroups, words
from pygments.token import (
    Comment,
    Keyword,
    Name,
    Number,
    Operator,
    Punctuation,
    String,
    Whitespace,
)

from tilec.frontend.words import language_words

_WORDS = language_words()


class TkLexer(RegexLexer):  # type: ignore[misc]  # Pygments has no types
    """The kernel language of tilec."""

    name = "tilec"
    aliases: ClassVar[list[str]] = ["tk", "tilec"]
    filenames: ClassVar[list[str]] = ["*.tk"]
    mimetypes: ClassVar[list[str]] = ["text/x-tk"]
    tokens: ClassVar[dict[str, list[Any]]] = {
        "root": [
            (r"\s+", Whitespace),
            (r"#[^\n]*", Comment.Single),
            (r'"[^"\n]*"', String.Double),
            (
                r"(kernel|fn)([ \t]+)([A-Za-z_]\w*)",
                bygroups(Keyword.Declaration, Whitespace, Name.Function),
            ),
            (r"(\.)([ \t]*)([A-Za-z_]\w*)", bygroups(Operator, Whitespace, Name.Attribute)),
            (words(_WORDS.keywords, prefix=r"\b", suffix=r"\b"), Keyword),
            (words(_WORDS.constants, prefix=r"\b", suffix=r"\b"), Keyword.Constant),
            (words(_WORDS.types, prefix=r"\b", suffix=r"\b"), Keyword.Type),
            (words(_WORDS.functions, prefix=r"\b", suffix=r"(?=\s*[(\[])"), Name.Builtin),
            (r"[A-Za-z_]\w*", Name),
            (r"0[xX][0-9A-Fa-f_]+", Number.Hex),
            (r"0[bB][01_]+", Number.Bin),
            (r"(\d[\d_]*)?\.\d[\d_]*([eE][+-]?\d+)?", Number.Float),
            (r"\d[\d_]*(\.(?![A-Za-z_])([eE][+-]?\d+)?|[eE][+-]?\d+)", Number.Float),
            (r"\d[\d_]*", Number.Integer),
            (r"[-+*/%@&|^~<>=!]+", Operator),
            (r"[\[\]():,.\\]", Punctuation),
        ]
    }
