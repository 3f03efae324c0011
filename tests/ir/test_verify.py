"""The verifier's seven points, each broken once, and how its error reads."""

from __future__ import annotations

import pytest

from tilec.ir.core import Kernel, Loc, Module, Op, Region, Value
from tilec.ir.levels import cta, flow, math, ptx
from tilec.ir.parser import parse_module
from tilec.ir.types import BOOL, F32, S32, Bits, Register, Scalar, Tile
from tilec.ir.verify import VerifyError, verify
from tilec.layout.linear import Layout


def _module(*ops: Op, level: str = "tile") -> Module:
    return Module(level, "sm_90a", [Kernel("k", Region((), ops))])


def _messages(module: Module) -> list[str]:
    with pytest.raises(VerifyError) as caught:
        verify(module)
    return [fault.message for fault in caught.value.faults]


def _one() -> math.Constant:
    return math.Constant(1, Scalar(S32))


def test_1_an_op_of_another_level() -> None:
    assert _messages(_module(ptx.SharedBase(), level="cta"))[0] == (
        "this op does not belong to the level "
        "(cta, cluster, turns, fold, memory, mma, piece, math, flow)"
    )


def test_1_a_type_of_another_level() -> None:
    constant = _one()
    fill = math.Fill(constant.out, Tile(S32, (16,)))
    assert _messages(_module(constant, fill, level="cta")) == [
        "type tile<s32, 16> does not belong to the level"
    ]


def test_1_a_type_of_another_level_on_a_region_argument() -> None:
    role = cta.Role("r", 0, 4, 4, Region([Value(Bits("b32", 1), "g")]))
    assert "type bits<b32, 1> does not belong to the level" in _messages(_module(role, level="cta"))


def test_2_a_value_used_before_it_is_defined() -> None:
    constant = _one()
    assert any(
        "is used before it is defined" in m
        for m in _messages(_module(math.Neg(constant.out), constant))
    )


def test_2_a_value_of_an_inner_region_used_behind_it() -> None:
    constant, inner = _one(), _one()
    loop = flow.For(constant.out, constant.out, constant.out, (), body=Region())
    index = loop.body.add_arg(Scalar(S32), "i")
    loop.body.ops.extend([inner, flow.Yield()])
    for value in (index, inner.out):
        assert any(
            "is used before it is defined" in m
            for m in _messages(_module(constant, loop, math.Neg(value)))
        )


def test_3_a_result_of_another_type_than_the_operands_give() -> None:
    constant = _one()
    negated = math.Neg(constant.out)
    negated.out.type = Scalar(F32)
    (message,) = _messages(_module(constant, negated))
    assert "the operands give" in message


def test_3_operands_from_which_nothing_can_be_inferred() -> None:
    constant = _one()
    negated = math.Neg(constant.out)
    constant.out.type = Bits("b32", 1)
    assert "bits<b32, 1> has no elements to compute on" in _messages(_module(constant, negated))


def test_4_a_terminator_in_the_middle() -> None:
    constant = _one()
    loop = flow.For(constant.out, constant.out, constant.out, (), body=Region())
    loop.body.add_arg(Scalar(S32), "i")
    loop.body.ops.extend([flow.Yield(), _one(), flow.Yield()])
    assert _messages(_module(constant, loop)) == [
        "a terminator stands before the end of its region"
    ]


def test_5_a_size_symbol_left_at_level_cta() -> None:
    symbolic = cta.Coordinates(0, Register(S32, ("$i",), Layout.parse("(lane: i1)")))
    assert any("$i" in m for m in _messages(_module(symbolic, level="cta")))


def test_6_what_an_op_itself_objects_to() -> None:
    constant = _one()
    compare = math.Compare(constant.out, constant.out, "near")
    assert _messages(_module(constant, compare)) == [
        "relation near is none of lt, le, gt, ge, eq, ne"
    ]
    where = math.Where(constant.out, constant.out, constant.out)
    assert f"the condition has type s32, {BOOL} is needed" in _messages(_module(constant, where))


def test_7_the_protocol() -> None:
    text = (
        "tir 1 level cta target sm_90a\n"
        "kernel @k {threads = 128} {\n"
        "  cta.role() {label = r, first = 0, warps = 4, group = 4} { |%g: s32|\n"
        "    cta.sync(%g) {barrier = 0, threads = 128}\n  }\n}\n"
    )
    (message,) = _messages(parse_module(text))
    assert "1 to 15 may be used" in message


def test_7_the_protocol_is_left_alone_where_something_else_is_wrong() -> None:
    constant = _one()
    role = cta.Role("r", 0, 4, 4, Region())
    messages = _messages(_module(constant, math.Compare(constant.out, constant.out, "near"), role))
    assert not any("threads" in m for m in messages)


def test_all_faults_are_collected_each_with_its_line() -> None:
    constant = _one()
    broken = [math.Compare(constant.out, constant.out, name) for name in ("near", "far")]
    broken[1].loc = Loc(12, 5)
    with pytest.raises(VerifyError) as caught:
        verify(_module(constant, *broken), after="simplify")
    assert caught.value.lines == [5, 6]
    assert str(caught.value).splitlines() == [
        "the IR is not valid after simplify",
        "  line 5: math.compare: relation near is none of lt, le, gt, ge, eq, ne",
        "  line 6: math.compare: relation far is none of lt, le, gt, ge, eq, ne (source line 12)",
    ]
