"""The objects of a plan as a helm chart, whose values are the namespace and each lane's image and replicas."""

from __future__ import annotations

import copy
import json
import re
from typing import TYPE_CHECKING, Any

import yaml

from fleetctl.model.catalogue import Market
from fleetctl.render.kubernetes import dns_label, yaml_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl.model.plan import Plan
    from fleetctl.render.kubernetes import Object, ObjectFile

# Keys of values: YAML's and Go's own names, so that `--set lanes.short.replicas.onDemand=3` works.
_MARKET_KEYS = {Market.ON_DEMAND.value: "onDemand", Market.SPOT.value: "spot"}
_VALUES_VERSION = "1.0.0"  # of which values a chart has
_CLUSTER_WIDE = frozenset({"PriorityClass"})
# What stands for a template's expression until the objects are text; no text of a profile holds the character.
_MARK = "\x01"
_MARKED_LINE = re.compile(r'^( *)namespace: "\\x01namespace\\x01"\n', re.MULTILINE)
_MARKED = re.compile(r'"\\x01(.*?)\\x01"')
_NAMESPACE = f"{_MARK}namespace{_MARK}"


def render_helm(plan: Plan, files: Mapping[str, ObjectFile]) -> dict[str, str]:
    """Return the chart by relative paths. With its own values it gives just the objects it was made of.

    Raises ConfigError for a fleet whose name cannot be a chart's.
    """
    name = dns_label(plan.fleet)
    values: dict[str, Any] = {"namespace": "", "lanes": {}}
    templates = {
        f"templates/{file}": _template(each.comment, [_with_values(item, values) for item in each.objects])
        for file, each in files.items()
    }
    chart = {
        "apiVersion": "v2",
        "name": name,
        "description": f"Lanes of the inference fleet {plan.fleet}, written by fleetctl render.",
        "type": "application",
        # What was planned for another profile is another chart.
        "version": f"{_VALUES_VERSION}+{plan.profile_hash[:12]}",
    }
    written = {
        "Chart.yaml": _plain(chart),
        "values.yaml": "# namespace: empty is the release's own (helm --namespace).\n" + _plain(values),
        "values.schema.json": json.dumps(_schema_of(values), indent=2) + "\n",
        **templates,
    }
    return {f"helm/{name}/{path}": text for path, text in sorted(written.items())}


def _with_values(item: Object, values: dict[str, Any]) -> Object:
    """Return an object with marks in place of what `values` now has."""
    marked = copy.deepcopy(item)
    if marked["kind"] not in _CLUSTER_WIDE:
        metadata = marked["metadata"]
        marked["metadata"] = {"name": metadata.pop("name"), "namespace": _NAMESPACE, **metadata}
    if marked["kind"] == "Deployment":
        _mark_deployment(marked, values["lanes"])
    if marked["kind"] == "ScaledObject":
        (trigger,) = marked["spec"]["triggers"]
        values["prometheus"] = trigger["metadata"]["serverAddress"]
        trigger["metadata"]["serverAddress"] = f"{_MARK}$.Values.prometheus | quote{_MARK}"
    return marked


def _mark_deployment(marked: Object, lanes: dict[str, Any]) -> None:
    labels = marked["metadata"]["labels"]
    lane = labels["fleetctl.dev/lane"]
    at = f"index $.Values.lanes {json.dumps(lane)}"
    (container,) = marked["spec"]["template"]["spec"]["containers"]
    known = lanes.setdefault(lane, {"image": container["image"]})
    container["image"] = f"{_MARK}({at}).image | quote{_MARK}"
    if "replicas" in marked["spec"]:  # else something else scales it
        market = _MARKET_KEYS[marked["spec"]["selector"]["matchLabels"]["fleetctl.dev/market"]]
        known.setdefault("replicas", {})[market] = marked["spec"]["replicas"]
        marked["spec"]["replicas"] = f"{_MARK}({at}).replicas.{market} | int{_MARK}"


def _template(comment: str, objects: list[Object]) -> str:
    # Engines' own arguments may hold braces, which are no template.
    text = (comment + yaml_of(tuple(objects))).replace("{{", '{{ "{{" }}')
    text = _MARKED_LINE.sub(r"{{- with $.Values.namespace }}\n\1namespace: {{ . | quote }}\n{{- end }}\n", text)
    return _MARKED.sub(lambda match: "{{ " + match[1].replace('\\"', '"') + " }}", text)


def _schema_of(values: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON schema in which a misspelt key of values is an error."""
    return {"$schema": "http://json-schema.org/draft-07/schema#", **_schema(values)}


def _schema(value: object) -> dict[str, Any]:
    if isinstance(value, dict):
        properties = {key: _schema(each) for key, each in value.items()}
        return {"type": "object", "properties": properties, "additionalProperties": False}
    return {"type": "integer", "minimum": 0} if isinstance(value, int) else {"type": "string"}


def _plain(value: object) -> str:
    text: str = yaml.safe_dump(value, sort_keys=False, width=120)
    return text
