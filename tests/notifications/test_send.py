"""A receiver that misbehaves costs a bounded time, is tried a bounded number of times, and never learns to speak for us."""

from __future__ import annotations

import asyncio
import logging
import socket
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.model.notification import Delivery, NotificationKind, NotificationRule, NotifyOn, RunEvent
from fleetctl.notifications.send import SendLimits, deliver, is_wanted, send
from tests.notifications.receiver import CLOSE, ENDLESS, HANG, receiving, reply
from tests.notifications.samples import notification

URL = "TELL_URL"
SLACK = NotificationRule(kind=NotificationKind.SLACK, reference=f"env:{URL}")
WEBHOOK = replace(SLACK, kind=NotificationKind.WEBHOOK)
OK = reply(200, b"ok")
USUAL = SendLimits()
QUICK = SendLimits(attempt_timeout_s=0.2)


class SkippingClock:
    """Lets a wait pass at once, and keeps how long it was."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def now(self) -> datetime:
        return datetime(2026, 11, 23, tzinfo=UTC)

    def monotonic_s(self) -> float:
        return sum(self.waits)

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)


async def tell(
    url: str, rule: NotificationRule = SLACK, *, limits: SendLimits = USUAL, **environ: str
) -> tuple[Delivery, list[float]]:
    clock = SkippingClock()
    delivery = await deliver(rule, notification(), environ={URL: url, **environ}, clock=clock, limits=limits)
    return delivery, clock.waits


async def test_a_receiver_that_takes_it_is_told_once():
    async with receiving(OK) as receiver:
        delivery, waits = await tell(receiver.url)
    assert (delivery.is_delivered, delivery.attempts, waits) == (True, 1, [])
    assert delivery.receiver == "slack env:TELL_URL"
    assert receiver.bodies[0]["text"].startswith("pre-warm on chat failed:")


async def test_a_webhook_gets_its_headers_from_their_references():
    rule = replace(WEBHOOK, headers={"authorization": "env:TOKEN"})
    async with receiving(OK) as receiver:
        delivery, _ = await tell(receiver.url, rule, TOKEN="Bearer abc")  # noqa: S106  # no secret
    assert delivery.is_delivered
    assert "authorization: bearer abc" in receiver.heads[0].lower()


async def test_a_server_s_error_is_tried_again_with_growing_waits():
    async with receiving(reply(503), reply(500), OK) as receiver:
        delivery, waits = await tell(receiver.url)
    assert (delivery.is_delivered, delivery.attempts, waits) == (True, 3, [1.0, 2.0])


async def test_who_asks_to_be_left_alone_is():
    date = {"date": "Mon, 23 Nov 2026 07:30:00 GMT", "retry-after": "Mon, 23 Nov 2026 07:30:09 GMT"}
    async with receiving(reply(429, headers={"retry-after": "7"}), reply(429, headers=date), OK) as receiver:
        delivery, waits = await tell(receiver.url)
    assert delivery.is_delivered
    assert waits == [7.0, 9.0]


async def test_who_asks_for_more_time_than_there_is_is_given_up():
    async with receiving(reply(429, headers={"retry-after": "3600"})) as receiver:
        delivery, waits = await tell(receiver.url)
    assert (delivery.is_delivered, delivery.attempts, waits) == (False, 1, [])
    assert delivery.fault == "HTTP 429"


@pytest.mark.parametrize("value", ["", "soon", "-1", "9" * 400, "1e9", "\u0663"])
async def test_a_retry_after_that_says_nothing_is_no_trouble(value):
    head = b"HTTP/1.1 503 X\r\ncontent-length: 0\r\nretry-after: " + value.encode() + b"\r\n\r\n"
    async with receiving(head, OK) as receiver:
        delivery, waits = await tell(receiver.url)
    assert (delivery.is_delivered, waits) == (True, [1.0])


async def test_attempts_are_bounded():
    async with receiving(reply(500, b"broken")) as receiver:
        delivery, waits = await tell(receiver.url)
    assert (delivery.attempts, len(receiver.bodies), waits) == (4, 4, [1.0, 2.0, 4.0])
    assert delivery.fault == "HTTP 500: broken"
    assert not delivery.is_uncertain


async def test_a_refusal_is_final():
    async with receiving(reply(404, b"no_service")) as receiver:
        delivery, _ = await tell(receiver.url)
    assert (delivery.is_delivered, delivery.attempts, delivery.fault) == (False, 1, "HTTP 404: no_service")


async def test_a_redirect_is_not_followed():
    async with receiving(OK) as other, receiving(reply(302, headers={"location": other.url})) as receiver:
        delivery, _ = await tell(receiver.url)
    assert not delivery.is_delivered
    assert delivery.fault == "HTTP 302: redirects are not followed"
    assert other.bodies == []


async def test_who_hangs_is_left_in_time_and_may_have_been_told():
    async with receiving(HANG) as receiver:
        delivery, _ = await tell(receiver.url, limits=replace(QUICK, attempts=2))
    assert (delivery.is_delivered, delivery.attempts, delivery.is_uncertain) == (False, 2, True)
    assert delivery.fault == "no answer within 0.2 s"


async def test_who_closes_is_tried_again():
    async with receiving(CLOSE, OK) as receiver:
        delivery, _ = await tell(receiver.url)
    assert (delivery.is_delivered, delivery.attempts) == (True, 2)


async def test_an_answer_without_an_end_is_not_read_to_it():
    async with receiving(ENDLESS) as receiver:
        delivery, _ = await asyncio.wait_for(tell(receiver.url), 5)
    assert delivery.is_delivered


async def test_nobody_there_is_certain():
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        delivery, waits = await tell(f"http://127.0.0.1:{reserved.getsockname()[1]}/x")
    assert (delivery.is_delivered, delivery.is_uncertain, len(waits)) == (False, False, 3)
    assert delivery.fault == "cannot connect (ConnectError)"


@pytest.mark.parametrize("url", ["hooks.slack.com/services/x", "ftp://h/x", "http://[::1", "javascript:x"])
async def test_what_is_no_address_is_said_without_it(url):
    delivery, _ = await tell(url, limits=QUICK)
    assert not delivery.is_delivered
    assert url not in delivery.fault
    assert delivery.attempts == 1


async def test_no_secret_is_in_an_answer_that_echoes_it():
    rule = replace(WEBHOOK, headers={"authorization": "env:TOKEN"})
    token = "tok-e30-secret"  # noqa: S105  # no secret
    async with receiving(OK) as receiver:
        url = receiver.url
        receiver.script = (reply(400, f"bad token {token} at {url} ".encode() + b"\x1b[31m" + b"y" * 9000),)
        delivery, _ = await tell(url, rule, TOKEN=token)
    assert "bad token *** at ***" in delivery.fault
    assert "\x1b" not in delivery.fault
    assert len(delivery.fault) < 200


@pytest.mark.parametrize(("name", "value"), [("HTTP_PROXY", "nonsense://["), ("SSL_CERT_FILE", "/does/not/exist")])
async def test_a_shell_whose_proxy_or_certificates_are_wrong_is_a_failed_delivery(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    delivery, _ = await tell("http://127.0.0.1:9/x", limits=replace(QUICK, attempts=1))
    assert not delivery.is_delivered
    assert delivery.fault.startswith(("no HTTP client can be made here", "cannot connect"))


async def test_no_log_holds_an_address(caplog):
    caplog.set_level(logging.DEBUG)
    async with receiving(reply(500), OK) as receiver:
        await tell(receiver.url)
    assert "secretpath" not in caplog.text


@pytest.mark.parametrize(
    ("environ", "rule", "fault"),
    [
        ({}, SLACK, "env:TELL_URL is empty"),
        ({URL: " \n"}, SLACK, "env:TELL_URL is empty"),
        ({URL: "http://h/\nx: y"}, SLACK, "holds more than one line"),
        ({}, replace(SLACK, reference="file:/does/not/exist"), "file:/does/not/exist cannot be read: No such file"),
        ({}, replace(SLACK, reference="file:~nobody-of-this-name/x"), "cannot be read"),
        ({}, replace(SLACK, reference="keyring:a/b"), "has no known kind"),
    ],
)
async def test_a_reference_that_leads_nowhere_is_a_failed_delivery(environ, rule, fault):
    delivery = await deliver(rule, notification(), environ=environ, clock=SkippingClock())
    assert not delivery.is_delivered
    assert fault in delivery.fault
    assert delivery.attempts == 0


def test_a_file_holds_the_secret_on_its_only_line(tmp_path):
    (tmp_path / "url").write_text("ftp://nowhere\n")
    delivery = send(replace(SLACK, reference=f"file:{tmp_path}/url"), notification(), environ={}, clock=SYSTEM_CLOCK)
    assert delivery.fault.startswith("what the reference leads to is no http(s) URL")


@pytest.mark.parametrize(
    ("kind", "on", "events"),
    [
        ("slack", NotifyOn.FAILURE, {RunEvent.FAILED}),
        ("slack", NotifyOn.SUCCESS, {RunEvent.SUCCEEDED}),
        ("slack", NotifyOn.APPROVAL, {RunEvent.AWAITS_APPROVAL}),
        ("slack", NotifyOn.ALWAYS, set(RunEvent)),
        ("pagerduty", NotifyOn.FAILURE, {RunEvent.FAILED, RunEvent.SUCCEEDED, RunEvent.RESUMED}),
    ],
)
def test_a_receiver_is_told_of_what_it_asks_for(kind, on, events):
    rule = NotificationRule(kind=NotificationKind(kind), reference="env:X", on=(on,))
    assert {event for event in RunEvent if is_wanted(rule, event)} == events
