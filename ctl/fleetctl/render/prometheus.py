"""Renders recording and alerting rules for those who alert from Prometheus: the rules of the controller, on the gateway's counters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleetctl import resources
from fleetctl.core.slo.alerts import BURN_HELD, QUEUE_DEPTH_MAX, QUEUE_HELD, severity_of
from fleetctl.core.slo.burn import BURN_RULES, BURN_WINDOWS_S
from fleetctl.core.slo.judge import LIVE_CONFIDENCE
from fleetctl.model.alert import AlertName
from fleetctl.model.tls import EXPIRES_SOON
from fleetctl.render.plan import render_template
from fleetctl.units import format_duration

if TYPE_CHECKING:
    from pathlib import Path

    from fleetctl.core.slo.burn import BurnRule
    from fleetctl.model.profile import Objective, Profile

TEMPLATE = "prometheus/rules.yaml.j2"
PATH = "prometheus/fleetctl-{fleet}.rules.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusBurnRule:
    """A burn-rate alert as the template names it."""

    alert: str  # in CamelCase, as Prometheus' own are
    name: str
    severity: str
    rate: str
    long: str
    short: str
    never_fires: str  # why it cannot at this objective; empty: it can


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusRules:
    """Everything the template may name, unquoted."""

    fleet: str
    objective: str  # share of good requests promised
    allows_refusals: bool  # some lane has a shed allowance
    windows: tuple[str, ...]  # the burn rules' own, shortest first
    burn_rules: tuple[PrometheusBurnRule, ...]
    burn_held: str
    surprise_min: str  # how improbable a window's bad requests are, as -ln of the chance, before anybody is alerted
    queue_depth_max: int
    queue_held: str
    queue_severity: str
    certificate_left_s: int  # with so much left somebody is called; 0: the gateway serves in clear


def render_rules(profile: Profile, *, template_roots: tuple[Path, ...] | None = None) -> dict[str, str]:
    """Return the file of rules by its relative path; the same profile always gives the same bytes."""
    roots = template_roots or tuple(resources.roots("templates"))
    text = render_template(TEMPLATE, roots, rules=_rules(profile))
    return {PATH.format(fleet=profile.name): text}


def _rules(profile: Profile) -> PrometheusRules:
    objective = profile.objective
    return PrometheusRules(
        fleet=profile.name,
        objective=f"{objective.fraction:.12g}",
        allows_refusals=any(lane.slo.shed for lane in profile.lanes),
        windows=tuple(format_duration(length_s) for length_s in BURN_WINDOWS_S),
        burn_rules=tuple(_burn_rule(rule, objective) for rule in BURN_RULES),
        burn_held=format_duration(BURN_HELD.total_seconds()),
        surprise_min=f"{-math.log(1.0 - LIVE_CONFIDENCE):.2f}",
        queue_depth_max=QUEUE_DEPTH_MAX,
        queue_held=format_duration(QUEUE_HELD.total_seconds()),
        queue_severity=severity_of(AlertName.QUEUE_DEPTH).value,
        certificate_left_s=int(EXPIRES_SOON.total_seconds()) if profile.gateway.tls is not None else 0,
    )


def _burn_rule(rule: BurnRule, objective: Objective) -> PrometheusBurnRule:
    return PrometheusBurnRule(
        alert="Fleetctl" + "".join(word.capitalize() for word in rule.name.split("-")),
        name=rule.name.value,
        severity=rule.severity.value,
        rate=f"{rule.rate:g}",
        long=format_duration(rule.long_s),
        short=format_duration(rule.short_s),
        never_fires=rule.never_fires(objective),
    )
