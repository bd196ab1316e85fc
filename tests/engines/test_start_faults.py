"""Whether an engine that still runs will ever be ready, by its log and by its processes that are no more."""

from __future__ import annotations

import pytest

from fleetctl.engine_kit.start_faults import had_no_word, killed_by, was_killed
from fleetctl.model.engine_fault import EngineFaultKind
from fleetctl.model.node import NodeProcess
from fleetctl_emulator.engine import EmulatedEngine
from fleetctl_sglang.engine import SglangEngine
from fleetctl_tgi.engine import TgiEngine
from fleetctl_vllm.engine import VllmEngine

LOADING = "(EngineCore pid=7) INFO 11-22 09:19:01 [core.py:133] Initializing a V1 LLM engine\n"
NO_WEIGHTS = (
    "(Worker pid=9) ERROR 11-22 09:19:05 [multiproc_executor.py:905] WorkerProc failed to start.\n"
    "(Worker pid=9) ERROR 11-22 09:19:05 [multiproc_executor.py:905] RuntimeError: Cannot find any model weights with `/m`\n"
)


def ended(name: str, how: str = "") -> tuple[NodeProcess, ...]:
    return (NodeProcess(id="7", name=name, exit_reason=how),)


@pytest.mark.parametrize("engine", [VllmEngine(), EmulatedEngine()], ids=lambda engine: engine.name)
def test_a_worker_that_failed_is_told_from_the_log_alone(engine):
    fault = engine.diagnose_start(LOADING + NO_WEIGHTS, ())
    assert fault is not None
    assert (fault.kind, fault.line) == (EngineFaultKind.MODEL, "RuntimeError: Cannot find any model weights with `/m`")


@pytest.mark.parametrize("name", ["VLLM::EngineCor", "VLLM::Worker", "VLLM::Worker_TP"])
def test_the_loss_of_an_engine_core_or_a_worker_is_one_without_a_word_of_it(name):
    fault = VllmEngine().diagnose_start(LOADING, ended(name))
    assert fault is not None
    assert fault.kind is EngineFaultKind.UNKNOWN
    assert fault.line.startswith(f"no longer there: {name}; the last line: ")


def test_any_process_that_a_signal_killed_is_told_with_the_signal():
    fault = VllmEngine().diagnose_start(LOADING, ended("python", "signal 9"))
    assert fault is not None
    assert fault.kind is EngineFaultKind.KILLED
    assert "its process python was killed by signal 9 (SIGKILL); by the system where memory is short" in fault.line


@pytest.mark.parametrize("engine", [VllmEngine(), SglangEngine(), TgiEngine(), EmulatedEngine()], ids=lambda e: e.name)
@pytest.mark.parametrize(
    "gone",
    [
        (),
        ended("python"),
        ended("python", "exit 0"),
        ended("python", "exit 1"),
        ended("gcc", "signal 15"),
        ended("ninja"),
    ],
)
def test_a_start_is_not_given_up_for_a_process_that_has_done_its_work(engine, gone):
    assert engine.diagnose_start(LOADING + "WARNING Address already in use, trying another port\n", gone) is None


def test_signals_are_told_from_requests_to_end():
    assert [was_killed(how) for how in ("signal 9", "signal 11", "signal 15", "exit 9", "interrupted", "")] == [
        True, True, False, False, False, False,
    ]  # fmt: skip
    assert killed_by("signal 11").line == "its process was killed by signal 11 (SIGSEGV)"
    assert killed_by("signal 64").line == "its process was killed by signal 64 (SIGRTMAX)"
    assert killed_by("signal 99").kind is EngineFaultKind.KILLED


def test_a_kill_is_its_own_cause_and_what_was_written_before_it_a_hint():
    log = "CUDA out of memory, trying a smaller batch\nINFO 127.0.0.1 - GET /health 200\n\n"
    fault = killed_by("signal 9", log_tail=log)
    assert fault.kind is EngineFaultKind.KILLED
    assert fault.line == (
        "its process was killed by signal 9 (SIGKILL); by the system where memory is short, else by hand; "
        "the last line it wrote: INFO 127.0.0.1 - GET /health 200"
    )
    assert killed_by("signal 9, by the OOM killer").line == (
        "its process was killed by signal 9 (SIGKILL); by the kernel's OOM killer: memory ran out"
    )
    assert [had_no_word(how) for how in ("signal 9", "signal 9, by the OOM killer", "signal 6", "exit 9", "")] == [
        True, True, False, False, False,
    ]  # fmt: skip
    assert len(killed_by("signal 9", log_tail="x" * 5000).line) <= 240


FAILED_CORE = (
    "(APIServer pid=5) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n"
)


def test_the_exit_code_of_a_killed_core_is_understood():
    fault = VllmEngine().diagnose(LOADING + FAILED_CORE.format("{'EngineCore': -9}"))
    assert fault is not None
    assert fault.kind is EngineFaultKind.KILLED


def test_where_nothing_but_the_echo_was_written_it_is_shown():
    fault = VllmEngine().diagnose(LOADING + FAILED_CORE.format("{}"))
    assert fault is not None
    assert fault.line.startswith("RuntimeError: Engine core initialization failed")
