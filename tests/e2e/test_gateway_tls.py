"""A fleet whose gateways serve by TLS: brought up, loaded, renewed and watched by its own commands."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import httpx
import pytest
from openai import DefaultHttpxClient, OpenAI

from fleetctl.certificates import client_context, read_certificate
from fleetctl.clock import SYSTEM_CLOCK
from tests.certificates import make_certificate, replace_file, write_file
from tests.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path

    from fleetctl.model.tls import TlsFiles
    from tests.e2e.fleet import Home

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
_MODEL = "meta-llama/Llama-3.1-8B-Instruct"
_PROFILE = """
apiVersion: fleetctl/v1
name: secure
model: {{id: meta-llama/Llama-3.1-8B-Instruct}}
engine: emulator
provider: local
workload: {{peak_rps: 4, prompt_tokens: {{p50: 100, p99: 400}}, output_tokens: {{p50: 20, p99: 50}}}}
lanes:
  chat:
    slo: {{ttft: {{p99: 2s}}, itl: {{p99: 200ms}}}}
    max_wait: 20s
    replicas: {{min: 1, max: 1}}
gateway: {{port: {port}, processes: 2, tls: {{certificate: tls/chain.pem, key: tls/key.pem}}}}
"""


def _written(tmp_path: Path) -> tuple[Path, TlsFiles]:
    path = tmp_path / "secure.yaml"
    path.write_text(_PROFILE.format(port=free_port()))
    return path, make_certificate(tmp_path / "tls")


def _wait_for_condition(home: Home, text: str) -> None:
    end_s = SYSTEM_CLOCK.monotonic_s() + 20.0
    while text not in (shown := home.run("status", "secure").out):
        assert SYSTEM_CLOCK.monotonic_s() < end_s, shown
        SYSTEM_CLOCK.sleep_blocking(0.3)


def test_a_fleet_serves_by_tls_and_its_own_commands_know_its_certificate(home: Home, tmp_path: Path) -> None:
    path, files = _written(tmp_path)
    ran = home.run("up", str(path), "--yes")
    try:
        assert ran.code == 0, ran.err
        url = ran.out.strip()
        assert url.startswith("https://127.0.0.1:")
        trusted = client_context(read_certificate(files.certificate).pem)
        with (
            DefaultHttpxClient(verify=trusted, trust_env=False) as http,
            OpenAI(base_url=url, api_key="none", max_retries=0, timeout=30, http_client=http) as client,
        ):
            answer = client.chat.completions.create(
                model=_MODEL, max_tokens=5, messages=[{"role": "user", "content": "hello"}]
            )
            assert answer.choices[0].message.content
        load = home.run("load", "secure", "--duration", "3s", "--rps", "4")
        assert load.code == 0, load.err
        assert home.query("status", "secure")["gateway_url"] == url.removesuffix("/v1")
        # Soon over, and then one that is none: both are served with what there was, and said.
        soon = make_certificate(tmp_path / "next", until=SYSTEM_CLOCK.now() + timedelta(days=3))
        replace_file(soon.key, files.key)
        replace_file(soon.certificate, files.certificate)
        _wait_for_condition(home, "have it renewed")
        replace_file(write_file(tmp_path / "none.pem", b"nothing"), files.key)
        _wait_for_condition(home, "the certificate before is served on")
        assert any(event["action"] == "certificate" for event in home.query("events", "secure"))
        with httpx.Client(verify=client_context(read_certificate(files.certificate).pem), trust_env=False) as other:
            assert other.get(url.replace("/v1", "/health")).status_code == 200
    finally:
        down = home.run("down", "secure", "--yes")
    assert down.code == 0, down.err
