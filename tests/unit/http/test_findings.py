"""What is said to somebody on call, for pictures that ask for it; and silence for others."""

from __future__ import annotations

from typing import Any

from anabranch.http.findings import BAD, NOTE, WARNING, Finding, Picture, findings

NOW = 10_000.0
UP = {"status": "up"}


def picture(**fields: Any) -> Picture:
    """Two workers, one operator with a steady rhythm, nothing to say."""
    status = {
        "workers": {"w1": UP, "w2": UP},
        "operators": {"totals": operator()},
        "reconfiguration": None,
        **fields.pop("status", {}),
    }
    return Picture(NOW, status, **fields)


def operator(seconds: float = 0.2, last: float = 0.2, ago: float = 1.0, **stats: int) -> Any:
    """Twenty batches, one a second; the last three took so long."""
    took = [seconds] * 17 + [last] * 3
    ended = [NOW - ago - (len(took) - 1 - at) for at in range(len(took))]
    batches = [
        {"epoch": at, "started": end - each, "seconds": each, "stats": stats}
        for at, (each, end) in enumerate(zip(took, ended, strict=True))
    ]
    return {"last_epoch": len(took) - 1, "batches": batches}


def only(found: list[Finding]) -> Finding:
    (finding,) = found
    return finding


def died(worker: str, ago: float) -> dict[str, Any]:
    text = "process 7 ended (killed by signal 9)"
    return {"kind": "worker-ended", "time": NOW - ago, "worker": worker, "text": text}


def test_nothing_to_say() -> None:
    assert findings(picture()) == []
    assert findings(picture(shares={"w1": {"applying": 0.4}, "w2": {"applying": 0.1}})) == []


def test_skew_names_the_key_groups_and_what_to_do() -> None:
    groups = [{"group": group, "owner": "w1", "rows": 1} for group in range(30)]
    groups[17]["rows"] = groups[23]["rows"] = 40
    groups += [{"group": 40, "owner": "w2", "rows": 30}]
    shares = {"w1": {"applying": 0.9, "writing": 0.04}, "w2": {"applying": 0.31}}
    found = only(findings(picture(shares=shares, groups=groups)))
    assert found.severity == WARNING
    assert found.text == (
        "w1 is 94 % busy, the others 31 %; key groups 17 and 23 carry 58 % of the rows."
    )
    assert (found.action, found.command) == ({"kind": "rebalance"}, "rebalance")


def test_skew_without_hot_key_groups() -> None:
    shares = {"w1": {"applying": 0.9}, "w2": {"applying": 0.1}, "w3": {"applying": 0.3}}
    found = only(findings(picture(shares=shares)))
    assert found.text == "w1 is 90 % busy, the others 20 %."


def test_nothing_is_advised_while_key_groups_move() -> None:
    shares = {"w1": {"applying": 0.9}, "w2": {"applying": 0.1}}
    status = {"reconfiguration": {"strategy": "live", "progress": 0.5}}
    assert findings(picture(shares=shares, status=status)) == []


def test_full_workers_ask_for_more() -> None:
    shares = {"w1": {"applying": 0.9}, "w2": {"applying": 0.95}}
    found = only(findings(picture(shares=shares)))
    assert found.action == {"kind": "rescale", "workers": 3}
    assert found.command == "rescale 3"
    one = only(findings(picture(shares={"w1": {"applying": 1.0}}, status={"workers": {"w1": UP}})))
    assert one.text.startswith("w1, the only worker, is 100 % busy")
    assert one.action == {"kind": "rescale", "workers": 2}


def test_a_worker_that_is_away_comes_first() -> None:
    status = {
        "workers": {"w1": UP, "w2": {"status": "starting"}},
        "operators": {"totals": operator(last=3.0)},
    }
    found = findings(picture(status=status, entries=[died("w2", 3)]))
    assert [each.severity for each in found] == [BAD, WARNING]
    assert found[0].text == (
        "w2 is starting, not in service. Process 7 ended (killed by signal 9). "
        "Batches that need it wait."
    )


def test_a_worker_that_was_replaced_is_a_note_until_it_happens_again_and_again() -> None:
    once = only(findings(picture(entries=[died("w2", 120)])))
    assert once.severity == NOTE
    assert once.text.startswith("w2 died 2 min ago and was replaced. Process 7 ended")
    often = only(findings(picture(entries=[died("w2", ago) for ago in (300, 200, 100)])))
    assert (often.severity, often.kind) == (BAD, "worker-keeps-dying")
    assert findings(picture(entries=[died("w2", 3600)])) == []


def test_slow_batches_say_what_takes_the_time() -> None:
    status = {"operators": {"totals": operator(last=3.0, load_ms=2500, apply_ms=100)}}
    found = only(findings(picture(status=status)))
    assert found.text == (
        "Batches of totals take 3.0 s, usually 200 ms, most of it waiting for state that is "
        "elsewhere."
    )
    vague = only(findings(picture(status={"operators": {"totals": operator(last=3.0)}})))
    assert vague.text == "Batches of totals take 3.0 s, usually 200 ms."


def test_a_query_that_has_gone_silent() -> None:
    found = only(findings(picture(status={"operators": {"totals": operator(ago=120.0)}})))
    assert found.text == (
        "totals committed its last batch 2 min ago; before, one came every 1.0 s. No batch has "
        "begun since."
    )
    shown = operator(ago=120.0)
    shown["batches"].append({"epoch": 99, "started": NOW - 90, "seconds": None, "stats": {}})
    found = only(findings(picture(status={"operators": {"totals": shown}})))
    assert found.text.endswith("One batch is under way.")


def test_a_failed_batch_matters_until_it_has_succeeded() -> None:
    failed = {
        "kind": "batch-failed",
        "time": NOW - 5,
        "operator": "totals",
        "epoch": 20,
        "text": "division\n by zero",
    }
    found = only(findings(picture(entries=[failed])))
    assert (found.severity, found.text) == (
        BAD,
        "Batch 20 of totals failed 5 s ago: Division by zero.",
    )
    later = only(findings(picture(entries=[{**failed, "epoch": 19}])))
    assert (later.severity, later.text.endswith("A later attempt succeeded.")) == (NOTE, True)


def test_late_rows_and_a_journal_that_loses_entries() -> None:
    status = {"operators": {"totals": operator(rows_dropped_late=5, rows_input=100)}}
    lost = {"kind": "entries-lost", "time": NOW - 5, "rows": 12}
    journal, late = findings(picture(status=status, entries=[lost]))
    assert journal.text.startswith("The journal lost 12 entries")
    assert late.text == (
        "totals dropped 100 rows behind the watermark in the last 20 batches, 5 % of its rows."
    )
