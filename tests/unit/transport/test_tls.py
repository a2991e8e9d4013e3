"""When calls are encrypted, and what the certificates of a service are."""

from __future__ import annotations

import builtins
import logging
import pickle
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from anabranch.errors import InvalidArgument
from anabranch.processes.worker_config import WorkerConfig
from anabranch.transport.auth import Credentials
from anabranch.transport.tls import SERVICE_NAME, authority_for, is_loopback, make_authority

BEYOND = "192.0.2.1"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "127.255.0.9", "::1", "localhost"])
def test_loopback_needs_no_certificate(host: str) -> None:
    assert is_loopback(host)
    assert authority_for([host], None) is None


@pytest.mark.parametrize("host", [BEYOND, "0.0.0.0", "::", "10.1.2.3", "", "no-such-host.invalid"])
def test_whatever_others_may_reach_does(host: str) -> None:
    assert not is_loopback(host)
    assert authority_for(["127.0.0.1", host], None) is not None


def test_the_user_decides(caplog: pytest.LogCaptureFixture) -> None:
    assert authority_for(["127.0.0.1"], True) is not None
    assert authority_for(["127.0.0.1"], False) is None
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        assert authority_for([BEYOND], False) is None
    assert BEYOND in caplog.text
    assert "without encryption" in caplog.text


def without_cryptography(monkeypatch: pytest.MonkeyPatch) -> None:
    known = builtins.__import__

    def look(name: str, *rest: Any) -> Any:
        if name.split(".")[0] == "cryptography":
            raise ImportError(name)
        return known(name, *rest)

    monkeypatch.setattr(builtins, "__import__", look)


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    without_cryptography(monkeypatch)
    with pytest.raises(InvalidArgument, match=r"pip install 'anabranch\[tls\]'.*tls=False"):
        authority_for([BEYOND], None)
    with pytest.raises(InvalidArgument, match=r"anabranch\[tls\]"):
        authority_for(["127.0.0.1"], True)
    assert authority_for(["127.0.0.1"], None) is None
    assert authority_for([BEYOND], False) is None


def test_the_certificate_is_signed_by_an_authority_of_its_own() -> None:
    first, second = make_authority(), make_authority()
    signer = x509.load_pem_x509_certificate(first.pem)
    shown = x509.load_pem_x509_certificate(first.certificate.pem)
    shown.verify_directly_issued_by(signer)
    with pytest.raises(ValueError, match="does not match"):  # no two of them have one name
        shown.verify_directly_issued_by(x509.load_pem_x509_certificate(second.pem))
    names = shown.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [SERVICE_NAME]
    assert not shown.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert shown.not_valid_before_utc.year == 1970  # a host may have no clock
    assert shown.not_valid_after_utc > datetime.now(timezone.utc) + timedelta(days=3000)
    assert first.certificate.key != second.certificate.key


def test_the_authoritys_own_key_is_not_kept() -> None:
    authority = make_authority()
    key = serialization.load_pem_private_key(authority.certificate.key, None)
    signer = x509.load_pem_x509_certificate(authority.pem)
    assert key.public_key() != signer.public_key()
    assert authority.pem.count(b"-----BEGIN") == authority.certificate.pem.count(b"-----BEGIN") == 1


def test_a_workers_configuration_carries_the_key_and_does_not_show_it() -> None:
    authority = make_authority()
    credentials = Credentials("token", authority.pem)
    where = "w1", "1", credentials, "127.0.0.1", "state"
    config = WorkerConfig(*where, 8, 4, certificate=authority.certificate)
    assert WorkerConfig.from_json(config.to_json()) == config
    assert "\n" not in config.to_json()
    assert pickle.loads(pickle.dumps(credentials)) == credentials
    shown = f"{config} {authority} {authority.certificate}"
    assert "PRIVATE" not in shown
    assert authority.certificate.key.splitlines()[1].decode() not in shown
