"""One page a case: a kernel, why it is interesting, and what the pass makes of it.

``tests/passes/<pass>/<case>.md`` has a fenced block ``tir`` with the input, and either a block
``tir after`` with the output and the remarks (rewritten by ``pytest --update``) or a block
``refused`` with a part of the reason. The input carries its facts and schedule.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import Golden
from tilec import pipeline
from tilec.ir.declare import Refused
from tilec.ir.parser import parse_module
from tilec.ir.printer import module_text
from tilec.passes.base import Context
from tilec.targets import by_name

ROOT = Path(__file__).parent
PAGES = sorted(ROOT.glob("*/*.md"))
_BLOCK = re.compile(r"```(tir|refused)\n(.*?)```\n", re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_page(page: Path, golden: Golden) -> None:
    text = page.read_text(encoding="utf-8")
    blocks = {
        kind: (body, match.end())
        for match in _BLOCK.finditer(text)
        for kind, body in [match.groups()]
    }
    source, end = blocks["tir"]
    module = parse_module(source)
    ctx = Context(by_name(module.target))
    item = pipeline.find_pass(page.parent.name)
    if "refused" in blocks:
        with pytest.raises(Refused) as refusal:
            pipeline.step(module, item, ctx)
        assert blocks["refused"][0].strip() in str(refusal.value)
        return
    pipeline.step(module, item, ctx)
    remarks = "".join(f"- line {r.line}:{r.column}: {r.text}\n" for r in ctx.remarks)
    after = f"\nbecomes\n\n```tir after\n{module_text(module)}```\n"
    golden(page, text[:end] + after + (f"\n{remarks}" if remarks else ""))


def test_every_pass_of_the_story_has_a_page() -> None:
    known = {page.parent.name for page in PAGES}
    ours = set(pipeline.PIPELINE[1 : pipeline.position("place-shared") + 1])
    assert ours <= known
