"""What a host says of itself."""

from __future__ import annotations

from anabranch.model.host import DRIVER, HostFacts


def test_a_host_may_run_any_number_of_workers_unless_it_says_so() -> None:
    facts = HostFacts(DRIVER)
    assert (facts.capacity, facts.labels, facts.memory_bytes) == (None, {}, None)
