"""What can happen to a host, as a function of the scene; each ends with all cables healed."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.cluster.leftovers import listening
from tests.cluster.scene import AFTER_TIMEOUT, HOST_TIMEOUT, HOSTS, SMALL_DISK, WORKER, Scene

LIMIT = HOST_TIMEOUT + AFTER_TIMEOUT
"""Seconds after which batches must go on while a healthy host is left."""

WALL_LIMIT = 30.0
"""Nobody is lost, so nobody is told: a lane waits for a silence of 10 s and two probes of 4 s."""
BATCH_SECONDS = 0.5
"""A batch of each query begins so often."""
SHORT_CUT = 0.4 * HOST_TIMEOUT
MAY_FAIL = ("stop-restart",)
"""Strategies whose move fails if a process does not come back; the query goes on."""

FULL_SECONDS = 30.0
NEARLY_NOTHING = 64 << 10
"""Others may free a page or two."""

NEW_EXECUTORS_SECONDS = 120.0
"""When all of Spark's executors were lost: new ones start cold, all at once."""


def cut_off_during_a_move(scene: Scene, strategy: str) -> None:
    """Never healed: its workers own key groups, lanes run on it, and a move is under way."""
    scene.check_is_used("h1")
    asked = time.time()
    move = scene.begin_move(strategy)
    cut = scene.cut_during(move, "h1")
    scene.batches_go_on(cut, LIMIT)
    scene.wait_until_lost("h1")
    scene.wait_fenced("h1")
    report = scene.report(move)
    assert report["seconds"] > cut - asked, "It has ended before the cut."
    assert report["outcome"] == "done" or strategy in MAY_FAIL, report["outcome"]
    scene.batches_go_on(time.time(), LIMIT)
    assert "h1" not in scene.hosts_of_workers().values()


def healed_before_the_lease(scene: Scene) -> None:
    """Too short to be noticed: nobody is lost."""
    scene.check_is_used("h1")
    start, workers = time.time(), set(scene.worker_processes("h1"))
    scene.network.cut("h1")
    time.sleep(SHORT_CUT)
    scene.network.heal("h1")
    gap = scene.batches_go_on(start, LIMIT)
    assert gap > SHORT_CUT - BATCH_SECONDS, "Nobody has missed it."
    assert "h1" in scene.hosts_there()
    assert workers <= set(scene.worker_processes("h1")), "A worker was replaced."


def healed_after_the_lease(scene: Scene) -> None:
    """Its workers have been replaced; what comes back must not do harm."""
    scene.check_is_used("h1")
    start = time.time()
    scene.network.cut("h1")
    _must_have_struck(scene.batches_go_on(start, LIMIT))
    scene.wait_until_lost("h1")
    scene.network.heal("h1")
    scene.batches_go_on(time.time(), LIMIT)


def flapping(scene: Scene) -> None:
    """Cuts shorter and longer than the lease."""
    scene.check_is_used("h1")
    start = time.time()
    for cut, healed in ((3.0, 1.0), (6.0, 1.0), (2.0, 2.0), (HOST_TIMEOUT + 2, 3.0), (4.0, 1.0)):
        scene.network.cut("h1")
        time.sleep(cut)
        scene.network.heal("h1")
        time.sleep(healed)
    _must_have_struck(scene.batches_go_on(start, time.time() - start + LIMIT))


def nothing_comes_in(scene: Scene) -> None:
    """It talks, and hears nothing."""
    _half_cut(scene, "in")


def nothing_goes_out(scene: Scene) -> None:
    """It hears, and nobody hears it."""
    _half_cut(scene, "out")


def _half_cut(scene: Scene, direction: str) -> None:
    scene.check_is_used("h1")
    start = time.time()
    scene.network.cut("h1", direction)
    _must_have_struck(scene.batches_go_on(start, LIMIT))
    scene.network.heal("h1")
    scene.batches_go_on(time.time(), LIMIT)


def _must_have_struck(gap: float) -> None:
    """Nobody knows of a silent host before its lease ends, so batches have waited for it."""
    assert gap > HOST_TIMEOUT / 2, f"Batches went on after {gap:.1f} s: nobody has missed h1."


def slow_and_lossy(scene: Scene) -> None:
    """300 ms and 5 % loss, both ways: no reason to lose it, and no harm."""
    scene.check_is_used("h1")
    for name in ("h1", "driver"):
        scene.network.delay(name, 0.15)
        scene.network.lose(name, 0.05)
    start = time.time()
    time.sleep(2 * HOST_TIMEOUT)
    gap = scene.batches_go_on(start, 60.0)
    assert gap > BATCH_SECONDS + 0.3, "Batches have not become slower."
    assert "h1" in scene.hosts_there()
    for name in ("h1", "driver"):
        scene.network.heal(name)
    scene.batches_go_on(time.time(), LIMIT)


def driver_cut_off(scene: Scene) -> None:
    """All hosts fence themselves; when the driver is back, they come again."""
    scene.network.cut("driver")
    for host in ("h1", "h2", "h3"):
        scene.wait_fenced(host)
    time.sleep(5.0)
    scene.network.heal("driver")
    scene.batches_go_on(time.time(), NEW_EXECUTORS_SECONDS)


def hung(scene: Scene) -> None:
    """SIGSTOP of all processes; later it wakes up, and believes that nothing has happened."""
    scene.check_is_used("h1")
    start = time.time()
    h1 = scene.network.hosts["h1"]
    h1.hang()
    _must_have_struck(scene.batches_go_on(start, LIMIT))
    time.sleep(2.0)
    before = scene.worker_processes("h1")
    assert before, "Nobody can have ended them."
    h1.go_on()
    scene.wait_until(
        "workers of before are gone", lambda: not {*before} & {*scene.worker_processes("h1")}, 20
    )
    scene.batches_go_on(time.time(), LIMIT)


def worker_killed(scene: Scene) -> None:
    """kill -9 of a worker: its host is well, and has another one."""
    scene.check_is_used("h1")
    start = time.time()
    killed = set(scene.network.hosts["h1"].kill(WORKER))
    assert killed
    scene.batches_go_on(start, LIMIT)
    assert "h1" in scene.hosts_there()
    assert set(scene.worker_processes("h1")) - killed, "There is no other worker."


def disk_full(scene: Scene) -> None:
    """Of one host, for long; the location is elsewhere, and so is what is safe."""
    host = scene.network.hosts[SMALL_DISK]
    scene.check_is_used(SMALL_DISK)
    start = time.time()
    host.fill_disk()
    for _ in range(round(FULL_SECONDS)):
        assert host.free_bytes() < NEARLY_NOTHING, "The disk is not full."
        time.sleep(1.0)
    scene.batches_go_on(start, FULL_SECONDS)
    host.free_disk()
    scene.batches_go_on(time.time(), LIMIT)


def some_lanes_do_not_reach_a_host(scene: Scene) -> None:
    """A firewall between two hosts: another worker passes rows on, and nobody is replaced."""
    before = scene.restarts()
    _walled_off(scene, "h1")
    assert scene.hosts_there() == set(HOSTS)
    assert scene.restarts() == before, "A worker was replaced."
    assert set(scene.hosts_of_workers().values()) == set(HOSTS)


def most_lanes_do_not_reach_a_host(scene: Scene) -> None:
    """By votes its worker is replaced elsewhere, although the coordinator reaches it."""
    _walled_off(scene, "h1", "h3")
    scene.wait_until(
        "no worker is on h2", lambda: "h2" not in scene.hosts_of_workers().values(), LIMIT
    )
    assert "h2" in scene.hosts_there()


def _walled_off(scene: Scene, *others: str) -> None:
    """Others do not reach the workers of h2, and run tasks all the same."""
    scene.check_is_used("h2")
    for other in others:
        for port in listening(scene.network.hosts["h2"]):
            scene.network.wall(other, "h2", port)
    start, stopped = time.time(), scene.network.walled()
    scene.batches_go_on(start, WALL_LIMIT)
    for other in others:
        scene.check_is_used(other)
    assert scene.network.walled() > stopped, "Nobody has met the wall."


ALL: tuple[Callable[[Scene], None], ...] = (
    worker_killed,
    healed_before_the_lease,
    healed_after_the_lease,
    nothing_comes_in,
    nothing_goes_out,
    flapping,
    slow_and_lossy,
    driver_cut_off,
    hung,
    disk_full,
)

BETWEEN_HOSTS: tuple[Callable[[Scene], None], ...] = (
    some_lanes_do_not_reach_a_host,
    most_lanes_do_not_reach_a_host,
)
"""They need lanes on several hosts."""
