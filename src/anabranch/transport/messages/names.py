"""The one table of names: what a type of messages is called between processes."""

from __future__ import annotations

from typing import Any

from anabranch.transport.codec import different_versions
from anabranch.transport.messages import control, deaths, hosts, kinds, lanes, orders, state

AgentCall = hosts.Join | hosts.Prove | hosts.Beat | hosts.Report | hosts.Leave

LaneCall = lanes.Begin | lanes.Finish | lanes.LaneFailed

CoordinatorCall = LaneCall | AgentCall | hosts.Introduce | control.Ping

WorkerCall = (
    control.Install
    | control.Ping
    | control.SlowCalls
    | control.Committed
    | control.Status
    | control.Loads
    | control.SetRate
    | state.AsOf
    | state.Heat
    | orders.Order
)

Request = CoordinatorCall | WorkerCall
"""What can be asked of a process."""

WorkerStream = state.CopyGroups | state.Deltas | state.Fetch | state.LookUp

CoordinatorStream = hosts.Orders | deaths.WatchDeaths

StreamRequest = WorkerStream | CoordinatorStream

NAMES: dict[type, str] = {
    lanes.Begin: "begin",
    lanes.Finish: "finish",
    lanes.LaneFailed: "lane-failed",
    hosts.Introduce: "introduce",
    hosts.Join: "join",
    hosts.Prove: "prove",
    hosts.Beat: "beat",
    hosts.Report: "report",
    hosts.Leave: "leave",
    hosts.Orders: "orders",
    hosts.StartHead: "start",
    hosts.EndHead: "end",
    hosts.ReturnHead: "return",
    control.Install: "install",
    control.Ping: "ping",
    control.SlowCalls: "slow-calls",
    control.Committed: "committed",
    control.Status: "status",
    control.Loads: "loads",
    control.SetRate: "set-rate",
    state.AsOf: "as-of",
    state.Heat: "heat",
    orders.ConnectOrder: "connect",
    orders.CopyOrder: "copy",
    orders.CatchUpOrder: "catch-up",
    orders.GrantOrder: "grant",
    orders.ReleaseOrder: "release",
    orders.ImportOrder: "import",
    orders.CleanOrder: "clean",
    orders.LagOrder: "lag",
    orders.SaveOrder: "save",
    orders.LoadOrder: "load",
    state.CopyGroups: "copy-groups",
    state.Deltas: "deltas",
    state.Fetch: "fetch",
    state.LookUp: "look-up",
    state.SliceHead: "slice",
    state.DeltaHead: "delta",
    state.KeysHead: "keys",
    state.DoneHead: "done",
    state.GoneHead: "gone",
    state.RestartHead: "restart",
    state.FoundHead: "found",
    kinds.AliveHead: "alive",
    kinds.AnswerHead: "answer",
    deaths.WatchDeaths: "watch-deaths",
    deaths.DeathsHead: "deaths",
}

_TYPES = {name: kind for kind, name in NAMES.items()}


def type_of(name: str, base: type = object) -> type[Any]:
    """The type of messages of this name, which must be one of calls, of streams, or of heads."""
    kind = _TYPES.get(name)
    if kind is None or not issubclass(kind, base):
        raise different_versions(f"Unknown call '{name}'")
    return kind
