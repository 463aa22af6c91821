"""The order in which messages leave, without any of them leaving."""

import asyncio

from mcpearl.transports.http_client.ordering import SendOrder


class Message:
    """A message, as far as its order is concerned."""


async def left(requests: list[asyncio.Future[None]]) -> None:
    if requests:
        await asyncio.wait(requests)


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_notification_waits_for_the_requests_before_it() -> None:
    order = SendOrder(10)
    first, second, later = Message(), Message(), Message()
    order.enter(first, lasts=False)
    order.enter(second, lasts=True)
    gone = asyncio.ensure_future(left(order.predecessors()))
    order.enter(later, lasts=False)
    await settle()
    assert not gone.done()
    order.left(first)
    await settle()
    assert not gone.done()
    order.leave(second)  # given up, so it will never leave
    await asyncio.wait_for(gone, 30)


async def test_two_notifications_wait_for_the_same_request() -> None:
    order = SendOrder(10)
    request = Message()
    order.enter(request, lasts=False)
    waiting = [asyncio.ensure_future(left(order.predecessors())) for _ in range(2)]
    await settle()
    waiting[0].cancel()  # which does not concern the other
    await settle()
    assert not waiting[1].done()
    order.left(request)
    await asyncio.wait_for(waiting[1], 30)


async def test_requests_wait_for_the_session_to_open_and_only_for_that_one() -> None:
    order = SendOrder(10)
    first = order.open_session()
    opened = asyncio.ensure_future(order.opened())
    await settle()
    assert not opened.done()
    second = order.open_session()
    first.set_result(None)
    await asyncio.wait_for(opened, 30)
    assert order.opening is second  # a session that was opened again is not open yet
    second.set_result(None)
    await asyncio.wait_for(order.opened(), 30)
    assert order.opening is None


async def test_only_so_many_requests_at_once_in_the_order_they_came() -> None:
    order = SendOrder(2)
    requests = [Message() for _ in range(6)]
    slots = [order.enter(request, lasts=False) for request in requests]
    assert slots[:2] == [None, None]
    third, fourth, fifth, sixth = slots[2:]
    assert third and fourth and fifth and sixth
    assert order.enter(Message(), lasts=True) is None  # a subscription takes no slot
    fourth.cancel()
    order.leave(requests[0])
    assert third.done()
    order.leave(requests[4])  # given up while it waits: it has no slot to pass on
    assert not sixth.done()
    order.leave(requests[2])
    assert sixth.done()
    assert not fifth.done()
    for request in requests:
        order.leave(request)
    assert order.enter(Message(), lasts=False) is None


async def test_a_request_without_a_slot_holds_no_notification_up() -> None:
    order = SendOrder(1)
    running, waiting = Message(), Message()
    order.enter(running, lasts=False)
    order.enter(waiting, lasts=False)
    order.left(running)
    await asyncio.wait_for(left(order.predecessors()), 30)
