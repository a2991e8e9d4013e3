"""What can go wrong with hosts: each fault is a function on the cluster, named with its weight."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from anabranch.model.host import DRIVER
from anabranch.model.ids import HostId
from anabranch.simulation.faults import any_process
from anabranch.simulation.links import NEVER

if TYPE_CHECKING:
    from anabranch.simulation.cluster import Cluster
    from anabranch.simulation.hosts import Hosts, SimulatedHost

CUT_TICKS, FLAP_TICKS, BACK_TICKS, SLEEP_TICKS = 200, 40, 400, 300
FLAPS_MAX = 5
NEVER_SHARE = 0.4


def _hosts(cluster: Cluster) -> Hosts:
    assert cluster.hosts is not None
    return cluster.hosts


def _any_host(cluster: Cluster) -> SimulatedHost | None:
    running = [host for host in _hosts(cluster).of_workers if host.is_running]
    return cluster.rng.choice(running) if running else None


def _until(cluster: Cluster, ticks: int) -> int:
    if cluster.rng.random() < NEVER_SHARE:
        cluster.count("cuts_for_ever")
        return NEVER
    return cluster.scheduler.now + 1 + int(cluster.rng.random() * ticks)


def _others(cluster: Cluster, host: SimulatedHost) -> list[HostId]:
    return [name for name in _hosts(cluster).of if name != host.name]


def cut_off_host(cluster: Cluster) -> None:
    """A host reaches nobody, and nobody reaches it: for a while, or for ever."""
    host = _any_host(cluster)
    if host is not None:
        others = _others(cluster, host)
        links = [(host.name, other) for other in others] + [(o, host.name) for o in others]
        _hosts(cluster).network.cut_links(links, _until(cluster, CUT_TICKS))


def half_cut_host(cluster: Cluster) -> None:
    """A host hears nobody, or nobody hears it."""
    host = _any_host(cluster)
    if host is not None:
        others = _others(cluster, host)
        is_deaf = cluster.rng.random() < 0.5
        links = [(o, host.name) if is_deaf else (host.name, o) for o in others]
        _hosts(cluster).network.cut_links(links, _until(cluster, CUT_TICKS))


def cut_from_driver(cluster: Cluster) -> None:
    """A host and the driver do not reach each other, or only in one direction; all others do."""
    host, network = _any_host(cluster), _hosts(cluster).network
    if host is not None:
        links = [(host.name, DRIVER), (DRIVER, host.name)]
        kept = cluster.rng.choice((links, links[:1], links[1:]))
        network.cut_links(kept, _until(cluster, CUT_TICKS))


def cut_pair(cluster: Cluster) -> None:
    """Two hosts, or some pairs, do not reach each other, or only in one direction."""
    hosts = [host.name for host in _hosts(cluster).of.values() if host.name != DRIVER]
    for _ in range(cluster.rng.choice((1, 1, 2, 3))):
        a, b = cluster.rng.sample(hosts, 2)
        kept = cluster.rng.choice(([(a, b), (b, a)], [(a, b)]))
        _hosts(cluster).network.cut_links(kept, _until(cluster, CUT_TICKS))


def cut_off_driver(cluster: Cluster) -> None:
    """The driver reaches no host for a while."""
    hosts, scheduler = _hosts(cluster), cluster.scheduler
    links = [(DRIVER, h.name) for h in hosts.of_workers] + [
        (h.name, DRIVER) for h in hosts.of_workers
    ]
    until = scheduler.now + 1 + int(cluster.rng.random() * CUT_TICKS)
    hosts.network.cut_links(links, until)


def flap(cluster: Cluster) -> None:
    """A host comes and goes."""
    host, rng = _any_host(cluster), cluster.rng
    if host is None:
        return
    others, when = _others(cluster, host), 0
    links = [(host.name, other) for other in others] + [(o, host.name) for o in others]
    for _ in range(2 + int(rng.random() * FLAPS_MAX)):
        cluster.scheduler.after(when, "", _flap, cluster, links, 1 + int(rng.random() * FLAP_TICKS))
        when += int(rng.random() * 2 * FLAP_TICKS)


def _flap(cluster: Cluster, links: list[tuple[HostId, HostId]], ticks: int) -> None:
    _hosts(cluster).network.cut_links(links, cluster.scheduler.now + ticks)


def hang_stream(cluster: Cluster) -> None:
    """Something between two hosts forgets one connection: it swallows what is sent in it."""
    exchanges = [
        e
        for process in cluster.processes.values()
        for e in process.exchanges.values()
        if e.task.endpoint.host != process.host
    ]
    if exchanges:
        cluster.rng.choice(exchanges).is_hung = True
        cluster.count("streams_hung")


def hang_call(cluster: Cluster) -> None:
    """What a lane asks the coordinator next is swallowed, and nothing else is."""
    cluster.faults.hanging_calls = 1 + int(cluster.rng.random() * 2)


def stop_host(cluster: Cluster) -> None:
    """A host is stopped; it wakes up some time, or never, and may not know that time has passed."""
    host, rng = _any_host(cluster), cluster.rng
    if host is not None:
        host.stop()
        stood_still = rng.random() < 0.5
        if rng.random() >= NEVER_SHARE:
            delay = 1 + int(rng.random() * SLEEP_TICKS)
            label = f"{host.name} wakes up"
            cluster.scheduler.after(delay, label, host.wake_up, stood_still)


def kill_host(cluster: Cluster) -> None:
    """A host dies, and comes back with nothing on it, or never."""
    host, rng = _any_host(cluster), cluster.rng
    if host is not None:
        host.die()
        _hosts(cluster).watch.forget(host.name)
        if rng.random() >= NEVER_SHARE:
            delay = 1 + int(rng.random() * BACK_TICKS)
            cluster.scheduler.after(delay, f"{host.name} is back", host.come_back)


def kill_agent(cluster: Cluster) -> None:
    """An agent is killed; whoever carries it starts another one."""
    host = _any_host(cluster)
    agents = [agent for agent in host.agents if agent.is_alive] if host is not None else []
    if agents:
        cluster.rng.choice(agents).kill()


def lose_order_stream(cluster: Cluster) -> None:
    """The stream on which an agent hears orders breaks, or loses an order to end a worker."""
    host, is_now = _any_host(cluster), cluster.rng.random() < 0.5
    for agent in host.agents if host is not None else ():
        if agent.is_alive and agent.has_joined and is_now:
            agent.lose_stream()
        agent.breaks_next = not is_now
        if not is_now:
            for process in [p for p in agent.processes.values() if p.is_alive][:1]:
                cluster.declare_down(process)


def second_agent(cluster: Cluster) -> None:
    """Spark runs the task of an agent again, on its host, whatever became of the first one."""
    host = _any_host(cluster)
    if host is not None:
        _hosts(cluster).start_agent(host)


def hang_starts(cluster: Cluster) -> None:
    """Starts are never answered: nobody says that they failed."""
    cluster.faults.hanging_starts = 1 + int(cluster.rng.random() * 2)
    process = any_process(cluster)
    if process is not None:
        process.crash()
        cluster.declare_down(process)


HOST_FAULTS: dict[Callable[[Cluster], None], int] = {
    cut_off_host: 6,
    half_cut_host: 4,
    cut_from_driver: 4,
    cut_pair: 6,
    cut_off_driver: 2,
    flap: 3,
    hang_stream: 4,
    hang_call: 3,
    stop_host: 4,
    kill_host: 3,
    kill_agent: 3,
    lose_order_stream: 3,
    second_agent: 4,
    hang_starts: 3,
}
"""Every fault of hosts with its weight in the draw."""
