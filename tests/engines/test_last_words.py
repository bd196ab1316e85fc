"""What engines said last, as vLLM 0.32 wrote it on a CPU, and in the words of the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetctl.model.engine_fault import EngineFaultKind
from fleetctl_emulator.engine import EmulatedEngine
from fleetctl_sglang.engine import SglangEngine
from fleetctl_tgi.engine import TgiEngine
from fleetctl_vllm.engine import VllmEngine

DEATHS = Path(__file__).parent / "deaths"
VLLM = {
    "unknown-flag": (EngineFaultKind.ARGUMENTS, "unrecognized arguments: --frobnicate"),
    "bad-value": (EngineFaultKind.ARGUMENTS, "argument --dtype: invalid choice: 'float7'"),
    "no-weights": (EngineFaultKind.MODEL, "Cannot find any model weights"),
    "truncated-weights": (EngineFaultKind.MODEL, "Error while deserializing header: incomplete metadata"),
    "garbled-header": (EngineFaultKind.MODEL, "the header of its weights cannot be read: Value error, Unterminated"),
    "no-tokenizer": (EngineFaultKind.MODEL, "Couldn't instantiate the backend tokenizer"),
    "garbage-weights": (EngineFaultKind.MODEL, "the header of its weights cannot be read: MemoryError"),
    "no-such-model": (EngineFaultKind.MODEL, "outgoing traffic has been disabled"),
    "broken-config": (EngineFaultKind.MODEL, "is not a valid JSON file"),
    "gated": (EngineFaultKind.HUB_ACCESS, "gated repo"),
    "not-found": (EngineFaultKind.HUB_ACCESS, "acme/nothing is not a local folder"),
    "port-taken": (EngineFaultKind.PORT, "Address already in use"),
    "too-long": (EngineFaultKind.ARGUMENTS, "max_model_len (99999999) is greater"),
    "unknown-architecture": (EngineFaultKind.MODEL, "does not recognize this architecture"),
}


ONLY_VLLM = {"garbage-weights"}  # a MemoryError, which the emulator asks every engine about that it can play


@pytest.mark.parametrize("death", sorted(VLLM))
@pytest.mark.parametrize("engine", [VllmEngine(), EmulatedEngine()], ids=lambda engine: engine.name)
def test_the_cause_is_found_in_what_a_real_engine_wrote(engine, death):
    if death in ONLY_VLLM and engine.name != "vllm":
        pytest.skip("its last line is any engine's")
    kind, words = VLLM[death]
    fault = engine.diagnose((DEATHS / f"{death}.txt").read_text())
    assert fault is not None
    assert (fault.kind, words in fault.line) == (kind, True), fault
    assert fault.kind.is_final or fault.kind.is_final_repeated


def test_every_death_on_file_is_known():
    assert {path.stem for path in DEATHS.glob("*.txt")} == set(VLLM)


@pytest.mark.parametrize(
    ("engine", "text", "kind"),
    [
        (VllmEngine(), "RuntimeError: No CUDA GPUs are available", EngineFaultKind.ACCELERATOR),
        (VllmEngine(), "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", EngineFaultKind.MEMORY),
        (VllmEngine(), "OSError: [Errno 98] Address already in use", EngineFaultKind.PORT),
        (VllmEngine(), "OSError: [Errno 28] No space left on device: '/root/.cache/hf'", EngineFaultKind.STORAGE),
        (VllmEngine(), "PermissionError: [Errno 13] Permission denied: '/cache/hub'", EngineFaultKind.STORAGE),
        (VllmEngine(), "RuntimeError: Cannot find any model weights with `/m`", EngineFaultKind.MODEL),
        (VllmEngine(), "OSError: You are trying to access a gated repo.", EngineFaultKind.HUB_ACCESS),
        (VllmEngine(), "ValueError: something new", EngineFaultKind.UNKNOWN),
        (TgiEngine(), "error: unexpected argument '--frobnicate' found", EngineFaultKind.ARGUMENTS),
        (SglangEngine(), "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", EngineFaultKind.MEMORY),
    ],
)  # fmt: skip
def test_faults_are_told_by_kind(engine, text, kind):
    fault = engine.diagnose(f"INFO starting\n{text}\nINFO good bye\n")
    assert (fault.kind, fault.line) == (kind, text)


def line_of(text: str) -> str:
    fault = VllmEngine().diagnose(text)
    assert fault is not None
    return fault.line


def test_the_root_cause_is_shown_and_not_its_echo():
    text = (
        "(EngineCore pid=7) ERROR 11-22 09:19:01 [core.py:708] ValueError: head size 7 is odd\n"
        "(APIServer pid=5) RuntimeError: Engine core initialization failed. See root cause above.\n"
    )
    assert line_of(text) == "ValueError: head size 7 is odd"


def test_words_are_one_short_printable_line():
    line = line_of("\x1b[31mValueError: \x1b]0;title\x07" + "x" * 10_000 + "\n")
    assert line.isprintable()
    assert len(line) <= 240


def test_silence_is_no_fault():
    assert VllmEngine().diagnose("\n \n") is None
