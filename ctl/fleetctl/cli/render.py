"""`fleetctl render`."""

from pathlib import Path
from typing import Annotated

import typer

from fleetctl import os_signals
from fleetctl.cli.options import ProfileName, Quiet
from fleetctl.cli.output import write
from fleetctl.cli.progress import Progress, note_cautions
from fleetctl.cli.site import site_of
from fleetctl.errors import ConfigError
from fleetctl.model.kubernetes_addition import PROMETHEUS_URL, KubernetesAddition, KubernetesAdditions
from fleetctl.operations.plan_files import load_plan
from fleetctl.operations.planning import plan_profile
from fleetctl.operations.profiles import find_with_source
from fleetctl.operations.rendering import (
    SHARED_PARTS,
    InCluster,
    RenderTarget,
    render_cautions,
    render_to,
    shared_parts_to,
)

_Image = Annotated[
    str,
    typer.Option(
        "--image",
        metavar="IMAGE",
        envvar="FLEETCTL_KUBE_IMAGE",
        help="Of --target in-cluster and --with deletion-costs: built from the Containerfile.",
    ),
]
_Namespace = Annotated[
    str,
    typer.Option(
        "--namespace",
        metavar="NAME",
        envvar="FLEETCTL_KUBE_NAMESPACE",
        help="Where it is applied: of accounts' bindings, and in the names of what is of the whole cluster.",
    ),
]
_StateOnClaim = Annotated[
    bool,
    typer.Option(
        "--state-on-claim",
        help="Of --target in-cluster: keep the state on a PersistentVolumeClaim, not in the namespace's ConfigMaps.",
    ),
]


def render(
    ctx: typer.Context,
    profile: ProfileName,
    *,
    directory: Annotated[str, typer.Option("--output", "-o", metavar="DIR", help="Where to write the files.")],
    plan: Annotated[str, typer.Option("--plan", metavar="FILE", help="Render this saved plan.")] = "",
    engine: Annotated[
        str, typer.Option("--engine", metavar="ENGINE", help="For every lane, not the profile's own.")
    ] = "",
    target: Annotated[
        RenderTarget, typer.Option("--target", help="What the engines are run by.")
    ] = RenderTarget.MACHINES,
    additions: Annotated[
        list[KubernetesAddition] | None,
        typer.Option(
            "--with", help="What other controllers of the cluster read, or go by; may be given several times."
        ),
    ] = None,
    prometheus: Annotated[
        str, typer.Option("--prometheus", metavar="URL", help="What KEDA reads metrics from.")
    ] = PROMETHEUS_URL,
    namespace: _Namespace = "default",
    image: _Image = "",
    state_on_claim: _StateOnClaim = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that were changed since.")] = False,
    quiet: Quiet = False,
) -> None:
    """Write each lane's launch configuration: arguments and environment, a systemd unit, a compose file; or manifests.

    `--target in-cluster` writes the fleet's own controller and gateway instead, which start the engines as pods themselves.
    `--target cloudformation` and `terraform` write what the nodes share, with the keys that name it in the profile, for who
    may make it. Beside launch files the fleet's alerting rules for Prometheus. Prints the files it wrote. The same profile gives the same bytes.
    """
    site = site_of(ctx)
    found = find_with_source(profile)
    if target in SHARED_PARTS:
        _refuse_engines(target, given=bool(plan or engine or additions))
        _tell(shared_parts_to(site, found.profile, target, Path(directory), force=force), directory, quiet=quiet)
        return
    if plan:
        planned = load_plan(Path(plan))
    else:
        planned = os_signals.run(plan_profile(site, found.profile, source=found.source, is_for_files=True, proves=True))
    chosen = KubernetesAdditions(
        kinds=frozenset(additions or ()), prometheus_url=prometheus, image=image, namespace=namespace
    )
    written = render_to(
        site,
        found.profile,
        planned,
        Path(directory),
        engine=engine,
        target=target,
        additions=chosen,
        cluster=InCluster(
            written=found.source.tree, namespace=namespace, image=image, is_state_on_claim=state_on_claim
        ),
        force=force,
    )
    note_cautions(render_cautions(site, found.profile, planned, engine=engine), Progress(quiet=quiet))
    _tell(written, directory, quiet=quiet)


def _refuse_engines(target: RenderTarget, *, given: bool) -> None:
    if given:
        raise ConfigError(f"--target {target.value} has no engines in it", hint="leave --plan, --engine and --with out")


def _tell(written: list[Path], directory: str, *, quiet: bool) -> None:
    write("".join(f"{path}\n" for path in written))
    Progress(quiet=quiet).note(f"{len(written)} files in {directory}")
