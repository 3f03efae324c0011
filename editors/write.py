"""Writes the highlighting for VS Code and Vim from the language's own words.

    python -m editors.write

The files below ``editors`` are kept in the checkout, so that an editor can be pointed at them.
"""

from __future__ import annotations

import json
from pathlib import Path

from tilec.frontend.words import Words, language_words

HERE = Path(__file__).resolve().parent
_FLOAT = (
    r"(?:\b\d[\d_]*)?\.\d[\d_]*(?:[eE][+-]?\d+)?"
    r"|\b\d[\d_]*\.(?![A-Za-z_])(?:[eE][+-]?\d+)?|\b\d[\d_]*[eE][+-]?\d+"
)


def textmate(words: Words) -> str:
    """A TextMate grammar, which VS Code and others read."""

    def any_of(names: tuple[str, ...]) -> str:
        return rf"(?<!\.)\b(?:{'|'.join(names)})\b"

    patterns: list[dict[str, object]] = [
        {"name": "comment.line.number-sign.tk", "match": "#.*$"},
        {"name": "string.quoted.double.tk", "match": r'"[^"\n]*"'},
        {
            "match": r"\b(kernel|fn)\s+([A-Za-z_]\w*)",
            "captures": {
                "1": {"name": "storage.type.function.tk"},
                "2": {"name": "entity.name.function.tk"},
            },
        },
        {"name": "keyword.control.tk", "match": any_of(words.keywords)},
        {"name": "constant.language.tk", "match": any_of(words.constants)},
        {"name": "storage.type.tk", "match": any_of(words.types)},
        {"name": "support.function.builtin.tk", "match": rf"{any_of(words.functions)}(?=\s*[(\[])"},
        {"name": "constant.numeric.float.tk", "match": _FLOAT},
        {
            "name": "constant.numeric.integer.tk",
            "match": r"\b(?:0[xX][0-9A-Fa-f_]+|0[bB][01_]+|\d[\d_]*)\b",
        },
        {"name": "keyword.operator.tk", "match": r"[-+*/%@&|^~<>=!]+"},
    ]
    grammar = {
        "name": "tilec",
        "scopeName": "source.tk",
        "fileTypes": ["tk"],
        "patterns": patterns,
    }
    return json.dumps(grammar, indent=2) + "\n"


def vim(words: Words) -> str:
    """A syntax file for Vim and Neovim."""
    groups = {
        "tkKeyword": words.keywords,
        "tkConstant": words.constants,
        "tkType": words.types,
        "tkFunction": words.functions,
    }
    lines = ['" Kernels of tilec; written by editors/write.py', "if exists('b:current_syntax')"]
    lines += ["  finish", "endif", ""]
    lines += [f"syntax keyword {group} {' '.join(names)}" for group, names in groups.items()]
    lines += [
        r"syntax match tkAttribute /\.\s*\h\w*/",
        r"syntax match tkDefined /\(\<\(kernel\|fn\)\s\+\)\@<=\h\w*/",
        r"syntax match tkNumber /\<\(0[xX][0-9A-Fa-f_]\+\|0[bB][01_]\+\|\d[0-9_]*\)\>/",
        r"syntax match tkFloat /\(\<\d[0-9_]*\)\?\.\d[0-9_]*\([eE][+-]\?\d\+\)\?/",
        r"syntax match tkFloat /\<\d[0-9_]*\(\.\h\@!\([eE][+-]\?\d\+\)\?\|[eE][+-]\?\d\+\)/",
        r"syntax match tkOperator /[-+*\/%@&|^~<>=!]\+/",
        'syntax region tkString start=/"/ end=/"/ oneline',
        "syntax match tkComment /#.*$/",
        "",
        "highlight default link tkKeyword Keyword",
        "highlight default link tkConstant Constant",
        "highlight default link tkType Type",
        "highlight default link tkFunction Function",
        "highlight default link tkDefined Identifier",
        "highlight default link tkNumber Number",
        "highlight default link tkFloat Float",
        "highlight default link tkOperator Operator",
        "highlight default link tkString String",
        "highlight default link tkComment Comment",
        "",
        "let b:current_syntax = 'tk'",
    ]
    return "\n".join(lines) + "\n"


def written() -> dict[Path, str]:
    """Each file with what it should hold."""
    words = language_words()
    return {
        HERE / "vscode" / "syntaxes" / "tk.tmLanguage.json": textmate(words),
        HERE / "vim" / "syntax" / "tk.vim": vim(words),
    }


if __name__ == "__main__":
    for path, text in written().items():
        path.write_text(text, encoding="utf-8")
