"""A plan as people read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleetctl.cli.output import Format, lines, section
from fleetctl.core.plan.joint import mix_text
from fleetctl.core.plan.model_totals import model_totals
from fleetctl.core.ttft_budget import outside_s
from fleetctl.model.slo import Metric
from fleetctl.units import format_count, format_duration, format_fraction, format_rps, format_usd
from fleetctl.views.bursts import index_text
from fleetctl.views.figures import CPU, format_replica_gpus
from fleetctl.views.images import image_lines
from fleetctl.views.overrides import override_clauses
from fleetctl.views.plan_changes import format_plan_value
from fleetctl.views.preflight import findings_lines
from fleetctl.views.table import NOTHING, text_table

if TYPE_CHECKING:
    from fleetctl.cli.output import OutputSection
    from fleetctl.core.plan.changes import PlanChange
    from fleetctl.model.plan import Forecast, LanePlan, Plan
    from fleetctl.model.preflight import Finding
    from fleetctl.model.profile import LaneSpec, Profile
    from fleetctl.model.slo import LaneSlo
    from fleetctl.operations.pending import PendingChanges

_HOURS_A_MONTH = 720  # as the published tables count one


def plan_sections(profile: Profile, plan: Plan) -> tuple[OutputSection, ...]:
    """Return the plan: replicas and cost, forecast, launch settings, latency budget, grounds, cautions."""
    head, *tail = plan_summary(profile, plan)
    binding = (f"{lane.lane}: {lane.reasons[0]}" for lane in plan.lanes if lane.reasons)
    every = (f"{lane.lane}: {reason}" for lane in plan.lanes for reason in lane.reasons)
    return (
        head,
        *tail[:-1],
        _launch(plan),
        _images(plan),
        _budget(profile, plan),
        _workflows(plan),
        lines(*binding, title="Why (-o wide says more)", only=Format.TABLE),
        lines(*every, title="Why", only=Format.WIDE),
        lines(*(f"caution: {caution}" for caution in plan.cautions)),
        tail[-1],
    )


def plan_summary(profile: Profile, plan: Plan) -> tuple[OutputSection, ...]:
    """Return what a person says yes or no to: replicas, forecast, cost."""
    return (
        lines(f"Plan for {plan.fleet}: {_models(profile, plan)}, sizing {plan.sizing}"),
        _replicas(plan),
        _totals(plan),
        _forecast(profile, plan),
        lines(*(f"accepted risk: {risk}" for risk in plan.risks)),
        lines(_cost(plan)),
    )


def _models(profile: Profile, plan: Plan) -> str:
    """Return each model, with the precisions in which its lanes load the weights."""
    shown = []
    for model in profile.models:
        lanes = [plan.lane(lane.name) for lane in profile.lanes if profile.model_of(lane) is model]
        loaded = dict.fromkeys(lane.launch.quantization.value for lane in lanes)
        shown.append(f"{model.name} ({', '.join(loaded) or model.quantization.value})")
    return ", ".join(shown)


def preflight_section(provider: str, findings: tuple[Finding, ...]) -> OutputSection:
    """Return what the provider finds wanting beforehand; nothing where all is well."""
    shown = findings_lines(findings)
    return lines(*shown, title=f"Preflight of provider {provider}") if shown else lines()


def pending_section(fleet: str, pending: PendingChanges) -> OutputSection:
    """Return what `up` would change."""
    if pending.is_new:
        return lines(f"{fleet} is not up yet: all of this is new")
    if pending.is_applied:
        if pending.outdated:
            return lines(
                f"{fleet} is up by this profile, but not everything runs by it yet; `up` alone changes nothing"
            )
        return lines(f"{fleet} is up like this: nothing would change")
    rows = [(change.lane or "fleet", change.field.value, *_sides(change)) for change in pending.plan]
    rows += [("fleet", change.key, change.old, change.new) for change in pending.profile]
    if pending.is_profile_other and not pending.profile:
        rows.append(("fleet", "profile", "", "differs by less than is printed"))
    rows += [("fleet", "by hand", text, "as the controller sees fit") for text in override_clauses(pending.overrides)]
    return section(text_table("LANE WHAT NOW AFTER", rows), title=f"Changes to {fleet}")


def outdated_section(fleet: str, pending: PendingChanges) -> OutputSection:
    """Return which running replicas a rollout would replace; nothing where there are none."""
    if not pending.outdated:
        return lines()
    ids = ", ".join(pending.outdated)
    return lines(f"{ids} would be replaced in {fleet}, lane by lane, new ones first; in shadow mode they stay")


def outdated_line(fleet: str, outdated: tuple[str, ...]) -> str:
    """Return that replicas keep the launch settings they were started with, and what to type."""
    keep = "keeps the launch settings it was" if len(outdated) == 1 else "keep the launch settings they were"
    return (
        f"{', '.join(outdated)} {keep} started with: in shadow mode nothing is rolled out. "
        f"Replace one: fleetctl drain {outdated[0]} -f {fleet}"
    )


def pending_value(pending: PendingChanges) -> dict[str, object]:
    """Return what `up` would change as programs get it."""
    changes = [
        {"lane": change.lane, "field": change.field.value, "old": old, "new": new}
        for change in pending.plan
        for old, new in (_sides(change),)
    ]
    return {
        "is_new": pending.is_new,
        "plan": changes,
        "profile": [{"key": change.key, "old": change.old, "new": change.new} for change in pending.profile],
        "outdated_replicas": list(pending.outdated),
        "overrides": list(override_clauses(pending.overrides)),
    }


def _sides(change: PlanChange) -> tuple[str, str]:
    return format_plan_value(change.field, change.old), format_plan_value(change.field, change.new)


def _cost(plan: Plan) -> str:
    monthly = format_usd(plan.cost_usd_per_hour * _HOURS_A_MONTH)
    per_token = format_usd(plan.cost_usd_per_1m_tokens)
    head = f" and the head at {format_usd(plan.head_usd_per_hour)}/h" if plan.head_usd_per_hour else ""
    nodes = format_count(plan.nodes, "node")
    if not plan.cost_usd_per_hour:  # a figure that nobody is billed says nothing of what the GPUs cost
        return (
            f"{nodes}, {format_usd(0.0)}/h: the provider has no prices; capacity.gpu_per_hour says what a GPU costs you"
        )
    return (
        f"{nodes}{head}, {format_usd(plan.cost_usd_per_hour)}/h ({monthly} a month), {per_token}/1M tokens at the peak"
    )


def _replicas(plan: Plan) -> OutputSection:
    rows = (
        (
            lane.lane, str(lane.replicas), str(lane.spot), format_replica_gpus(lane),
            lane.engine, format_rps(lane.rps), lane.constraint,
            format_usd(lane.cost_usd_per_hour), format_usd(lane.cost_usd_per_1m_tokens), mix_text(lane.mix) or lane.offering.key,
        )
        for lane in plan.lanes
    )  # fmt: skip
    return section(text_table("LANE >REPLICAS >SPOT GPUS ENGINE >PEAK_RPS BOUND_BY >$/H >$/1M +OFFERING", rows))


def _totals(plan: Plan) -> OutputSection:
    """Return what each model takes over all of its lanes; nothing of a fleet of one, whose totals are the plan's."""
    totals = model_totals(plan)
    rows = (
        (
            each.model, ", ".join(each.lanes), ", ".join(each.engines), str(each.replicas),
            ", ".join(f"{count} x {gpu}" for gpu, count in each.gpus.items()) or CPU, format_rps(each.rps),
            format_usd(each.cost_usd_per_hour), format_usd(each.cost_usd_per_1m_tokens),
        )
        for each in totals
    )  # fmt: skip
    table = text_table("MODEL LANES ENGINES >REPLICAS GPUS >PEAK_RPS >$/H >$/1M", rows)
    return section(table, title="Models, over all of their lanes") if len(totals) > 1 else lines()


_NO_FORECAST = "not forecast"  # on a CPU


def _forecast(profile: Profile, plan: Plan) -> OutputSection:
    rows = []
    for lane in plan.lanes:
        slo, forecast = profile.lane(lane.lane).slo, lane.forecast
        if lane.offering.is_on_cpu:
            limits = _limit(slo, Metric.TTFT), _limit(slo, Metric.ITL)
            rows.append((lane.lane, _NO_FORECAST, limits[0], _NO_FORECAST, limits[1], *[NOTHING] * 7))
            continue
        rows.append((
            lane.lane, _ttft(forecast), _limit(slo, Metric.TTFT), _itl(forecast), _limit(slo, Metric.ITL),
            _good(lane),
            *_bursts(lane),
            format_duration(forecast.e2e_p99_s), f"{forecast.utilisation:.0%}", f"{forecast.concurrency:.3g}",
            format_rps(forecast.knee_rps),
        ))  # fmt: skip
    columns = "LANE TTFT_P99 >SLO ITL_P99 >SLO >GOOD >BURST_1S >BURST_10S +>E2E_P99 >BUSY +>RUNNING >KNEE_RPS"
    how = f"simulated: {plan.proof}" if plan.proof else "closed form, not simulated"
    return section(text_table(columns, rows), title=f"Forecast at the peak minute ({how})")


def _good(lane: LanePlan) -> str:
    """Return the share of good requests that was simulated, and the lower end of its interval."""
    proof = lane.proof
    if proof is None or proof.good_share is None:
        return NOTHING
    return f"{format_fraction(proof.good_share)} ({format_fraction(proof.good_share_low or 0.0)})"


def _bursts(lane: LanePlan) -> tuple[str, str]:
    """Return the index of dispersion that its arrivals are planned with, over a second and over ten."""
    planned = lane.arrivals
    return (index_text(planned.over_1s), index_text(planned.over_10s)) if planned else (NOTHING, NOTHING)


def _ttft(f: Forecast) -> str:
    return f"{format_duration(f.ttft_p99_s)} ({format_duration(f.ttft_p99_low_s)}-{format_duration(f.ttft_p99_high_s)})"


def _itl(f: Forecast) -> str:
    return f"{format_duration(f.itl_p99_s)} ({format_duration(f.itl_p99_low_s)}-{format_duration(f.itl_p99_high_s)})"


def _launch(plan: Plan) -> OutputSection:
    rows = (
        (
            lane.lane, str(lane.tensor_parallel), str(lane.stages), str(lane.ranks), str(lane.launch.max_num_seqs), str(lane.launch.max_model_len),
            str(lane.launch.max_num_batched_tokens), f"{lane.launch.gpu_memory_utilization:g}",
            lane.launch.kv_cache or "auto", "on" if lane.launch.prefix_caching else "off",
            " ".join(lane.launch.extra_args),
        )
        for lane in plan.lanes
    )  # fmt: skip
    columns = "LANE >TP >PP >DP >MAX_SEQS >MAX_LEN >BATCHED_TOKENS >GPU_MEMORY KV_CACHE PREFIX_CACHE +EXTRA"
    return section(text_table(columns, rows), title="Launch settings")


def _images(plan: Plan) -> OutputSection:
    containers = image_lines((lane.lane, lane.launch.image) for lane in plan.lanes)
    machines = image_lines((lane.lane, lane.launch.machine_image) for lane in plan.lanes)
    shown = (*containers, *machines)
    return lines(*shown, title="Images, by what their names stand for") if shown else lines()


def _budget(profile: Profile, plan: Plan) -> OutputSection:
    budgeted = [lane for lane in plan.lanes if lane.budget and not lane.offering.is_on_cpu]
    if not budgeted:
        return lines()
    components = list(dict.fromkeys(item.component for lane in budgeted for item in lane.budget))
    rows = [(component, *(_share(lane, component) for lane in budgeted)) for component in components]
    rows.append(("total", *(format_duration(sum(item.seconds for item in lane.budget)) for lane in budgeted)))
    rows.append(("limit", *(_promised_ttft(profile.lane(lane.lane)) for lane in budgeted)))
    columns = " ".join(["COMPONENT", *(f">{lane.lane}" for lane in budgeted)])
    return section(text_table(columns, rows), title="TTFT budget by component")


def _workflows(plan: Plan) -> OutputSection:
    """Return which call percentile follows from which workflow, and what it costs in replicas."""
    rows = [
        (
            each.kind, f"P{each.percentile * 100:g} {format_duration(each.limit_s)}", lane.lane,
            f"{each.steps} x {each.fan_out}", f"P{each.call_percentile * 100:.4g} {format_duration(each.call_limit_s)}",
            format_duration(each.elapsed_s), _taken(lane.replicas, lane.cost_usd_per_hour),
            _taken(each.replicas_without, each.cost_usd_per_hour_without),
        )
        for lane in plan.lanes
        for each in lane.workflows
    ]  # fmt: skip
    columns = "WORKFLOW PROMISED LANE >STEPS_x_CALLS EACH_CALL >FORECAST >PLANNED >WITHOUT"
    return (
        section(
            text_table(columns, rows),
            title="Workflows (E2E of each call; what the lane takes with them, and without)",
        )
        if rows
        else lines()
    )


def _taken(replicas: int, cost_usd_per_hour: float) -> str:
    return f"{replicas}, {format_usd(cost_usd_per_hour)}/h" if replicas else NOTHING


def _share(lane: LanePlan, component: str) -> str:
    found = [item.seconds for item in lane.budget if item.component == component]
    return format_duration(sum(found)) if found else NOTHING


def _promised_ttft(lane: LaneSpec) -> str:
    """Return the whole promise, what passes before the gateway included."""
    target = lane.slo.strictest(Metric.TTFT)
    return format_duration(target.limit_s + outside_s(lane.ttft_budget)) if target else NOTHING


def _limit(slo: LaneSlo, metric: Metric) -> str:
    target = slo.strictest(metric)
    return format_duration(target.limit_s) if target else NOTHING
