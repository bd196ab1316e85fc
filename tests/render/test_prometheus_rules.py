"""The rules for Prometheus: promtool takes them, they fire when the controller's would, and what they read is exported."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleetctl.core.slo.burn import BURN_RULES
from fleetctl.model.profile import Objective
from fleetctl.model.tls import TlsSpec
from fleetctl.render.prometheus import render_rules
from fleetctl.testing import samples
from tests.gateway.rig import GatewayRig
from tests.gateway.test_slo_gauges import FEED

PROFILE = samples.profile()
# install.sh puts it beside Python, which is not on the PATH of who runs pytest by its path.
PROMTOOL = shutil.which("promtool") or shutil.which("promtool", path=str(Path(sys.executable).parent))
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="Prometheus' own promtool is not installed")
# A lane of the profile's fleet, a request a second, of which a share is bad from the start.
GOOD = 'fleetctl_gateway_good_total{fleet="demo",lane="short"}'
BAD = 'fleetctl_gateway_breaches_total{fleet="demo",lane="short",kind="ttft"}'
WAITING = 'fleetctl_slo_waiting_requests{fleet="demo",lane="short"}'
EVALUATED = 'fleetctl_slo_evaluated_timestamp_seconds{fleet="demo"}'


def text_of(fraction: float = 0.995, *, allows_refusals: bool = False, is_tls: bool = False) -> str:
    profile = replace(PROFILE, objective=Objective(fraction=fraction, window_s=PROFILE.objective.window_s))
    if is_tls:
        tls = TlsSpec(certificate="/chain.pem", key="/key.pem")
        profile = replace(profile, gateway=replace(profile.gateway, tls=tls))
    if allows_refusals:  # how many, the gateway says
        short, *rest = profile.lanes
        profile = replace(profile, lanes=(replace(short, slo=replace(short.slo, shed=0.1)), *rest))
    (text,) = render_rules(profile).values()
    return text


def rules_of(text: str) -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


def test_every_alert_of_the_controller_is_a_rule_with_its_severity() -> None:
    alerts = {rule["labels"]["rule"]: rule for rule in rules_of(text_of()) if "alert" in rule}
    assert set(alerts) == {rule.name.value for rule in BURN_RULES} | {"queue-depth", "not-evaluated"}
    for rule in BURN_RULES:
        assert alerts[rule.name]["labels"]["severity"] == rule.severity
        assert f"> {rule.rate:g}\n" in alerts[rule.name]["expr"]
        assert alerts[rule.name]["for"] == "2m"
    assert alerts["queue-depth"]["for"] == "30s"


def test_a_rule_that_can_never_fire_is_left_out_and_said_so() -> None:
    alerts = {rule.get("alert") for rule in rules_of(text_of(0.9))}
    assert "FleetctlFastBurn" not in alerts
    assert "FleetctlMediumBurn" in alerts
    assert "# FleetctlFastBurn is left out, it can never fire" in text_of(0.9)


@pytest.mark.parametrize("allows_refusals", [False, True])
async def test_what_the_rules_read_is_recorded_by_them_or_exported_by_a_gateway(allows_refusals: bool) -> None:
    rules = rules_of(text_of(allows_refusals=allows_refusals))
    recorded = {rule["record"] for rule in rules if "record" in rule}
    read = {name for rule in rules for name in re.findall(r"(?:fleet_lane:)?fleetctl_\w+(?::\w+)?", rule["expr"])}
    assert read >= {"fleetctl_gateway_good_total", "fleetctl_slo_waiting_requests"}
    async with GatewayRig() as rig:
        await rig.add("r1")
        rig.frontend.gauges.slo.take(FEED)
        page = (await rig.get("/metrics")).body.decode()
    for name in read - recorded:
        assert f"\n{name}{{" in page, name


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    assert PROMTOOL is not None
    return subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, timeout=60, check=False)


def firing(tmp_path: Path, series: dict[str, str], at: str, expected: list[str], *, text: str = "") -> str:
    """Have promtool play the series, a value a minute; return what it says where other alerts fire at `at` than expected."""
    text = text or text_of()
    (tmp_path / "rules.yaml").write_text(text)
    named = {rule["alert"]: rule for rule in rules_of(text) if "alert" in rule}
    recorded = [
        {"eval_time": at, "alertname": name, "exp_alerts": []} for name in sorted(named) if name not in expected
    ]
    (tmp_path / "quiet.yaml").write_text(
        yaml.safe_dump(
            {
                "rule_files": ["rules.yaml"],
                "evaluation_interval": "15s",
                "tests": [
                    {
                        "interval": "1m",
                        "input_series": [{"series": name, "values": values} for name, values in series.items()],
                        "alert_rule_test": recorded,
                        "promql_expr_test": [
                            {
                                "expr": 'sort(count by (alertname) (ALERTS{alertstate="firing"}))',
                                "eval_time": at,
                                "exp_samples": [
                                    {"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(expected)
                                ],
                            }
                        ],
                    }
                ],
            }
        )
    )
    played = promtool("test", "rules", str(tmp_path / "quiet.yaml"))
    return "" if played.returncode == 0 else played.stdout + played.stderr


@needs_promtool
@pytest.mark.parametrize("fraction", [0.5, 0.9, 0.995, 0.9999])
def test_promtool_takes_them(fraction: float, tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(text_of(fraction))
    found = promtool("check", "rules", "--lint=all", "--lint-fatal", str(path))
    assert found.returncode == 0, found.stdout + found.stderr


@needs_promtool
@pytest.mark.parametrize(
    ("series", "at", "expected"),
    [
        pytest.param({GOOD: "0+60x200", BAD: "0+0x200"}, "100m", [], id="all is well"),
        pytest.param(
            {GOOD: "0+48x200", BAD: "0+12x200"},
            "30m",
            ["FleetctlFastBurn", "FleetctlMediumBurn", "FleetctlSlowBurn"],
            id="one in five is bad",
        ),
        pytest.param(
            {GOOD: "0+580x200", BAD: "0+20x200"},
            "100m",
            ["FleetctlMediumBurn", "FleetctlSlowBurn"],
            id="one in thirty is bad: 6.7 times too fast",
        ),
        pytest.param({GOOD: "0+1x200", BAD: "0x10 1x190"}, "12m", [], id="one bad request of a dozen alerts nobody"),
        pytest.param({GOOD: "0+60x200", BAD: "0+0x200", WAITING: "24x200"}, "20m", [], id="24 wait"),
        pytest.param(
            {GOOD: "0+60x200", BAD: "0+0x200", WAITING: "25x200"}, "20m", ["FleetctlQueueDepth"], id="25 wait"
        ),
    ],
)
def test_they_fire_when_the_budget_burns_and_not_before(
    series: dict[str, str], at: str, expected: list[str], tmp_path: Path
) -> None:
    assert firing(tmp_path, {EVALUATED: "0+60x200", **series}, at, expected) == ""


@needs_promtool
def test_a_gateway_that_nobody_scrapes_and_a_controller_that_is_gone_are_alerts(tmp_path: Path) -> None:
    assert firing(tmp_path, {GOOD: "0+60x200"}, "10m", ["FleetctlNotEvaluated"]) == ""
    assert firing(tmp_path, {EVALUATED: "0+60x10 600x190"}, "20m", ["FleetctlNotEvaluated"]) == ""


REFUSED = 'fleetctl_gateway_breaches_total{fleet="demo",lane="short",kind="refused"}'
ALLOWANCE = 'fleetctl_gateway_shed_allowance_ratio{fleet="demo",lane="short"}'
ALL_BURN = ["FleetctlFastBurn", "FleetctlMediumBurn", "FleetctlSlowBurn"]


@needs_promtool
@pytest.mark.parametrize(
    ("series", "expected"),
    [
        pytest.param({ALLOWANCE: "0.2x200"}, [], id="a fifth is refused, and may be"),
        pytest.param({ALLOWANCE: "0.1x200"}, ALL_BURN, id="a tenth may be"),
        pytest.param({ALLOWANCE: "0.2x200", BAD: "0+12x200"}, ALL_BURN, id="what is late no allowance covers"),
        pytest.param({}, ALL_BURN, id="a gateway that does not say covers nothing"),
    ],
)
def test_refusals_burn_only_beyond_the_allowance(series: dict[str, str], expected: list[str], tmp_path: Path) -> None:
    played = {EVALUATED: "0+60x200", GOOD: "0+48x200", BAD: "0+0x200", REFUSED: "0+12x200", **series}
    assert firing(tmp_path, played, "30m", expected, text=text_of(allows_refusals=True)) == ""


@needs_promtool
def test_promtool_takes_them_with_an_allowance(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(text_of(allows_refusals=True))
    found = promtool("check", "rules", "--lint=all", "--lint-fatal", str(path))
    assert found.returncode == 0, found.stdout + found.stderr


NOT_AFTER = 'fleetctl_gateway_certificate_not_after_timestamp_seconds{fleet="demo"}'
FAULT = 'fleetctl_gateway_certificate_fault{fleet="demo"}'


@needs_promtool
@pytest.mark.parametrize(
    ("series", "expected"),
    [
        pytest.param({NOT_AFTER: "1300000x200", FAULT: "0x200"}, [], id="it ends in fifteen days"),
        pytest.param(
            {NOT_AFTER: "1200000x200", FAULT: "0x200"}, ["FleetctlCertificateEnds"], id="in fewer than fourteen"
        ),
        pytest.param(
            {NOT_AFTER: "1300000x200", FAULT: "1x200"}, ["FleetctlCertificateEnds"], id="a new one is not taken"
        ),
    ],
)
def test_a_certificate_that_nobody_renews_is_an_alert(
    series: dict[str, str], expected: list[str], tmp_path: Path
) -> None:
    text = text_of(is_tls=True)
    (tmp_path / "checked.yaml").write_text(text)
    found = promtool("check", "rules", "--lint=all", "--lint-fatal", str(tmp_path / "checked.yaml"))
    assert found.returncode == 0, found.stdout + found.stderr
    assert firing(tmp_path, {EVALUATED: "0+60x200", **series}, "20m", expected, text=text) == ""
    assert "ertificate" not in text_of()
