"""The packaged starting points: what `fleetctl init` writes."""

from __future__ import annotations

import re

from fleetctl import resources
from fleetctl.errors import ConfigError, NotFoundError
from fleetctl.spelling import is_name, suggest

QUICKSTART = "quickstart"
_FOLDER = "use-cases/"
_PROVIDERS = "providers/"
# Hugging Face gives these weights only to whoever has agreed to a licence: what a newcomer brings up first needs no token.
_GATED = "meta-llama/Llama-3.1-8B-Instruct"
_OPEN = "model: {id: Qwen/Qwen3-8B, quantization: fp8}"


def use_cases() -> tuple[str, ...]:
    """Return the names `starter` knows: quickstart first, then the use cases, those of the user's own included."""
    found = (name for name in resources.available("profiles") if name.startswith(_FOLDER) and name.endswith(".yaml"))
    return (QUICKSTART, *(name.removeprefix(_FOLDER).removesuffix(".yaml") for name in found))


def starter_providers() -> tuple[str, ...]:
    """Return the providers that `starter` knows, those of the user's own included."""
    found = (name for name in resources.available("profiles") if name.startswith(_PROVIDERS) and name.endswith(".yaml"))
    return tuple(name.removeprefix(_PROVIDERS).removesuffix(".yaml") for name in found)


def starter(use_case: str = QUICKSTART, *, name: str = "", provider: str = "") -> str:
    """Return the commented YAML of a use case, under another fleet name and for real engines at a provider if those are given.

    Raises NotFoundError naming the nearest use case or provider, and ConfigError for a name no fleet can have.
    """
    text = _named(_text(use_case), name)
    if not provider:
        return text
    known = starter_providers()
    if provider not in known:
        near = suggest(provider, known)
        raise NotFoundError(f"no starter profile is for {provider!r}{near}", hint=f"providers: {', '.join(known)}")
    return _placed(text, resources.find("profiles", f"{_PROVIDERS}{provider}.yaml").read_text(encoding="utf-8"))


def _placed(text: str, fragment: str) -> str:
    """Return a profile with a provider's part in the place of its own, its engines real ones and its model open to all."""
    comments, marker, part = fragment.partition("provider:\n")
    _, _, body = text.partition("apiVersion:")
    body = re.sub(r"(?m)^provider: .*\n(?:[ ]+.*\n)*", lambda _: marker + part, body, count=1)
    body = re.sub(r"(?m)^engine: emulator\b", lambda _: "engine: vllm", body, count=1)
    body = re.sub(rf"(?m)^model: .*{re.escape(_GATED)}.*$", lambda _: _OPEN, body, count=1)
    return f"{comments}apiVersion:{body}"


def _text(use_case: str) -> str:
    known = use_cases()
    if use_case not in known:
        near = suggest(use_case, known)
        raise NotFoundError(f"no use case is called {use_case!r}{near}", hint=f"use cases: {', '.join(known)}")
    file = f"{use_case}.yaml" if use_case == QUICKSTART else f"{_FOLDER}{use_case}.yaml"
    return resources.find("profiles", file).read_text(encoding="utf-8")


def _named(text: str, name: str) -> str:
    if not name:
        return text
    if not is_name(name):
        raise ConfigError(
            f"{name!r} is not a fleet name",
            hint="write lower-case letters, digits and dashes, a letter first, 40 at most",
        )
    return re.sub(r"(?m)^name:.*$", f"name: {name}", text, count=1)
