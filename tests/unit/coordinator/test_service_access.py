"""Tokens and certificates of one run of a service."""

from __future__ import annotations

import pytest

from anabranch.coordinator.service_access import ServiceAccess
from anabranch.errors import AccessRefused
from anabranch.transport.introduction import token_id
from anabranch.transport.messages.hosts import Introduce


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1"])
def test_what_listens_beyond_loopback_encrypts(host: str) -> None:
    access = ServiceAccess([host], None)
    assert access.is_exposed
    assert access.certificate is not None
    assert access.of_workers() == {
        "credentials": access.credentials,
        "certificate": access.certificate,
    }
    assert access.credentials.certificates == access.join().certificates is not None


def test_on_loopback_nothing_changes() -> None:
    access = ServiceAccess(["127.0.0.1"], None)
    assert not access.is_exposed
    assert access.certificate is None
    assert access.credentials.certificates is None


def test_each_run_has_others() -> None:
    first, second = (ServiceAccess(["127.0.0.1"], True) for _ in range(2))
    assert first.credentials.token != second.credentials.token
    assert first.certificate != second.certificate
    assert first.join().token != first.join().token


def test_it_introduces_itself_to_those_who_can_name_a_token() -> None:
    access = ServiceAccess(["127.0.0.1"], True)
    given = access.join("a token")
    assert access.introduce(Introduce(token_id("a token"), "1")).authority == given.certificates
    access.revoke_join_tokens()
    with pytest.raises(AccessRefused, match="revoked"):
        access.introduce(Introduce(token_id("a token"), "1"))
