"""When a warning says that Spark's own connections are not protected."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.spark import plain_rpc as module
from anabranch.spark.plain_rpc import plain_rpc, warn_of_plain_rpc

AUTHENTICATED = {"spark.authenticate": "true"}
AES = {"spark.network.crypto.enabled": "true"}
TLS = {"spark.ssl.rpc.enabled": "TRUE"}


@pytest.mark.parametrize("settings", [AUTHENTICATED | AES, AUTHENTICATED | TLS])
def test_protected(settings: dict[str, str]) -> None:
    assert plain_rpc(settings.get) is None


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "spark.authenticate=true and spark.network.crypto.enabled=true;"),
        (AES, "with spark.authenticate=true;"),
        (AUTHENTICATED, "with spark.network.crypto.enabled=true;"),
        (AUTHENTICATED | {"spark.ssl.rpc.enabled": "false"}, "spark.network.crypto.enabled=true;"),
    ],
)
def test_what_is_missing_is_said(settings: dict[str, str], said: str) -> None:
    assert said in str(plain_rpc(settings.get))


def context(master: str, application: str) -> Any:
    return SimpleNamespace(
        master=master,
        applicationId=application,
        getConf=lambda: SimpleNamespace(get=lambda name, default: default),
    )


def test_it_is_said_once_and_only_on_a_cluster(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_warned", set())
    with caplog.at_level(logging.WARNING):
        warn_of_plain_rpc(context("local[2]", "app-1"))
        assert not caplog.records
        warn_of_plain_rpc(context("spark://driver:7077", "app-2"))
        warn_of_plain_rpc(context("spark://driver:7077", "app-2"))
        assert len(caplog.records) == 1
        warn_of_plain_rpc(context("yarn", "app-3"))
        assert len(caplog.records) == 2
