"""The gateway's TLS over real sockets: served, renewed under traffic, and what hostile or mistaken clients meet."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import openai
import pytest

from fleetctl.certificates import client_context, read_certificate
from fleetctl.clock import SYSTEM_CLOCK
from tests.certificates import make_certificate, replace_file, write_file
from tests.gateway.rig import HELLO, LIMITS, GatewayRig, raw_post, until
from tests.gateway.scripted import answers, delta

if TYPE_CHECKING:
    from datetime import datetime

    from fleetctl.model.tls import TlsFiles
    from tests.gateway.scripted import Seen, Wire


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return make_certificate(tmp_path / "tls")


def _client(rig: GatewayRig, files: TlsFiles) -> httpx.AsyncClient:
    trusted = client_context(read_certificate(files.certificate).pem)
    return httpx.AsyncClient(base_url=f"https://127.0.0.1:{rig.port}", verify=trusted, timeout=20.0, trust_env=False)


def _served(rig: GatewayRig) -> datetime | None:
    found = rig.frontend.snapshot(1).certificate
    return found.not_after if found is not None else None


async def test_openais_client_streams_over_tls(rig, files):
    await rig.add("r1", answers(["over", " ", "TLS"]))
    rig.apply(tls=files)
    trusted = client_context(read_certificate(files.certificate).pem)
    async with (
        openai.DefaultAsyncHttpxClient(verify=trusted, trust_env=False) as http,
        openai.AsyncOpenAI(
            base_url=f"https://127.0.0.1:{rig.port}/v1", api_key="x", max_retries=0, http_client=http
        ) as client,
    ):
        stream = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "Hi"}], stream=True
        )
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])
    assert text == "over TLS"


async def test_a_client_that_verifies_names_and_issuers_itself_is_served(rig, files):
    await rig.add("r1")
    rig.apply(tls=files)
    context = ssl.create_default_context(cafile=files.certificate)
    context.set_alpn_protocols(["h2", "http/1.1"])
    reader, writer = await asyncio.open_connection("127.0.0.1", rig.port, ssl=context, server_hostname="gateway.test")
    session = writer.get_extra_info("ssl_object")
    assert (session.version(), session.selected_alpn_protocol()) == ("TLSv1.3", "http/1.1")
    writer.write(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    assert b"200 OK" in await reader.read()
    writer.close()


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
async def test_old_versions_of_tls_are_refused(rig, files):
    rig.apply(tls=files)
    context = client_context(read_certificate(files.certificate).pem)
    context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises(ssl.SSLError, match="ALERT_PROTOCOL_VERSION"):
        await asyncio.open_connection("127.0.0.1", rig.port, ssl=context)


async def test_an_answer_and_a_body_larger_than_every_buffer_pass_whole(rig, files):
    big = "x" * 8192

    async def flood(seen: Seen, wire: Wire) -> None:
        del seen
        await wire.begin_events()
        for _ in range(128):
            await wire.event(delta(big))
        await wire.event(delta(finish="stop"))
        await wire.done()

    await rig.add("r1", flood)
    rig.apply(tls=files)
    prompt = "word " * 200_000
    async with _client(rig, files) as http:
        body = {"model": "m", "messages": [{"role": "user", "content": prompt}], "stream": True}
        async with http.stream("POST", "/v1/chat/completions", json=body) as response:
            read = b"".join([piece async for piece in response.aiter_raw()])
    assert read.count(b"x" * 8192) == 128
    assert read.rstrip().endswith(b"data: [DONE]")
    assert rig.replicas[0].seen[0].body["messages"][0]["content"] == prompt


async def test_a_client_that_does_not_read_holds_its_replica_back(rig, files):
    sent = 0

    async def flood(seen: Seen, wire: Wire) -> None:
        nonlocal sent
        del seen
        await wire.begin_events()
        for _ in range(8192):
            await wire.event(delta("x" * 8192))
            sent += 1
        await wire.done()

    await rig.add("r1", flood)
    rig.apply(tls=files)
    context = client_context(read_certificate(files.certificate).pem)
    _, writer = await asyncio.open_connection("127.0.0.1", rig.port, ssl=context, limit=1024)
    body = b'{"model": "m", "stream": true, "messages": [{"role": "user", "content": "Hi"}]}'
    writer.write(raw_post(body))
    before = -1
    while sent != before or not sent:
        before = sent
        await SYSTEM_CLOCK.sleep(0.2)
    assert sent < 8192  # of 64 MiB
    writer.transport.abort()


async def test_a_renewed_certificate_is_served_without_a_failed_request(rig, files):
    await rig.add("r1", answers(["hello"]))
    rig.apply(tls=files)
    first = read_certificate(files.certificate).pem
    pems, statuses, is_over = [first], [], False

    async def send_requests() -> None:
        while not is_over:
            # Each by a connection of its own, which takes any certificate there has been.
            async with httpx.AsyncClient(verify=client_context("".join(pems)), trust_env=False, timeout=10.0) as http:
                found = await http.post(f"https://127.0.0.1:{rig.port}/v1/chat/completions", json=HELLO)
                statuses.append(found.status_code)

    kept = _client(rig, files)
    assert (await kept.get("/health")).status_code == 200
    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(send_requests())
        for days in (30, 60):
            until_when = SYSTEM_CLOCK.now().replace(microsecond=0) + timedelta(days=days)
            renewed = make_certificate(Path(files.certificate).parent / "next", until=until_when)
            pems.append(read_certificate(renewed.certificate).pem)
            count = len(statuses)
            await until(lambda count=count: len(statuses) > count + 8)  # every client takes it by now
            # One file after the other, as tools replace them: between the two the key is another's.
            replace_file(renewed.certificate, files.certificate)
            await until(lambda: rig.frontend.snapshot(1).certificate.fault)
            count = len(statuses)
            await until(lambda count=count: len(statuses) > count + 4)
            replace_file(renewed.key, files.key)
            await until(lambda when=until_when: _served(rig) == when)
            count = len(statuses)
            await until(lambda count=count: len(statuses) > count + 4)
        is_over = True
    assert set(statuses) == {200}
    assert (await kept.get("/health")).status_code == 200  # on the connection that it had
    await kept.aclose()
    with pytest.raises(httpx.ConnectError):
        async with httpx.AsyncClient(verify=client_context(first), trust_env=False) as http:
            await http.get(f"https://127.0.0.1:{rig.port}/health")


@pytest.mark.parametrize(
    "written", [b"no certificate", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
async def test_what_is_no_certificate_leaves_the_one_before_and_is_named(rig, files, tmp_path, written):
    await rig.add("r1")
    rig.apply(tls=files)
    before = _served(rig)
    assert before is not None
    async with _client(rig, files) as http:
        replace_file(write_file(tmp_path / "new.pem", written), files.certificate)
        await until(lambda: rig.frontend.snapshot(1).certificate.fault)
        assert files.certificate in rig.frontend.snapshot(1).certificate.fault
        assert _served(rig) == before
        assert (await http.get("/health")).status_code == 200
        page = (await http.get("/metrics")).text
    assert 'fleetctl_gateway_certificate_fault{fleet="rig"} 1' in page
    assert f'fleetctl_gateway_certificate_not_after_timestamp_seconds{{fleet="rig"}} {before.timestamp():.0f}' in page


async def test_without_a_usable_certificate_nothing_is_served_in_clear(rig, tmp_path):
    await rig.add("r1")
    files = make_certificate(tmp_path / "later")
    replace_file(files.key, tmp_path / "kept")
    rig.apply(tls=files)
    assert rig.frontend.snapshot(1).certificate.not_after is None
    with suppress(ConnectionError):
        assert not await rig.send_raw(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
    replace_file(tmp_path / "kept", files.key)
    await until(lambda: _served(rig))
    async with _client(rig, files) as http:
        assert (await http.get("/health")).status_code == 200


async def test_plain_http_is_told_to_speak_https(rig, files):
    await rig.add("r1")
    rig.apply(tls=files)
    answer = await rig.send_raw(raw_post(b"{}", b"authorization: Bearer k\r\n"))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"use https://" in answer
    assert not rig.replicas[0].seen


async def test_handshakes_have_a_deadline_and_a_bound(files):
    limits = LIMITS.__class__(sweep_interval_s=0.02, header_timeout_s=0.5, connections_max=8, linger_s=0.3)
    async with GatewayRig(limits=limits) as rig:
        await rig.add("r1")
        rig.apply(tls=files)
        begun = bytes((0x16, 3, 1, 2, 0)) + b"\x01"  # of a hello that never comes
        waiting = [await rig.connect() for _ in range(40)]
        for _, writer in waiting:
            writer.write(begun)
        await until(lambda: rig.frontend.connections)
        assert rig.frontend.connections <= 8 + 16
        # Who only holds a connection makes room for who shakes hands.
        async with _client(rig, files) as http:
            assert (await http.get("/health")).status_code == 200
        for reader, writer in waiting:
            async with asyncio.timeout(10):
                with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                    await reader.readexactly(65536)
            writer.transport.abort()
        await until(lambda: not rig.frontend.connections)


async def test_a_refusal_is_read_whole_by_who_still_sends(files):
    async with GatewayRig(limits=LIMITS) as rig:
        await rig.add("r1")
        rig.apply(tls=files, body_bytes_max=1024)
        async with _client(rig, files) as http:
            found = await http.post("/v1/chat/completions", content=b"x" * 4_000_000)
    assert found.status_code == 413
    assert "1024" in found.text or "large" in found.text


async def test_garbage_after_a_hello_ends_the_connection_alone(rig, files):
    await rig.add("r1")
    rig.apply(tls=files)
    answer = await rig.send_raw(bytes((0x16, 3, 1, 0, 4)) + b"\xff\xff\xff\xff" + b"z" * 2000)
    assert not answer or answer[0] == 0x15  # an alert
    await until(lambda: not rig.frontend.connections)
    async with _client(rig, files) as http:
        assert (await http.get("/health")).status_code == 200


async def test_a_gateway_without_a_certificate_says_nothing_of_one(rig):
    await rig.add("r1")
    assert rig.frontend.snapshot(1).certificate is None
    assert b"certificate" not in (await rig.get("/metrics")).body
