"""An S3 store over HTTP that answers late, wrongly, in part or not at all."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from tests.faults.s3 import Proxy, proxy, server

from anabranch.durability import patient_storage as retries
from anabranch.durability.blobs import BlobStore
from anabranch.durability.store import StateStore
from anabranch.errors import (
    AnabranchError,
    CorruptState,
    InvalidArgument,
    LocationError,
    LocationNotWritable,
)

MULTIPART_BYTES = 25_000_000


@pytest.fixture
def spoiled() -> Iterator[Proxy]:
    with proxy() as running:
        yield running


def refused(call: Callable[[], object]) -> AnabranchError:
    with pytest.raises(AnabranchError) as caught:
        call()
    assert not isinstance(caught.value, CorruptState)
    return caught.value


@pytest.mark.parametrize("what", ["status", "drop", "lose"])
def test_what_passes_is_tried_again(spoiled: Proxy, what: str) -> None:
    store = BlobStore(spoiled.location())
    store.write("a/b", b"before")
    operations: list[tuple[Callable[[], object], object]] = [
        (lambda: store.write("a/b", [b"af", b"ter"]), None),
        (lambda: store.read("a/b").to_pybytes(), b"after"),
        (lambda: store.read_range("a/b", 1, 2).to_pybytes(), b"ft"),
        (lambda: store.size("a/b"), 5),
        (lambda: store.exists("a/c"), False),
        (lambda: store.list("a"), ["a/b"]),
        (lambda: store.entries(), ["a"]),
        (lambda: store.delete("a/b"), None),
        (lambda: store.list("a"), []),
    ]
    for operation, expected in operations:
        fault = spoiled.spoil(what, times=2)
        assert operation() == expected
        assert fault.hits == 2


@pytest.mark.parametrize(
    ("status", "code"),
    [(500, "InternalError"), (503, "ServiceUnavailable"), (429, "TooMany"), (409, "Aborted")],
)
def test_answers_that_mean_later(spoiled: Proxy, status: int, code: str) -> None:
    store = BlobStore(spoiled.location())
    fault = spoiled.spoil("status", status=status, code=code, times=2)
    store.write("f", b"1")
    assert fault.hits == 2


def test_half_an_answer_is_not_taken_for_the_whole(spoiled: Proxy) -> None:
    store = BlobStore(spoiled.location())
    content = bytes(range(256)) * 400
    store.write("f", content)
    fault = spoiled.spoil("cut", method="GET", times=2)
    assert store.read("f").to_pybytes() == content
    assert fault.hits == 2


def test_a_slow_store_is_waited_for(spoiled: Proxy) -> None:
    store = BlobStore(spoiled.location(request_timeout=1))
    store.write("f", b"1")
    spoiled.spoil("delay", seconds=0.5, times=99)
    assert store.read("f").to_pybytes() == b"1"
    spoiled.mend()
    # Silence is not waited for without end: the request is given up and sent again.
    stalled = spoiled.spoil("stall", method="GET", seconds=30)
    assert store.read("f").to_pybytes() == b"1"
    assert stalled.hits == 1


class Clock:
    """Stands still but for sleeps, which take no time and are noted."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def monotonic(self) -> float:
        return sum(self.slept)


def test_patience_has_an_end(
    spoiled: Proxy, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "anabranch.store")
    store = BlobStore(spoiled.location(retry_seconds=0.5))
    store.write("f", b"before")
    spoiled.spoil("status", times=999)
    for call in (lambda: store.write("f", b"after"), lambda: store.read("f")):
        clock = Clock()
        monkeypatch.setattr(retries, "time", clock)
        spoiled.seen.clear()
        error = refused(call)
        assert store.full_name("f") in str(error)
        assert f"({len(spoiled.seen)} tries in" in str(error)
        assert "Nothing is lost" in str(error)
        # Half a second of waits, which double: a busy store is not made busier.
        assert 0.5 <= sum(clock.slept) < 0.5 + clock.slept[-1]
        assert len(spoiled.seen) == len(clock.slept) + 1 in (5, 6)
    assert "try 2" in caplog.text
    spoiled.mend()
    assert store.read("f").to_pybytes() == b"before"


def test_waits_grow_are_random_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    monkeypatch.setattr(time, "monotonic", lambda: sum(waits))
    # The wall clock jumps to and fro: it must not matter.
    monkeypatch.setattr(time, "time", itertools.cycle([0.0, 1e9, -1e9]).__next__)
    runs = []
    for _ in range(2):
        waits.clear()
        store = BlobStore("s3://b/p?endpoint=http://127.0.0.1:1&anonymous=true&retry_seconds=60")
        assert "tries in" in str(refused(partial(store.read, "f")))
        runs.append(list(waits))
    for run in runs:
        assert 60 <= sum(run) <= 65
        assert all(wait <= retries.LONGEST_WAIT_SECONDS for wait in run)
        assert run[0] <= retries.FIRST_WAIT_SECONDS
        assert run[5] > run[1]
    assert runs[0] != runs[1]


def test_a_large_file_is_there_whole_or_as_before(spoiled: Proxy) -> None:
    store = BlobStore(spoiled.location(retry_seconds=0.2))
    large = b"z" * MULTIPART_BYTES
    store.write("f", b"before")
    for method, path in (("PUT", "partNumber=2"), ("POST", "?uploadId=")):
        spoiled.spoil("status", method=method, path=path, times=999)
        assert isinstance(refused(lambda: store.write("f", large)), LocationNotWritable)
        assert store.read("f").to_pybytes() == b"before"
        assert store.list() == ["f"]
        spoiled.mend()
    fault = spoiled.spoil("drop", path="partNumber=2")
    store.write("f", large)
    assert fault.hits == 1
    assert store.size("f") == MULTIPART_BYTES


def test_a_missing_bucket_is_named_at_once(spoiled: Proxy) -> None:
    error = refused(StateStore(spoiled.location(bucket="no-such-bucket")).open)
    assert isinstance(error, LocationNotWritable)
    assert "NO_SUCH_BUCKET" in str(error)
    assert "s3://no-such-bucket/" in str(error)
    assert "Create the bucket" in str(error)
    assert len([one for one in spoiled.seen if one.startswith("PUT")]) == 1


def test_bad_credentials_are_named_at_once_and_never_shown(spoiled: Proxy) -> None:
    allowed, reader = server().new_user("s3:*"), server().new_user("s3:GetObject", "s3:ListBucket")
    wrong = [
        {"access_key": "unknown-key", "secret_key": "hush-hush"},
        {**allowed, "secret_key": "hush-hush"},
        reader,
    ]
    with server().authenticating():
        StateStore(spoiled.location(**allowed)).open().close()
        for keys in wrong:
            spoiled.seen.clear()
            location = spoiled.location(**keys)
            error = refused(StateStore(location).open)
            assert isinstance(error, LocationError)
            assert "AWS_ACCESS_KEY_ID" in str(error)
            assert "s3:PutObject" in str(error)
            for secret in keys.values():
                assert secret not in str(error)
                assert secret not in repr(StateStore(location).blobs.location)
            assert spoiled.seen.count(spoiled.seen[-1]) == 1, "tried again"


@pytest.mark.parametrize(
    ("status", "code", "told"),
    [
        (403, "RequestTimeTooSkewed", "clock"),
        (400, "ExpiredToken", "new credentials"),
        (507, "StorageFull", "space"),
    ],
)
def test_other_refusals_say_what_to_do(spoiled: Proxy, status: int, code: str, told: str) -> None:
    store = BlobStore(spoiled.location())
    fault = spoiled.spoil("status", status=status, code=code, times=99)
    assert told in str(refused(lambda: store.write("f", b"1")))
    assert fault.hits == 1


@pytest.mark.parametrize(
    ("location", "told"),
    [
        ("s3://b/p?endpont=x", "unknown option 'endpont'"),
        ("s3://b/p?endpoint=ftp://x", "http://host:port"),
        ("s3://b/p?anonymous=perhaps", "true or false"),
        ("s3://b/p?endpoint=http://x&retry_seconds=soon", "seconds"),
        ("s3://b/p?endpoint=http://x&retry_seconds=-1", "seconds"),
        ("s3:///p", "bucket"),
        ("s3://key:hush-hush@b/p?endpont=x", "endpont"),
    ],
)
def test_mistakes_in_a_location_are_told(location: str, told: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        BlobStore(location)
    assert told in str(caught.value)
    assert "hush" not in str(caught.value)


def test_the_name_that_is_shown_has_no_secrets() -> None:
    given = "s3a://key:hush-hush@bucket/some%20where?endpoint=http://127.0.0.1:1&session_token=hush"
    store = BlobStore(given)
    assert store.location == "s3://bucket/some%20where"
    assert store.full_name("f") == "s3://bucket/some%20where/f"
    assert store.address == given
