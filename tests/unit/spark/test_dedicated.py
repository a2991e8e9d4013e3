"""Executors for agents alone: what users may write, and what an agent there is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pyspark import SparkConf

from anabranch.errors import InvalidArgument
from anabranch.model.host import HostFacts
from anabranch.model.ids import HostId
from anabranch.processes.agent_config import AgentConfig
from anabranch.spark.dedicated import ANYWHERE, at_host, check_dedicated
from anabranch.spark.hosts import SparkHosts
from anabranch.transport.auth import Credentials

CONFIG = AgentConfig("c:1", Credentials("secret"), HostFacts(ANYWHERE, 2, {}, 1 << 30))


class Context:
    """Of which only the settings are asked for."""

    def __init__(self, **settings: str) -> None:
        self._conf = SparkConf(loadDefaults=False)
        for name, value in settings.items():
            self._conf.set(name.replace("_", "."), value)

    def getConf(self) -> SparkConf:
        return self._conf


def test_an_agent_gets_the_name_and_the_labels_of_its_host() -> None:
    labels = {"h1": {"rack": "3"}, "h2": {"rack": "4"}}
    found = at_host(CONFIG, HostId("h2"), labels)
    assert found == replace(CONFIG, facts=HostFacts(HostId("h2"), 2, {"rack": "4"}, 1 << 30))
    assert at_host(CONFIG, HostId("h9"), labels).facts.labels == {}
    assert at_host(CONFIG, None, labels).facts.host != ANYWHERE


def test_without_dynamic_allocation_it_is_refused() -> None:
    context: Any = Context()
    with pytest.raises(InvalidArgument, match=r"Set spark.dynamicAllocation.enabled=true"):
        SparkHosts(dedicated=2).bind(context)
    context = Context(spark_dynamicAllocation_enabled="true")
    check_dedicated(context)


@pytest.mark.parametrize("wrong", [0, -1, True, "2"])
def test_wrong_numbers(wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match="dedicated must be a whole number from 1"):
        SparkHosts(dedicated=wrong)


def test_hosts_and_dedicated_say_the_same() -> None:
    with pytest.raises(InvalidArgument, match="Give hosts or dedicated"):
        SparkHosts(hosts=2, dedicated=2)
