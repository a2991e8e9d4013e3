"""What is counted of rows at sites: once for each batch, by where lanes and workers were."""

from __future__ import annotations

from anabranch.coordinator.site_traffic import LanePlaces, SiteTraffic, lane_host
from anabranch.model.host import DRIVER
from anabranch.model.ids import HostId, WorkerId
from anabranch.processor.sites import Sites
from anabranch.protocol.epochs import TransactionReport
from anabranch.transport.messages.lanes import TransactionDone

SITES = Sites.first(["berlin", "paris"], 64)
BERLIN, PARIS, ROME = (SITES.groups_of(site) for site in ("berlin", "paris", "rome"))
H1, H2 = HostId("h1"), HostId("h2")
AT = {WorkerId("w1"): H1, WorkerId("w2"): H2}
HOMES = {BERLIN[0]: [H1], PARIS[0]: [H1]}


def done(worker: str, rows: dict[int, int], size: int) -> TransactionDone:
    report = TransactionReport(worker, tuple(rows), None)
    return TransactionDone(report, {}, tuple(rows.values()), size)


def test_bytes_are_shared_out_by_rows_and_by_where_they_went() -> None:
    traffic = SiteTraffic(SITES)
    at_home = done("w1", {BERLIN[0]: 2, BERLIN[1]: 1, 60: 0}, 300)
    away = done("w2", {PARIS[0]: 1, ROME[0]: 3}, 400)
    traffic.begin()
    traffic.finish(0, [at_home, away], LanePlaces(H1, AT, HOMES))
    assert traffic.describe()["share_away"] is None  # the batch does not exist yet
    traffic.commit()
    shown = traffic.describe()
    assert shown["sites"]["berlin"] == {
        "rows": 3,
        "bytes": 300,
        "bytes_across_hosts": 0,
        "bytes_away": 0,
    }
    assert shown["sites"]["paris"] == {
        "rows": 1,
        "bytes": 100,
        "bytes_across_hosts": 100,
        "bytes_away": 100,
    }
    assert shown["undeclared"]["rows"] == 3
    assert shown["undeclared"]["bytes_away"] == 0  # it belongs nowhere
    assert shown["share_across_hosts"] == round(400 / 700, 4)
    assert shown["share_away"] == round(100 / 700, 4)


def test_a_lane_or_batch_that_runs_again_counts_once() -> None:
    traffic = SiteTraffic(SITES)
    rows = [done("w1", {BERLIN[0]: 1}, 10)]
    for _ in range(2):
        traffic.begin()
        traffic.finish(0, rows, LanePlaces(None, AT, HOMES))
        traffic.finish(0, rows, LanePlaces(None, AT, HOMES))
    traffic.commit()
    traffic.commit()
    assert traffic.describe()["sites"]["berlin"]["rows"] == 1
    assert traffic.describe()["share_across_hosts"] == 1.0  # nobody knows where the lane was


def test_a_lane_finds_its_host() -> None:
    addresses = {H1: "10.0.0.1", H2: "10.0.0.2"}
    assert lane_host(("10.0.0.1", "node-1"), addresses) == H1
    assert lane_host(("10.0.0.7", "h2"), addresses) == H2
    assert lane_host(("10.0.0.7", "node-7"), addresses) is None
    assert lane_host(("127.0.0.1", "laptop"), {}) == DRIVER
