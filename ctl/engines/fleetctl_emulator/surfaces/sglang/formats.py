"""What SGLang 0.5.23's answers look like on the wire: OpenAI's, with keys of its own (srt/entrypoints/openai/protocol.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleetctl_emulator.formats import ChoiceProgress, OpenAiFormat

if TYPE_CHECKING:
    from collections.abc import Sequence as Items


class SglangFormat(OpenAiFormat):
    """Spells chats and completions as SGLang started with --enable-cache-report does, which is how fleetctl starts it."""

    def _message(self, text: str) -> dict[str, Any]:
        return super()._message(text) | {"reasoning_content": None}

    def _ending(self, progress: ChoiceProgress) -> dict[str, Any]:
        return super()._ending(progress) | {"matched_stop": progress.stop_reason}

    def _figures(self, all_progress: Items[ChoiceProgress], *, is_stream: bool) -> dict[str, Any]:
        return super()._figures(all_progress, is_stream=is_stream) | {"reasoning_tokens": 0}

    def _whole_rest(self, figures: dict[str, Any]) -> dict[str, Any]:
        return {"usage": figures, "metadata": None}
