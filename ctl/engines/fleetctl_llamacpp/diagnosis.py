"""How llama.cpp says why it does not start; measured on b10434 and b11549."""

from __future__ import annotations

from fleetctl.engine_kit.last_words import LastWords
from fleetctl.engine_kit.program import EngineMessages
from fleetctl.engine_kit.start_faults import StartFailures
from fleetctl.model.engine_fault import EngineFaultKind

_WORDS = (
    LastWords(EngineFaultKind.ARGUMENTS, r"error: invalid argument: |error while handling argument "),
    LastWords(EngineFaultKind.MODEL, r"failed to open GGUF file"),
    LastWords(EngineFaultKind.MODEL, r"invalid magic characters|failed to read magic"),
    LastWords(EngineFaultKind.MODEL, r"model is corrupted or incomplete|unknown model architecture"),
    LastWords(
        EngineFaultKind.MEMORY,
        r"failed to allocate (?:\S+ )?buffer|unable to allocate \S+ buffer|failed to allocate .*kv cache|cudaMalloc failed|std::bad_alloc",
    ),
    LastWords(EngineFaultKind.MODEL, r"error loading model: |gguf_init_from_\w+: "),
    LastWords(EngineFaultKind.PORT, r"couldn't bind (?:HTTP )?server socket"),
)
_ECHOES = (
    r"failed to load model|exiting due to (?:model loading|HTTP server) error|cleaning up before exit"
    r"|trying to fit params"
)
# One process: whatever it does not survive ends it.
_FAILURES = StartFailures(lines=r"(?!)")
MESSAGES = EngineMessages(patterns=_WORDS, echoes=_ECHOES, failures=_FAILURES)
