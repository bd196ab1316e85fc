"""How vLLM says why it does not start; measured on 0.32."""

from __future__ import annotations

from fleetctl.engine_kit.last_words import LastWords
from fleetctl.engine_kit.program import EngineMessages
from fleetctl.engine_kit.start_faults import StartFailures
from fleetctl.model.engine_fault import EngineFaultKind

_BROKEN_HEADER = "the header of its weights cannot be read"
_WORDS = (
    LastWords(EngineFaultKind.MODEL, r"Cannot find any model weights"),
    LastWords(EngineFaultKind.MODEL, r"SafetensorError|Error while deserializing header|EntryNotFoundError"),
    LastWords(EngineFaultKind.MODEL, r"are not supported for now|Model architectures .* failed to be inspected"),
    # It reads the header of the weights while it checks its settings; what is wrong with a broken one comes out as anything.
    LastWords(
        EngineFaultKind.MODEL,
        r"^Value error, (?:Unterminated string|Expecting |Extra data|Invalid (?:control character|\\?escape)|'utf-8' codec)",
        meaning=_BROKEN_HEADER,
    ),
    LastWords(
        EngineFaultKind.MODEL,
        r"^(?:MemoryError|OverflowError|UnicodeDecodeError|json\.decoder\.JSONDecodeError|struct\.error)",
        within=r"in parse_safetensors_file_metadata",
        meaning=_BROKEN_HEADER,
    ),
    LastWords(
        EngineFaultKind.MODEL, r"Couldn't instantiate the backend tokenizer|Can't load (?:the )?(?:tokenizer|config)"
    ),
    LastWords(EngineFaultKind.MODEL, r"is not a valid JSON file|Transformers does not recognize this architecture"),
    LastWords(
        EngineFaultKind.MEMORY, r"No available memory for the cache blocks|is less than desired GPU memory utilization"
    ),
    LastWords(EngineFaultKind.MEMORY, r"larger than the available KV cache memory|not enough memory"),
    LastWords(EngineFaultKind.ARGUMENTS, r"^Value error, "),
    LastWords(EngineFaultKind.ARGUMENTS, r"must be divisible by tensor parallel size|validation errors? for \w+Config"),
    LastWords(
        EngineFaultKind.ACCELERATOR, r"Failed to infer device type|World size \(\d+\) is larger than the number of"
    ),
    # The exit code of a process that SIGKILL ended; one that failed has written why, and is found above.
    LastWords(EngineFaultKind.KILLED, r"Failed core proc\(s\): \{[^}]*: -9\b"),
)
_ECHOES = r"died unexpectedly|(?:Engine core initialization failed|See root cause above)(?!.*: -9\b)|WorkerProc initialization failed"
# Written by the engine core, or by what waited for it, once it has failed; its processes carry these titles for life.
_FAILURES = StartFailures(
    lines=r"EngineCore failed to start\.|Engine core initialization failed|WorkerProc (?:failed to start|initialization failed)",
    processes=r"VLLM::",
)
MESSAGES = EngineMessages(patterns=_WORDS, echoes=_ECHOES, failures=_FAILURES)
