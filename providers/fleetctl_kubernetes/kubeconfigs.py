"""Where a kubeconfig leads, and as whom: read as kubectl reads it, what is wrong with it named before anything is called."""

from __future__ import annotations

import logging
import os
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetctl.errors import CredentialsError
from fleetctl.spelling import suggest
from fleetctl.yaml_text import load_yaml
from fleetctl_kubernetes.settings import CONTEXT, KUBECONFIG

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl_kubernetes.settings import ClusterSettings

_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")  # of the pod we run in
_HINT = (
    f"name a kubeconfig (provider.kubeconfig, or {KUBECONFIG}), and where another than its current context is meant that too "
    f"(provider.context, or {CONTEXT}); to plan and render without one, say what its nodes have: provider.pools, like "
    "[8xNVIDIA-L40S/on-demand]"
)
_SECTIONS = {"clusters": "cluster", "contexts": "context", "users": "user"}
_MESSAGE_MAX = 600  # of what a program that gives credentials wrote


@dataclass(slots=True)
class _Kubeconfig:
    """Several files in one: what an earlier one has of a name counts."""

    files: str  # as they were named, for people
    current: str = ""
    named: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {each: {} for each in _SECTIONS}
    )  # by section and name


def configure(configuration: Any, settings: ClusterSettings) -> str:  # noqa: ANN401  # kubernetes.client.Configuration, which has no types
    """Have a client's configuration lead where the settings say; return the namespace there, empty where nothing names one.

    In a pod without a kubeconfig that is the pod's own account. Raises CredentialsError.
    """
    given = settings.kubeconfig or _default_files()
    paths = [Path(each).expanduser() for each in given.split(os.pathsep) if each]
    there = [each for each in paths if each.exists()]
    found = _merged(there, given)
    if not found.named["contexts"] and not settings.context:
        own = _in_cluster(configuration, found, has_files=bool(there))
        return settings.namespace or own
    if not there:
        raise _error(f"there is no kubeconfig at {given}", _HINT)
    name = _chosen(found, settings.context)
    user = _checked(found, name)
    with _root_errors() as errors:
        _load(configuration, settings, found, context=name)
    # The client calls the token "BearerToken", and called it otherwise before.
    if "exec" in user and not (any(configuration.api_key.values()) or configuration.cert_file):
        raise _no_credentials(user, errors, found.named["contexts"][name]["user"])
    return settings.namespace or str(found.named["contexts"][name].get("namespace") or "")


def _default_files() -> str:
    from kubernetes.config.kube_config import KUBE_CONFIG_DEFAULT_LOCATION

    return str(KUBE_CONFIG_DEFAULT_LOCATION)


def _in_cluster(configuration: Any, found: _Kubeconfig, *, has_files: bool) -> str:  # noqa: ANN401  # as above
    from kubernetes import config
    from kubernetes.config.config_exception import ConfigException

    try:
        config.load_incluster_config(client_configuration=configuration)
        return _OWN_NAMESPACE.read_text().strip()
    except (ConfigException, OSError) as exc:
        why = f"{found.files} has no context" if has_files else f"there is no kubeconfig at {found.files}"
        raise _error(f"{why}, and this is no pod with an account: {exc}", _HINT) from exc


def _merged(paths: list[Path], given: str) -> _Kubeconfig:
    merged = _Kubeconfig(files=given)
    for path in paths:
        content = _content(path)
        merged.current = merged.current or str(content.get("current-context") or "")
        for section, key in _SECTIONS.items():
            for name, each in _entries(path, content, section, key):
                merged.named[section].setdefault(name, each)
    return merged


def _content(path: Path) -> dict[str, Any]:
    import yaml

    try:
        content = load_yaml(path.read_text())
    except OSError as exc:
        raise _error(f"{path} cannot be read: {exc.strerror}", "make it readable, or name another") from exc
    except (yaml.YAMLError, UnicodeDecodeError) as exc:
        mark, problem = getattr(exc, "problem_mark", None), getattr(exc, "problem", None)
        where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark is not None else str(path)
        raise _malformed(f"{where} is no YAML: {' '.join(str(problem or exc).split())}") from exc
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise _malformed(f"{path} is no kubeconfig: it is a {type(content).__name__}, and not an object with contexts")
    return content


def _entries(path: Path, content: dict[str, Any], section: str, key: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what a file has in a section, by name."""
    listed = content.get(section) or []
    if not isinstance(listed, list):
        raise _malformed(f"{path} is no kubeconfig: its `{section}` is a {type(listed).__name__}, and not a list")
    for number, each in enumerate(listed, 1):
        if not isinstance(each, dict) or not each.get("name"):
            raise _malformed(f"{path}: number {number} of its `{section}` has no name")
        body = each.get(key) or {}
        if not isinstance(body, dict):
            raise _malformed(f"{path}: `{key}` of {each['name']} in its `{section}` is no object")
        yield str(each["name"]), body


def _chosen(found: _Kubeconfig, context: str) -> str:
    """Return the context's name. Raises CredentialsError where there is none of it, naming those there are."""
    names = sorted(found.named["contexts"])
    listed = ", ".join(names)
    if context and context not in names:
        raise CredentialsError(
            f"the kubeconfig has no context {context}{suggest(context, names)}",
            hint=f"name one in provider.context, or {CONTEXT}: {listed}",
        )
    if context:
        return context
    choose = f"kubectl config use-context NAME, or name one in provider.context, or {CONTEXT}: {listed}"
    if not found.current:
        raise _error(f"{found.files} has no current context", choose)
    if found.current not in names:
        raise _error(f"{found.files} has no context {found.current}, which is its current one", choose)
    return found.current


def _checked(found: _Kubeconfig, context: str) -> dict[str, Any]:
    """Return the context's user. Raises CredentialsError where its cluster or its user is not there."""
    body = found.named["contexts"][context]
    for section, key in (("clusters", "cluster"), ("users", "user")):
        name = str(body.get(key) or "")
        if not name and key == "user":
            return {}  # as kubectl: nobody in particular
        if name not in found.named[section]:
            what = f"{key} {name}, which {found.files} does not have" if name else f"no {key}"
            known = ", ".join(sorted(found.named[section])) or "none"
            raise _error(f"context {context} names {what}", f"mend it, or name another context; its {section}: {known}")
        if key == "cluster" and not found.named[section][name].get("server"):
            raise _error(f"cluster {name} of {found.files} has no server", "mend it, or name another context")
    user: dict[str, Any] = found.named["users"][str(body["user"])]
    return user


def _load(configuration: Any, settings: ClusterSettings, found: _Kubeconfig, *, context: str) -> None:  # noqa: ANN401  # as above
    from kubernetes import config
    from kubernetes.config.config_exception import ConfigException

    files = settings.kubeconfig or None
    try:
        config.load_kube_config(config_file=files, context=context, client_configuration=configuration)
    except (ConfigException, OSError, ValueError, TypeError, KeyError, AttributeError) as exc:
        hint = "see what kubectl makes of it: kubectl config view --minify; kubectl get --raw /readyz"
        raise _error(f"{found.files} cannot be worked by: {exc}", hint) from exc


@contextmanager
def _root_errors() -> Iterator[list[str]]:
    """Yield what this thread logs as an error of no logger's own, for a block: so the client tells that a program failed."""
    errors: list[str] = []
    thread = threading.get_ident()

    class _Collecting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.thread == thread and record.name == "root":
                errors.append(record.getMessage())

    handler = _Collecting(logging.ERROR)
    logging.getLogger().addHandler(handler)
    try:
        yield errors
    finally:
        logging.getLogger().removeHandler(handler)


def _no_credentials(user: dict[str, Any], errors: list[str], name: str) -> CredentialsError:
    """Return that the program which gives credentials gave none, and what it wrote."""
    program = user["exec"] if isinstance(user["exec"], dict) else {}
    command = " ".join([str(program.get("command", "")), *map(str, program.get("args") or ())]).strip()
    output = " ".join("; ".join(errors).split())[:_MESSAGE_MAX] or "it gave no token and no certificate"
    hint = (
        str(program.get("installHint") or "").strip()
        or f"install it, or log in with it, and see that this works: {command}"
    )
    return CredentialsError(
        f"user {name} of the kubeconfig has its credentials from `{command}`, which failed: {output}", hint=hint
    )


def _malformed(what: str) -> CredentialsError:
    return _error(what, "mend the file, or name another: `kubectl config view` reads the same one")


def _error(what: str, hint: str) -> CredentialsError:
    return CredentialsError(f"no cluster to work in: {what}", hint=hint)
