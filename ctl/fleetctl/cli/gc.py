"""`fleetctl gc`."""

from dataclasses import replace
from datetime import datetime
from typing import Annotated

import typer

from fleetctl import os_signals
from fleetctl.cli.options import Output, Quiet, Timeout, Yes
from fleetctl.cli.output import Format, View, emit, section
from fleetctl.cli.progress import Progress
from fleetctl.cli.site import site_of
from fleetctl.errors import ConfigError, ProviderError
from fleetctl.operations.garbage import Orphaned, OrphanedResource, Removal, find_orphaned, remove_orphaned
from fleetctl.operations.site import Site
from fleetctl.operations.tagged_garbage import find_tagged, remove_tagged
from fleetctl.units import parse_duration_s
from fleetctl.views.figures import format_age
from fleetctl.views.table import text_table

_COLUMNS = "KIND PROVIDER ID FLEET >AGE +OWNER"


def gc(
    ctx: typer.Context,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list; so it is without --yes.")] = False,
    yes: Yes = False,
    owner: Annotated[
        str,
        typer.Option(
            "--owner", metavar="UUID", help="Of a state that was lost (the tag fleetctl:owner); what carries its tags."
        ),
    ] = "",
    timeout: Timeout = "2m",
    output: Output = Format.TABLE,
    quiet: Quiet = False,
) -> None:
    """List what outlived its fleet at the providers: orphaned nodes, shared resources; with --yes remove it.

    Every installed provider is asked twice before anything is called orphaned. On AWS what carries this state's tags
    (instances, heads, volumes, launch templates, security groups) is found also where no record knows of it,
    from an age of five minutes on. Exits 10 if something could not be removed.
    """
    if dry_run and yes:
        raise ConfigError("--dry-run and --yes exclude each other", hint="leave one out")
    site, progress = site_of(ctx), Progress(quiet=quiet)
    with progress:
        progress.working("asking the providers ...")
        found = os_signals.run(_found(site, owner))
        for provider, fault in found.unasked.items():
            progress.caution(f"provider {provider} could not be asked: {fault}")
        if not yes:
            emit(_found_view(found.resources, site.clock.now()), output)
            progress.note(_advice(found))
            return
        removals = os_signals.run(_removals(site, found, timeout_s=parse_duration_s(timeout)))
    emit(_removed_view(removals, site.clock.now()), output)
    failed = [removal for removal in removals if removal.fault]
    if failed:
        raise ProviderError(
            f"{len(failed)} of {len(removals)} could not be removed: {failed[0].fault}",
            hint="they stay on record; run `fleetctl gc --yes` again",
        )
    unseen = _unseen(found)
    done = f"{len(removals)} removed; {unseen or 'nothing is left'}"
    progress.note(done if removals else unseen or "nothing outlived its fleet")


async def _found(site: Site, owner: str) -> Orphaned:
    """Return what records and tags show, each once; of another state there are no records."""
    known = Orphaned() if owner else await find_orphaned(site)
    tagged = await find_tagged(site, owner=owner)
    seen = {each.id for each in known.resources}
    more = tuple(each for each in tagged.resources if each.id not in seen)
    return replace(known, resources=(*known.resources, *more), unasked=tagged.unasked | known.unasked)


async def _removals(site: Site, found: Orphaned, *, timeout_s: float) -> tuple[Removal, ...]:
    known = replace(found, resources=tuple(each for each in found.resources if each.tagged is None))
    tagged = tuple(each for each in found.resources if each.tagged is not None)
    return (
        *await remove_orphaned(site, known, timeout_s=timeout_s),
        *await remove_tagged(site, tagged, timeout_s=timeout_s),
    )


def _advice(found: Orphaned) -> str:
    count = len(found.resources)
    if count:
        return f"{count} outlived their fleet; remove them: fleetctl gc --yes"
    return _unseen(found) or "nothing outlived its fleet"


def _unseen(found: Orphaned) -> str:
    """Return where nobody could look, so that nothing is said of what is there; empty where everybody could."""
    return f"what is left at {', '.join(found.unasked)} was not seen" if found.unasked else ""


def _found_view(resources: tuple[OrphanedResource, ...], now: datetime) -> View:
    rows = [(*_cells(each, now), each.reason) for each in resources]
    sections = (section(text_table(f"{_COLUMNS} WHY", rows)),) if rows else ()
    return View(value=resources, names=tuple(each.id for each in resources), sections=sections)


def _removed_view(removals: tuple[Removal, ...], now: datetime) -> View:
    rows = [(*_cells(each.resource, now), each.fault or "removed") for each in removals]
    sections = (section(text_table(f"{_COLUMNS} OUTCOME", rows)),) if rows else ()
    return View(value=removals, names=tuple(each.resource.id for each in removals), sections=sections)


def _cells(each: OrphanedResource, now: datetime) -> tuple[str, ...]:
    return (each.kind, each.provider, each.id, each.fleet, format_age(each.since, now), each.owner)
