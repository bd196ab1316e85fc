"""What is said of the gateway's certificate before a fleet is brought up by it."""

from __future__ import annotations

import stat
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fleetctl.clock import SYSTEM_CLOCK
from fleetctl.errors import ConfigError
from fleetctl.model.preflight import Verdict
from fleetctl.model.tls import TlsSpec
from fleetctl.operations.gateway_tls import tls_errors, tls_findings, trusted_certificate
from fleetctl.testing import samples
from tests.certificates import make_certificate, replace_file, write_file

if TYPE_CHECKING:
    from fleetctl.model.profile import Profile
    from fleetctl.model.tls import TlsFiles

NOW = SYSTEM_CLOCK.now()


def _profile(files: TlsFiles) -> Profile:
    tls = TlsSpec(certificate=files.certificate, key=files.key)
    made = samples.profile()
    return replace(made, gateway=replace(made.gateway, tls=tls))


def _refused(files: TlsFiles) -> str:
    (error,) = tls_errors(_profile(files), NOW)
    assert isinstance(error, ConfigError)
    assert (error.key, bool(error.hint)) == (("gateway", "tls"), True)
    return error.message


def test_a_good_pair_is_served_and_its_end_is_said(tmp_path: Path) -> None:
    profile = _profile(make_certificate(tmp_path))
    assert not list(tls_errors(profile, NOW))
    (found,) = tls_findings(profile, NOW)
    assert (found.verdict, f"{NOW + timedelta(days=90):%Y-%m-%d}" in found.detail) == (Verdict.OK, True)
    assert profile.gateway.url.startswith("https://")
    assert trusted_certificate(profile).startswith("-----BEGIN CERTIFICATE-----")


def test_a_profile_without_one_has_nothing_to_be_said() -> None:
    assert not list(tls_errors(samples.profile(), NOW))
    assert not list(tls_findings(samples.profile(), NOW))
    assert trusted_certificate(samples.profile()) == ""


def test_a_key_of_another_certificate_is_refused(tmp_path: Path) -> None:
    files, other = make_certificate(tmp_path / "a"), make_certificate(tmp_path / "b")
    replace_file(other.key, files.key)
    assert _refused(files) == f"the key {files.key} is not that of the certificate {files.certificate}"


@pytest.mark.parametrize(
    ("since", "until", "text"),
    [(-9, -2, "ended at"), (2, 90, "is valid from")],
)
def test_a_certificate_outside_its_validity_is_refused_with_the_date(
    since: int, until: int, text: str, tmp_path: Path
) -> None:
    files = make_certificate(tmp_path, since=NOW + timedelta(days=since), until=NOW + timedelta(days=until))
    edge = NOW + timedelta(days=until if until < 0 else since)
    assert f"{text} {edge:%Y-%m-%d %H:%M} UTC" in _refused(files)


def test_years_beyond_two_digits_are_read(tmp_path: Path) -> None:
    files = make_certificate(tmp_path, until=NOW.replace(year=2090, month=2, day=1))
    (found,) = tls_findings(_profile(files), NOW)
    assert "2090-02-01" in found.detail


@pytest.mark.parametrize(
    "content", [b"", b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n", b"\x00" * 99]
)
def test_a_file_that_is_no_certificate_is_refused(content: bytes, tmp_path: Path) -> None:
    files = make_certificate(tmp_path)
    write_file(Path(files.certificate), content)
    assert files.certificate in _refused(files)


def test_a_key_with_a_passphrase_is_refused_and_nobody_is_asked_for_it(tmp_path: Path) -> None:
    assert "cannot be used" in _refused(make_certificate(tmp_path, passphrase=b"secret"))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    files = make_certificate(tmp_path)
    Path(files.key).unlink()
    assert f"key {files.key} cannot be read: No such file" in _refused(files)


def test_an_end_that_is_near_and_a_key_that_others_read_are_cautions(tmp_path: Path) -> None:
    files = make_certificate(tmp_path, until=NOW + timedelta(days=5))
    Path(files.key).chmod(stat.S_IRUSR | stat.S_IRGRP)
    ends, readable = tls_findings(_profile(files), NOW)
    assert (ends.verdict, readable.verdict) == (Verdict.WARN, Verdict.WARN)
    assert readable.hint == f"chmod 600 {files.key}"


def test_a_secret_of_a_cluster_is_nothing_that_a_gateway_of_this_machine_has() -> None:
    made = samples.profile()
    profile = replace(made, gateway=replace(made.gateway, tls=TlsSpec(secret="gateway-tls")))  # noqa: S106  # its name
    assert not list(tls_errors(profile, NOW))
    (found,) = tls_findings(profile, NOW)
    assert (found.verdict, "gateway-tls" in found.detail) == (Verdict.WARN, True)
