"""What vLLM 0.32's answers look like on the wire: OpenAI's, with keys of its own, most of them null."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from fleetctl_emulator.formats import OpenAiFormat

if TYPE_CHECKING:
    from collections.abc import Sequence as Items

    from fleetctl_emulator.formats import ChoiceProgress, ResponseFields
    from fleetctl_emulator.options import EmulatorOptions

_CHAT_COUNTS = b'"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d,"completion_tokens_details":null}'
_TRANSFERS = {"kv_transfer_params": None, "ec_transfer_params": None, "metrics": None}


def fingerprint(options: EmulatorOptions) -> str:
    """Return `system_fingerprint`: the version, the parallelism, and a hash of how it was launched."""
    parallel = f"-tp{options.tensor_parallel}" if options.tensor_parallel > 1 else ""
    launched = (
        f"{options.model} {options.quantization} {options.kv_cache} {options.max_num_seqs} {options.max_model_len}"
    )
    return f"vllm-{options.engine_version}{parallel}-{hashlib.blake2b(launched.encode(), digest_size=4).hexdigest()}"


class VllmFormat(OpenAiFormat):
    """Spells chats and completions as vLLM started with --enable-prompt-tokens-details does, which is how fleetctl starts it."""

    def __init__(self, fields: ResponseFields, *, system_fingerprint: str) -> None:
        super().__init__(fields)
        self._fingerprint = {"system_fingerprint": system_fingerprint}
        if self._is_chat:
            self.counts = _CHAT_COUNTS

    def _message(self, text: str) -> dict[str, Any]:
        return super()._message(text) | dict.fromkeys(("refusal", "annotations", "audio", "function_call", "reasoning"))

    def _whole_choice(self, progress: ChoiceProgress) -> dict[str, Any]:
        of_prompt = {} if self._is_chat else {"prompt_logprobs": None, "prompt_token_ids": None}
        return super()._whole_choice(progress) | {"token_ids": None} | of_prompt | {"routed_experts": None}

    def _ending(self, progress: ChoiceProgress) -> dict[str, Any]:
        return super()._ending(progress) | {"stop_reason": progress.stop_reason}

    def _choice(self, index: int, text: str) -> dict[str, Any]:
        choice = super()._choice(index, text)
        if self._is_chat:
            return choice | {"token_ids": None}
        return choice | {"stop_reason": None, "prompt_token_ids": None, "token_ids": None}

    def _figures(self, all_progress: Items[ChoiceProgress], *, is_stream: bool) -> dict[str, Any]:
        figures = super()._figures(all_progress, is_stream=is_stream)
        details: dict[str, Any] = figures["prompt_tokens_details"]
        if is_stream:
            return figures | {"prompt_tokens_details": details | ({"created_cache_tokens": 0} if self._is_chat else {})}
        created = {"created_cache_tokens": 0 if self._is_chat else None, "multimodal_tokens": None}
        return figures | {"prompt_tokens_details": details | created, "completion_tokens_details": None}

    def _whole_rest(self, figures: dict[str, Any]) -> dict[str, Any]:
        of_prompt = {"prompt_logprobs": None, "prompt_token_ids": None, "prompt_text": None} if self._is_chat else {}
        return {"service_tier": None, **self._fingerprint, "usage": figures, **of_prompt, **_TRANSFERS}

    def _opening_rest(self) -> dict[str, Any]:
        return {"prompt_token_ids": None, "prompt_text": None}

    def _last_rest(self) -> dict[str, Any]:
        # The last event of all has it.
        return {} if self._wants_usage else self._fingerprint

    def _closing_rest(self) -> dict[str, Any]:
        return self._fingerprint
