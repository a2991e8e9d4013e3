"""An order of the protocol as the message that a worker gets."""

from __future__ import annotations

from anabranch.model.ids import Epoch
from anabranch.protocol.exhaustive import unhandled
from anabranch.protocol.move_orders import OrderKind, WorkerOrder
from anabranch.transport.messages import orders
from anabranch.transport.messages.orders import MovePeer


def order_message(
    order: WorkerOrder,
    address: str | None,
    rate: float | None,
    epochs: dict[str, Epoch | None],
) -> orders.Order:
    """`address` is that of the order's peer, `epochs` are the last ones of all operators."""
    groups, version = order.groups, order.version
    match order.kind:
        case OrderKind.CONNECT:
            return orders.ConnectOrder(_peer(order, address))
        case OrderKind.COPY:
            return orders.CopyOrder(groups, _peer(order, address), version, rate)
        case OrderKind.CATCH_UP:
            return orders.CatchUpOrder(groups, _peer(order, address), version, rate)
        case OrderKind.GRANT:
            source = None if order.peer is None else _peer(order, address)
            return orders.GrantOrder(groups, source, version, order.arrival, order.ready_first)
        case OrderKind.RELEASE:
            return orders.ReleaseOrder(groups, _peer(order, address), version)
        case OrderKind.IMPORT:
            peer = _peer(order, address)
            return orders.ImportOrder(groups, peer, version, rate, order.order, order.by_bin)
        case OrderKind.CLEAN:
            return orders.CleanOrder(groups, _peer(order, address), version)
        case OrderKind.LAG:
            return orders.LagOrder(groups, _peer(order, address))
        case OrderKind.SAVE:
            return orders.SaveOrder(epochs)
        case OrderKind.LOAD:
            return orders.LoadOrder(epochs)
        case _:
            unhandled(order.kind)


def _peer(order: WorkerOrder, address: str | None) -> MovePeer:
    assert order.peer is not None, order
    return MovePeer(order.peer, address)
