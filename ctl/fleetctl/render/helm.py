"""The objects of a plan as a helm chart, whose values are the namespace and each lane's image, PriorityClass and replicas."""

from __future__ import annotations

import copy
import json
import re
from typing import TYPE_CHECKING, Any

import yaml

from fleetctl.model.catalogue import Market
from fleetctl.render.kubernetes import dns_label
from fleetctl.render.object_file import yaml_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl.model.plan import Plan
    from fleetctl.render.object_file import Object, ObjectFile

# Keys of values: YAML's and Go's own names, so that `--set lanes.short.replicas.onDemand=3` works.
_MARKET_KEYS = {Market.ON_DEMAND.value: "onDemand", Market.SPOT.value: "spot"}
_VALUES_VERSION = "1.1.0"  # of which values a chart has
_PRIORITY_CLASS = "PriorityClass"  # of the whole cluster, in no namespace
_ABOUT_VALUES = (
    "# namespace: empty is the release's own (helm --namespace).\n"
    "# lanes.LANE.priorityClassName: one that is there; empty is the chart's own, or none where it creates none.\n"
)
# What stands for a template's expression until the objects are text; no text of a profile holds the character.
_MARK = "\x01"
_UNFOLDED = 1_000_000  # an expression that was folded over two lines would be none
# Left out where the value is empty.
_MARKED_LINE = re.compile(r'^( *)(namespace|priorityClassName): "\\x01(.*)\\x01"\n', re.MULTILINE)
_MARKED = re.compile(r'"\\x01(.*?)\\x01"')
_NAMESPACE = f"{_MARK}$.Values.namespace{_MARK}"
_RELEASE_NAMESPACE = "$.Values.namespace | default $.Release.Namespace"


def render_helm(plan: Plan, files: Mapping[str, ObjectFile]) -> dict[str, str]:
    """Return the chart by relative paths. With its own values it gives just the objects it was made of.

    Raises ConfigError for a fleet whose name cannot be a chart's.
    """
    name = dns_label(plan.fleet)
    values: dict[str, Any] = {"namespace": "", "lanes": {}}
    classes = frozenset(
        item["metadata"]["name"] for each in files.values() for item in each.objects if item["kind"] == _PRIORITY_CLASS
    )
    if classes:
        values["priorityClasses"] = {"create": True}
    templates = {
        f"templates/{file}": _template(each.comment, [_with_values(item, values, classes) for item in each.objects])
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
        "values.yaml": _ABOUT_VALUES + _plain(values),
        "values.schema.json": json.dumps(_schema_of(values), indent=2) + "\n",
        **templates,
    }
    return {f"helm/{name}/{path}": text for path, text in sorted(written.items())}


def _with_values(item: Object, values: dict[str, Any], classes: frozenset[str]) -> Object:
    """Return an object with marks in place of what `values` now has; `classes` are the PriorityClasses of the chart's own."""
    marked = copy.deepcopy(item)
    metadata = marked["metadata"]
    if marked["kind"] == _PRIORITY_CLASS:
        metadata["name"] = f"{_MARK}{_class_of_release(metadata['name'])} | quote{_MARK}"
    else:
        marked["metadata"] = {"name": metadata.pop("name"), "namespace": _NAMESPACE, **metadata}
    if marked["kind"] == "Deployment":
        _mark_deployment(marked, values, classes)
    for subject in marked.get("subjects", ()):
        subject["namespace"] = f"{_MARK}{_RELEASE_NAMESPACE}{_MARK}"
    if marked["kind"] == "ScaledObject":
        (trigger,) = marked["spec"]["triggers"]
        values["prometheus"] = trigger["metadata"]["serverAddress"]
        trigger["metadata"]["serverAddress"] = f"{_MARK}$.Values.prometheus | quote{_MARK}"
    return marked


def _mark_deployment(marked: Object, values: dict[str, Any], classes: frozenset[str]) -> None:
    lane = marked["metadata"]["labels"].get("fleetctl.dev/lane")
    pod = marked["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    if lane is None:  # fleetctl's own
        values["image"] = container["image"]
        container["image"] = f"{_MARK}$.Values.image | quote{_MARK}"
        return
    at = f"index $.Values.lanes {json.dumps(lane)}"
    known = values["lanes"].setdefault(lane, {"image": container["image"]})
    container["image"] = f"{_MARK}({at}).image | quote{_MARK}"
    rendered = pod.get("priorityClassName", "")
    known["priorityClassName"] = "" if rendered in classes else rendered
    own = f' | default (ternary ({_class_of_release(rendered)}) "" $.Values.priorityClasses.create)'
    pod["priorityClassName"] = f"{_MARK}({at}).priorityClassName{own if rendered in classes else ''}{_MARK}"
    if "replicas" in marked["spec"]:  # else something else scales it
        market = _MARKET_KEYS[marked["spec"]["selector"]["matchLabels"]["fleetctl.dev/market"]]
        known.setdefault("replicas", {})[market] = marked["spec"]["replicas"]
        marked["spec"]["replicas"] = f"{_MARK}({at}).replicas.{market} | int{_MARK}"


def _class_of_release(rendered: str) -> str:
    """Return what names a PriorityClass of a release: by its own namespace, whatever was rendered for."""
    of_fleet = rendered.partition(".")[2]
    return f'printf "%s.{of_fleet}" ({_RELEASE_NAMESPACE})'


def _template(comment: str, objects: list[Object]) -> str:
    # Engines' own arguments may hold braces, which are no template.
    text = (comment + yaml_of(tuple(objects), width=_UNFOLDED)).replace("{{", '{{ "{{" }}')
    text = _MARKED_LINE.sub(_line_with_value, text)
    text = _MARKED.sub(lambda match: "{{ " + _expression(match[1]) + " }}", text)
    if objects and all(each["kind"] == _PRIORITY_CLASS for each in objects):
        return "{{- if $.Values.priorityClasses.create }}\n" + text + "{{- end }}\n"
    return text


def _line_with_value(match: re.Match[str]) -> str:
    indent, key, written = match.groups()
    return f"{{{{- with {_expression(written)} }}}}\n{indent}{key}: {{{{ . | quote }}}}\n{{{{- end }}}}\n"


def _expression(written: str) -> str:
    """Return a template's expression from how YAML quotes it."""
    return written.replace('\\"', '"')


def _schema_of(values: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON schema in which a misspelt key of values is an error."""
    return {"$schema": "http://json-schema.org/draft-07/schema#", **_schema(values)}


def _schema(value: object) -> dict[str, Any]:
    if isinstance(value, dict):
        properties = {key: _schema(each) for key, each in value.items()}
        return {"type": "object", "properties": properties, "additionalProperties": False}
    if isinstance(value, bool):
        return {"type": "boolean"}
    return {"type": "integer", "minimum": 0} if isinstance(value, int) else {"type": "string"}


def _plain(value: object) -> str:
    text: str = yaml.safe_dump(value, sort_keys=False, width=120)
    return text
