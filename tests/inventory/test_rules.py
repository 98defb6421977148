"""Lists of nodes and policies, without a database."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.inventory.catalogue import read_catalogue
from app.inventory.policy import AMOUNTS, COUNTS, LENGTHS, Policy, WrongPolicy, read_override
from app.inventory.rules import MAX_BYTES, MAX_FAULTS, MAX_ROWS, NodesRefused, kind_words, parse_nodes

WORDS = kind_words(read_catalogue())
HEAD = "name,kind,gpus,rack,leaf,nvlink,power_watts,cpu_milli,memory_mib\n"


def refused(text: str | bytes) -> NodesRefused:
    with pytest.raises(NodesRefused) as caught:
        parse_nodes(text, WORDS)
    return caught.value


def test_the_public_form_leaves_out_nodes_without_units() -> None:
    text = "sn,cpu_milli,memory_mib,gpu,model\na,32000,262144,0,\nb,64000,262144,2,P100\nc,96000,393216,8,G2\n"
    listed = parse_nodes(text, WORDS)
    assert [(n.line, n.name, n.kind, n.gpus, n.cpu_milli, n.memory_mib, n.rack) for n in listed.nodes] == [
        (3, "b", "p100", 2, 64000, 262144, None),
        (4, "c", "g2", 8, 96000, 393216, None),
    ]
    assert listed.skipped == 1


def test_our_own_form_in_any_order_with_what_is_known() -> None:
    listed = parse_nodes('gpus,name,kind,rack\n8,"n-1",NVIDIA-H100-80GB-HBM3,"row 1, rack 2"\n4,n-2,MI300X,\n', WORDS)
    assert [(n.name, n.kind, n.gpus, n.rack) for n in listed.nodes] == [
        ("n-1", "h100-sxm-80gb", 8, "row 1, rack 2"),
        ("n-2", "mi300x-192gb", 4, None),
    ]
    assert listed.columns == ("gpus", "name", "kind", "rack")


def test_byte_order_mark_line_ends_quotes_and_empty_lines() -> None:
    plain = parse_nodes(HEAD + "a,h100,8,r1,,,700,,\nb,h100,8,r1,,,,,\n", WORDS)
    odd = parse_nodes(
        b"\xef\xbb\xbf"
        + (HEAD + '"a","h100","8","r1","","","700","",""\n\n,,,,,,,,\nb,h100,8,r1,,,,,').replace("\n", "\r\n").encode(),
        WORDS,
    )
    assert [(n.name, n.gpus, n.rack, n.power_watts) for n in odd.nodes] == [
        (n.name, n.gpus, n.rack, n.power_watts) for n in plain.nodes
    ]


def test_all_faults_at_once_each_with_its_line() -> None:
    text = (
        HEAD
        + "a,h100,8,,,,,,\nb,h10,8,,,,,,\na,h100,8,,,,,,\nd d,h100,0,,,,,,\ne,,8,,,,-5,,\nf,h100\ng,h100,65,,,,,1e3,\n"
    )
    found = refused(text)
    assert [(f.line, f.column) for f in found.faults] == [
        (3, "kind"),
        (4, "name"),
        (5, "gpus"),
        (5, "name"),
        (6, "kind"),
        (6, "power_watts"),
        (7, ""),
        (8, "cpu_milli"),
        (8, "gpus"),
    ]
    assert "h100-sxm-80gb" in found.faults[0].message
    assert "line 2" in found.faults[1].message
    assert len(found.reasons) == 9
    assert found.detail == "The list of nodes has 9 faults. Nothing was changed."


def test_a_quoted_line_break_does_not_shift_the_numbers() -> None:
    found = refused(HEAD + 'a,h100,8,"r\n1",,,,,\nb,wrong-kind,8,,,,,,\n')
    assert [(f.line, f.column) for f in found.faults] == [(2, "rack"), (4, "kind")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        (HEAD, "names no node"),
        ("sn,cpu_milli,memory_mib,gpu,model\na,1,1,0,\n", "1 lines have no GPU"),
        ("name;kind;gpus\na;h100;8\n", "There is no column"),
        ("name,kind\na,h100\n", "The column “gpus” is missing"),
        ("name,kind,gpus,name\na,h100,8,a\n", "stands twice"),
        (HEAD + 'a,"h100,8,,,,,,\n', "This is not CSV from here on"),
        (HEAD.encode() + "a,h100,8,Gebäude,,,,,\n".encode("latin-1"), "is not UTF-8"),
        (HEAD.encode() + b"a,h100,8," + b"x" * MAX_BYTES + b",,,,,\n", "bytes"),
        (HEAD + "a,h100,8,\x07,,,,,\n", "printable"),
        ("sn,cpu_milli,memory_mib,gpu,model\na,1,1,2,\n", "A node with 2 GPUs needs a kind"),
    ],
)
def test_what_is_no_list_is_told_in_a_sentence(text: str | bytes, words: str) -> None:
    assert any(words in f.message for f in refused(text).faults), refused(text).faults


def test_limits_of_rows_and_of_faults_shown() -> None:
    many = "".join(f"n{i},h100,8,,,,,,\n" for i in range(MAX_ROWS + 1))
    assert "more than 50,000" in refused(HEAD + many).faults[0].message
    wrong = "".join(f"n{i},nonsense{i},8,,,,,,\n" for i in range(300))
    found = refused(HEAD + wrong)
    assert (len(found.faults), found.count) == (MAX_FAULTS, 300)
    assert "The first 50 are listed" in found.detail


@given(st.one_of(st.text(max_size=300), st.binary(max_size=300), st.text(max_size=200).map(lambda t: HEAD + t)))
def test_any_input_is_a_list_or_is_refused(text: str | bytes) -> None:
    try:
        nodes = parse_nodes(text, WORDS).nodes
    except NodesRefused as refusal:
        nodes = ()
        refused_with = len(refusal.faults)
    else:
        refused_with = 0
    assert (refused_with > 0) != (len(nodes) > 0)
    assert all(1 <= n.gpus <= 64 and n.kind in WORDS.values() for n in nodes)


def test_the_catalogue_has_what_the_product_speaks_of() -> None:
    kinds = {kind.slug: kind for kind in read_catalogue()}
    assert {
        "h100-sxm-80gb",
        "h200-sxm-141gb",
        "mi300x-192gb",
        "g2",
        "g3",
        "t4",
        "p100",
        "v100m16",
        "v100m32",
        "a10",
    } <= set(kinds)
    assert kinds["h100-sxm-80gb"].tdp_watts == 700
    assert kinds["g2"].memory_gb is None
    assert all(kind.facts["source"] and kind.facts["confidence"] for kind in kinds.values())
    assert len(WORDS) == len(
        {w for k in kinds.values() for w in {k.slug, k.name.lower(), *(a.lower() for a in k.aliases)}}
    )


def test_a_policy_says_only_what_is_not_default() -> None:
    assert Policy.of({}) == Policy()
    assert Policy().words() == {}
    words = {"grid": 1, "max_extension": 3600, "observed_within": 120}
    assert Policy.of(words, 30).words() == words
    assert Policy.of(words, 30).gap == timedelta(seconds=30)


def test_every_rule_of_a_pool_comes_back_as_it_was_said() -> None:
    lengths = {name: int(least.total_seconds()) + 3600 for name, (least, _) in LENGTHS.items() if name != "gap"}
    words = {
        **lengths,
        "horizon": 864_000,
        "no_show": 7200,
        **{name: least + 1 for name, (least, _) in COUNTS.items()},
        **dict.fromkeys(AMOUNTS, "1500.50"),
        "approver": "lead",
        "who": "named",
        "open": False,
        "requests_hold": False,
    }
    assert set(words) | {"gap"} == {f.name for f in fields(Policy)}
    policy = Policy.of(words)
    assert policy.words() == words
    assert Policy.of(json.loads(json.dumps(policy.words()))) == policy


def test_words_of_a_tenant_are_laid_over_the_pools() -> None:
    pool = Policy.of({"max_length": 8 * 3600, "approval_money": 1000, "who": "named"}, 60)
    assert not pool.may_book
    # what is the default elsewhere is still said here, and nothing takes a limit away
    laid = pool.under({"max_length": 604_800, "approval_money": None, "open": True})
    assert (laid.max_length, laid.approval_money, laid.may_book) == (timedelta(days=7), None, True)
    assert laid.gap == pool.gap
    assert pool.under({}) is pool
    assert read_override({"max_length": 3600}, pool).max_length == timedelta(hours=1)
    with pytest.raises(WrongPolicy) as wrong:
        read_override({"who": "all", "min_length": 9 * 3600, "grid": None}, pool)
    assert len(wrong.value.faults) == 3
    # true is not one second, whichever of them was read first
    assert Policy.of({"grid": 1}).grid == timedelta(seconds=1)
    with pytest.raises(WrongPolicy):
        Policy.of({"grid": True})


@pytest.mark.parametrize(
    ("words", "faults"),
    [
        ({"colour": 1}, 1),
        ({"grid": "15"}, 1),
        ({"grid": True}, 1),
        ({"grid": 0, "lead": -1}, 2),
        ({"min_length": 7200, "max_length": 3600}, 1),
        ({"horizon": 86_400}, 1),
        ({"approval_money": 1.5, "no_show_fee": "much", "approver": "me", "who": []}, 4),
        ({"open": 1, "skips": -1, "gap": 60, "lead": None}, 4),
        ({"no_show": 600, "idle_release": 60}, 2),
        ({"no_show": None, "idle_warn": None, "max_extension": None, "open": None}, 0),
    ],
)
def test_every_fault_of_a_policy_at_once(words: dict, faults: int) -> None:
    try:
        Policy.of(words)
        found: tuple[str, ...] = ()
    except WrongPolicy as wrong:
        found = wrong.faults
    assert len(found) == faults
