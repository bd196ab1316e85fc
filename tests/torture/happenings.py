"""What happens at one instant of a run: deaths, notices, crashes, clocks that are set, and what people ask for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fleetctl.model.catalogue import Market
from fleetctl.model.desired import DesiredPhase, Overrides
from fleetctl.model.ladder import LadderStep
from fleetctl.model.node import Notice, NoticeKind
from fleetctl.model.profile import Mode, OnFailure
from tests.torture.engines import BAD_FLAG
from tests.torture.faults import Fault, FaultKind
from tests.torture.wanted import FLEET, LANES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from fleetctl.model.node import Node
    from tests.torture.life import Life
    from tests.torture.run import Run

_CLOCK_STEPS_S = (3600.0, -3600.0, 30.0, -30.0, 5.0, 900.0)
_NOTICES_S = (0.0, 10.0, 30.0, 120.0)
_LOADS_RPS = (0.0, 0.5, 1.5, 3.0, 6.0, 12.0)
_HINT_S = 20.0
_DOWN_S_MAX = 8.0


def _pick(fault: Fault, nodes: list[Node]) -> Node | None:
    """Return the one of them that a fault is about."""
    return sorted(nodes, key=lambda node: node.id)[fault.draw % len(nodes)] if nodes else None


def _spot(run: Run) -> list[Node]:
    return [node for node in run.cloud.living() if node.market is Market.SPOT and node.notice is None]


async def _crash(run: Run, fault: Fault) -> None:
    if run.life is None:
        run.due_crashes.append(fault)
    elif fault.draw % 5 == 0:
        run.life.kill()
    else:
        run.arm(run.life, fault)


async def _restart(run: Run, fault: Fault) -> None:
    del fault
    if run.life is not None and run.life.task is not None:
        run.life.task.cancel()


async def _fence(run: Run, fault: Fault) -> None:
    del fault
    if run.life is not None:
        before = run.life
        life = await run.born()
        run.begin(_hand_over(before, life))


async def _hand_over(before: Life, life: Life) -> None:
    """Let whoever waits for the former controller's end wait for the new one's."""
    await life.died.wait()
    before.died.set()


async def _step_clock(run: Run, fault: Fault) -> None:
    run.clock.step_wall(_CLOCK_STEPS_S[fault.draw % len(_CLOCK_STEPS_S)])
    run.checks.clock_set_s = run.now_s
    for life in run.lives:
        life.forget_provider()


async def _die(run: Run, fault: Fault) -> None:
    if (node := _pick(fault, run.cloud.living())) is not None:
        run.cloud.end(node.token, "signal 9" if fault.draw % 2 else "terminated")


async def _notice(run: Run, fault: Fault) -> None:
    if (node := _pick(fault, _spot(run))) is not None:
        notice_s = _NOTICES_S[fault.draw % 4]
        await run.cloud.interrupt(node.id, notice_s=notice_s)


async def _lose(run: Run, fault: Fault) -> None:
    if (node := _pick(fault, _spot(run))) is not None:
        run.cloud.end(node.token, "interrupted")


async def _hint(run: Run, fault: Fault) -> None:
    if (node := _pick(fault, run.cloud.living())) is not None:
        kind = (NoticeKind.REBALANCE, NoticeKind.NOT_READY)[fault.draw % 2]
        run.cloud.notify(node.token, Notice(kind=kind, deadline=None, is_certain=False))
        await run.clock.sleep(_HINT_S)
        if node.token in run.cloud.lives():
            run.cloud.notify(node.token, None)


async def _orphan(run: Run, fault: Fault) -> None:
    run.cloud.make_orphan(f"orphan-{fault.draw}", owner=run.store.owner, fleet=FLEET)


async def _gateway_dies(run: Run, fault: Fault) -> None:
    del fault
    run.gateway.kill()


async def _load(run: Run, fault: Fault) -> None:
    run.gateway.load[LANES[fault.draw % 2]] = _LOADS_RPS[fault.draw // 2 % 6]


async def _scale(run: Run, fault: Fault) -> None:
    _override(run, replicas={LANES[fault.draw % 2]: fault.draw // 2 % 5})


async def _shed(run: Run, fault: Fault) -> None:
    steps = (LadderStep.CAP_TOKENS, LadderStep.SHED, LadderStep.BREAKER)
    _override(run, step={LANES[fault.draw % 2]: steps[fault.draw // 2 % 3]})


async def _let_go(run: Run, fault: Fault) -> None:
    del fault
    run.override(Overrides())


def _override(run: Run, *, replicas: dict[str, int] | None = None, step: dict[str, LadderStep] | None = None) -> None:
    desired = run.store.fleet(FLEET)
    if desired is None or desired.phase is not DesiredPhase.UP:
        return
    before = desired.overrides
    run.override(
        replace(before, replicas={**before.replicas, **(replicas or {})}, step={**before.step, **(step or {})})
    )


async def _drain(run: Run, fault: Fault) -> None:
    live = sorted((r for r in run.store.replicas(FLEET) if r.state.is_live), key=lambda r: r.id)
    if live:
        replica_id = live[fault.draw % len(live)].id
        run.checks.wide.acts_again()
        run.store.request_drain(FLEET, replica_id, now=run.clock.now())
        run.drains.add(replica_id)
        run.wake()


async def _up_changed(run: Run, fault: Fault) -> None:
    if run.phase() is DesiredPhase.UP:
        run.up((-1, 0, 1)[fault.draw % 3])
        run.wake()


async def _down_and_up(run: Run, fault: Fault) -> None:
    """Take it down, and want it up again before that is over."""
    if run.phase() is not DesiredPhase.UP:
        return
    run.store.set_phase(FLEET, DesiredPhase.DOWN, now=run.clock.now())
    run.wake()
    await run.clock.sleep(min(fault.for_s, _DOWN_S_MAX))
    run.up()
    run.is_down = False
    run.wake()


async def _member_dies(run: Run, fault: Fault) -> None:
    if (node := _pick(fault, [node for node in run.cloud.living() if node.members])) is not None:
        run.cloud.end_machine(node.members[fault.draw % len(node.members)])


async def _roll(run: Run, fault: Fault) -> None:
    _roll_to(run, fault, f"--revision {fault.draw % 3}")


async def _roll_badly(run: Run, fault: Fault) -> None:
    """Want flags under which no engine becomes healthy, for a while: somebody notices, if the controller does not."""
    _roll_to(run, fault, BAD_FLAG)


def _roll_to(run: Run, fault: Fault, flags: str) -> None:
    if run.phase() is not DesiredPhase.UP:
        return
    lanes = (LANES, LANES[:1], LANES[1:])[fault.draw // 3 % 3]
    before = dict(run.flags)
    run.flags = {**run.flags, **dict.fromkeys(lanes, flags)}
    run.up()
    run.wake()
    if flags == BAD_FLAG:
        run.flags = before


async def _pause(run: Run, fault: Fault) -> None:
    del fault
    desired = run.store.fleet(FLEET)
    if desired is not None and desired.phase is DesiredPhase.UP:
        run.override(replace(desired.overrides, is_rollout_paused=True))


async def _resume(run: Run, fault: Fault) -> None:
    del fault
    desired = run.store.fleet(FLEET)
    if desired is not None and desired.phase is DesiredPhase.UP and desired.overrides.is_rollout_paused:
        now = run.clock.now()
        run.override(replace(desired.overrides, is_rollout_paused=False, rollout_resumed_at=now))


async def _undo(run: Run, fault: Fault) -> None:
    """Want an earlier revision again."""
    if run.phase() is DesiredPhase.UP and len(run.revisions) > 1:
        profile, plan = run.revisions[-2 - fault.draw % (len(run.revisions) - 1)]
        if profile.control.mode is Mode.ACTIVE:
            run.put_revision(profile, plan)
            run.wake()


async def _watch_only(run: Run, fault: Fault) -> None:
    """Have the controller only watch for a while."""
    if run.phase() is not DesiredPhase.UP:
        return
    _set_mode(run, is_shadow=True)
    await run.clock.sleep(fault.for_s)
    _set_mode(run, is_shadow=False)


def _set_mode(run: Run, *, is_shadow: bool) -> None:
    run.is_shadow = is_shadow
    if run.phase() is DesiredPhase.UP:
        at_rest = run.checks.wide.at_rest() if is_shadow else set()
        run.up()
        if is_shadow:
            run.checks.wide.watch_only(at_rest)
        run.wake()


def see_to_rollout(run: Run) -> None:
    """Have people see to a rollout that is held, or that cannot end well by itself, once nothing goes wrong any more."""
    desired, rollout = run.store.fleet(FLEET), run.store.memory(FLEET).rollout
    if desired is None or desired.phase is not DesiredPhase.UP or not run.setting.is_wide:
        return
    is_bad = any(BAD_FLAG in lane.launch.extra_args for lane in desired.plan.lanes)
    goes_back = run.setting.rollout.on_failure is OnFailure.ROLLBACK and run.seed % 2
    if is_bad and not (goes_back and rollout is not None and rollout.stable is not None):
        run.up()
        run.wake()
    elif (rollout is not None and not rollout.is_over) or run.overrides.is_rollout_paused:
        now = run.clock.now()
        run.override(replace(desired.overrides, is_rollout_paused=False, rollout_resumed_at=now))


HAPPENINGS: dict[FaultKind, Callable[[Run, Fault], Awaitable[None]]] = {
    FaultKind.CRASH: _crash,
    FaultKind.RESTART: _restart,
    FaultKind.FENCED: _fence,
    FaultKind.CLOCK_STEP: _step_clock,
    FaultKind.NODE_DIES: _die,
    FaultKind.SPOT_NOTICE: _notice,
    FaultKind.SPOT_LOSS: _lose,
    FaultKind.HINT: _hint,
    FaultKind.ORPHAN: _orphan,
    FaultKind.GATEWAY_DIES: _gateway_dies,
    FaultKind.LOAD: _load,
    FaultKind.SCALE: _scale,
    FaultKind.SHED: _shed,
    FaultKind.LET_GO: _let_go,
    FaultKind.DRAIN: _drain,
    FaultKind.UP_CHANGED: _up_changed,
    FaultKind.DOWN_AND_UP: _down_and_up,
    FaultKind.MEMBER_DIES: _member_dies,
    FaultKind.ROLLOUT: _roll,
    FaultKind.BAD_ROLLOUT: _roll_badly,
    FaultKind.ROLLOUT_PAUSE: _pause,
    FaultKind.ROLLOUT_RESUME: _resume,
    FaultKind.ROLLOUT_UNDO: _undo,
    FaultKind.SHADOW: _watch_only,
}
