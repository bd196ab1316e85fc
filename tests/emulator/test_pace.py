"""Steps keep the modelled pace, do not drift, and do not storm when the machine was away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from fleetctl_emulator.engine_core import CATCH_UP_S, EngineCore
from fleetctl_emulator.scheduler import Scheduler
from fleetctl_emulator.sequence import Sequence
from fleetctl_emulator.tokens import AnswerText
from tests.emulator.engine_bench import limits, prompt_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl_emulator.engine_metrics import EngineMetrics

STEP_S = 0.010


class HandLoop:
    """A loop and a clock moved by hand; callbacks come `late_s` after they are due."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.late_s = 0.0
        self.due: list[tuple[float, Callable[[], None]]] = []

    def call_soon(self, callback: Callable[[], None]) -> Any:
        return self.call_later(0.0, callback)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Any:
        assert delay_s >= 0
        self.due.append((self.now_s + delay_s, callback))
        return self

    def cancel(self) -> None:
        self.due.clear()

    def monotonic_s(self) -> float:
        return self.now_s

    def run(self, times: int) -> None:
        for _ in range(times):
            if self.due:
                at_s, callback = self.due.pop(0)
                self.now_s = max(self.now_s, at_s) + self.late_s
                callback()


class NoMetrics:
    def stepped(self, result: object) -> None:
        pass


def engine_on(loop: HandLoop, output_tokens: int) -> tuple[EngineCore, Sequence]:
    scheduler = Scheduler(limits(), lambda batch: STEP_S)
    engine = EngineCore(scheduler, cast("EngineMetrics", NoMetrics()), loop=cast("Any", loop), clock=cast("Any", loop))
    sequence = Sequence(
        number=1, prompt=prompt_of(10), answer=AnswerText("0"), output_tokens=output_tokens, arrived_s=loop.now_s
    )
    engine.submit([sequence])
    return engine, sequence


def test_late_callbacks_do_not_add_up():
    loop = HandLoop()
    loop.late_s = 0.004
    engine, sequence = engine_on(loop, 101)
    loop.run(102)
    assert sequence.generated == 101
    assert sequence.last_token_s - sequence.first_token_s < 100 * STEP_S + loop.late_s + 1e-9
    assert engine.written_off_s == 0
    assert engine.lag_s > 0


def test_debt_beyond_the_catch_up_is_written_off():
    loop = HandLoop()
    engine, sequence = engine_on(loop, 1000)
    loop.run(10)
    done = sequence.generated
    loop.now_s += 5.0  # the machine was away for 500 steps
    away_until_s = loop.now_s
    loop.run(50)
    assert sequence.generated - done == 50
    assert loop.now_s - away_until_s >= (50 - CATCH_UP_S / STEP_S - 2) * STEP_S
    assert 4.8 < engine.written_off_s <= 5.0


def test_nothing_is_scheduled_while_there_is_nothing_to_do():
    loop = HandLoop()
    engine, sequence = engine_on(loop, 3)
    loop.run(10)
    assert sequence.generated == 3
    assert loop.due == []
    assert engine.open == 0


def test_stuck_engine_sets_no_timer_and_goes_on_where_it_was():
    loop = HandLoop()
    engine, sequence = engine_on(loop, 10)
    loop.run(5)
    engine.get_stuck()
    assert loop.due == []
    before = sequence.generated
    loop.now_s += 60
    engine.get_going()
    loop.run(20)
    assert sequence.generated == 10 > before
    assert engine.written_off_s == 0
