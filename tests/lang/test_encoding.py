"""Bytes of a file: a byte order mark is skipped, and what is no UTF-8 is shown where it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

import tilec
from tilec.compiler import front, read_module
from tilec.diagnostics import DiagnosticError
from tilec.source import SourceFile
from tilec.targets import by_name

_TEXT = (
    "# größer\r\nkernel k(x: f32[M], y: out f32[M]):\r\n"
    "    for i in parallel(tiles(M)):\r\n        y[i] = x[i]\r\n"
)


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    file = tmp_path / "marked.tk"
    file.write_bytes(_TEXT.encode("utf-8-sig"))
    assert tilec.load(str(file)).k.name == "k"
    assert SourceFile.read(file).text == _TEXT.replace("\r\n", "\n")


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_another_encoding_is_refused_at_its_first_byte(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "other.tk"
    file.write_bytes(_TEXT.encode(encoding))
    for read in (tilec.load, lambda path: read_module(SourceFile.read(path))):
        with pytest.raises(DiagnosticError) as raised:
            read(str(file))
        (error,) = raised.value.diagnostics
        assert error.code == "not-utf-8"
        assert error.span is not None
        column, byte = {"latin-1": (5, "0xF6"), "utf-16": (1, "0xFF")}[encoding]
        assert (error.span.line, error.span.column) == (1, column)
        assert error.labels[0][1].endswith(byte)


def test_an_imported_file_in_another_encoding_is_shown(tmp_path: Path) -> None:
    (tmp_path / "part.tk").write_bytes("# größer\nfn f(x):\n    return x\n".encode("latin-1"))
    main = tmp_path / "main.tk"
    main.write_text('from "part.tk" import f\n' + _TEXT.replace("= x[i]", "= f(x[i])"))
    with pytest.raises(DiagnosticError) as raised:
        front(SourceFile.read(main), None, {}, by_name("90"))
    (error,) = raised.value.diagnostics
    assert error.code == "not-utf-8"
    assert [Path(span.file.name).name for span, _ in error.labels] == ["part.tk", "main.tk"]
