"""Adds a model to the user's own catalogue by its config.json: from a directory, the Hugging Face cache, or the hub."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

import yaml

from fleetctl import codec
from fleetctl.catalogue.known import MODEL_ENTRY_KEYS, load_catalogue
from fleetctl.catalogue.model_card import model_card_from_config
from fleetctl.engine_kit.hub_cache import cached_file, hub_home
from fleetctl.errors import ConfigError, CredentialsError, NotFoundError, ProviderError
from fleetctl.files import write_whole
from fleetctl.model.catalogue import ModelCard
from fleetctl.operations.model_reading import understood
from fleetctl.paths import config_dir
from fleetctl.yaml_text import load_yaml

_HUB = "https://huggingface.co"
_DEADLINE_S = 20.0
_CONFIG_BYTES_MAX = 4 * 1024 * 1024  # the largest published ones have some 100 kB
_CONFIG = "config.json"
_TRUE = frozenset({"1", "ON", "YES", "TRUE"})  # as the hub's own client reads it


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedModel:
    """A model that the user's own catalogue has now."""

    card: ModelCard
    file: str  # the catalogue
    understood: tuple[str, ...]  # of its config.json, in sentences


def add_model(source: str, *, model_id: str = "", force: bool = False) -> AddedModel:
    """Write the card of a model into the user's own models.yaml; `source` is a directory, a config.json or a hub id.

    Raises NotFoundError, ConfigError (a family that is not counted, an id that is there already), CredentialsError (a gated
    model), ProviderError (the hub does not answer).
    """
    card = replace(_card(source), id=model_id or _id_of(source))
    path = config_dir() / "profiles" / "models.yaml"
    before = _before(path)
    known = load_catalogue().models.get(card.id)
    if known is not None and not force:
        raise ConfigError(
            f"{card.id} is in the catalogue already ({known.source or 'its own figures'})",
            hint="give --force to put this one in its place, or another name with --id",
        )
    entry = {key: value for key, value in codec.to_plain(card).items() if key in MODEL_ENTRY_KEYS and value is not None}
    tree = {**before, card.id: entry}
    text = yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text.encode(), mode=0o644, is_durable=True)
    except OSError as exc:
        raise ConfigError(f"{path} cannot be written: {exc.strerror}") from exc
    return AddedModel(card=card, file=str(path), understood=tuple(understood(card)))


def _id_of(source: str) -> str:
    path = Path(source)
    if not path.exists():
        return source.partition("@")[0]
    return path.absolute().parent.name if path.is_file() else path.absolute().name


def _before(path: Path) -> dict[str, object]:
    """Return the entries of the user's own file; one with comments would lose them, and is left to its owner."""
    if not path.is_file():
        return {}
    text = path.read_text(encoding="utf-8")
    if any(line.lstrip().startswith("#") or " #" in line for line in text.splitlines()):
        raise ConfigError(
            f"{path} has comments, which would be lost", hint="write the entry there by hand, or move them elsewhere"
        )
    tree = load_yaml(text)
    if tree is not None and not isinstance(tree, dict):
        raise ConfigError(f"{path}: is not a section of entries by name")
    return tree or {}


def _card(source: str) -> ModelCard:
    path = Path(source).absolute()
    if path.is_file():
        return model_card_from_config(path)
    if path.is_dir():
        return model_card_from_config(path / _CONFIG)
    if source.partition("@")[0].count("/") != 1 or source.startswith((".", "/")):
        raise NotFoundError(
            f"{source!r} is no directory, no config.json and no hub id",
            hint="a hub id is ORGANISATION/NAME, or ORGANISATION/NAME@REVISION",
        )
    cached = None if "@" in source else cached_file(source, _CONFIG, os.environ)
    if cached is not None:
        return model_card_from_config(cached)
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / _CONFIG
        file.write_bytes(_fetched(source))
        return replace(model_card_from_config(file), source=f"config.json of {source}")


def _fetched(model_id: str) -> bytes:
    import httpx

    model_id, _, revision = model_id.partition("@")
    hub = (os.environ.get("HF_ENDPOINT") or _HUB).rstrip("/")
    url = f"{hub}/{model_id}/resolve/{quote(revision or 'main', safe='')}/{_CONFIG}"
    token = _token()
    headers = {"authorization": f"Bearer {token}"} if token else {}
    by_path = f"or give the directory that has its {_CONFIG}"
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in _TRUE:
        raise NotFoundError(
            f"{model_id} is not in this machine's cache, and HF_HUB_OFFLINE keeps the hub from being asked",
            hint=f"unset it, {by_path}",
        )
    try:
        response = httpx.get(url, headers=headers, timeout=_DEADLINE_S, follow_redirects=True)
    except httpx.HTTPError as exc:
        raise ProviderError(
            f"{url} does not answer: {exc}", hint=f"try again where the hub is reached, {by_path}"
        ) from exc
    if response.status_code in {401, 403}:
        raise CredentialsError(
            f"{model_id} is gated or private, or not there, and the hub refuses it (HTTP {response.status_code}"
            f"{', with the token that is given' if token else ', and no token is given'})",
            hint=f"accept its licence at {_HUB}/{model_id}, and set HF_TOKEN to a token of that account; {by_path}",
        )
    if response.status_code == 404:
        at = f" at {revision}" if revision else ""
        raise NotFoundError(f"the hub has no {_CONFIG} of {model_id}{at}", hint=f"look at its spelling, {by_path}")
    if response.status_code == 429:
        again = response.headers.get("retry-after", "")
        when = f"in {again} s" if again.isdigit() else "in some minutes"
        raise ProviderError(
            f"{hub} takes no more requests from here for now (HTTP 429)",
            hint=f"try again {when}; with a token (HF_TOKEN) it takes more; {by_path}",
        )
    if response.status_code != 200 or len(response.content) > _CONFIG_BYTES_MAX:
        raise ProviderError(f"{url} answers {response.status_code}, {len(response.content)} bytes", hint=by_path)
    if not _is_json(response.content):
        raise ProviderError(f"{url} answers what is no JSON", hint=by_path)
    return response.content


def _token() -> str:
    """Return the token of the environment, else the one that `hf auth login` has left here; empty: none."""
    if token := os.environ.get("HF_TOKEN", "").strip():
        return token
    try:
        return (hub_home(os.environ) / "token").read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as exc:
        raise CredentialsError(
            f"the token of `hf auth login` cannot be read: {exc}", hint="log in again, or set HF_TOKEN"
        ) from exc


def _is_json(content: bytes) -> bool:
    try:
        json.loads(content)
    except ValueError:
        return False
    return True
