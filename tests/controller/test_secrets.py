"""References to secrets are followed at the last moment, and only on their way to the provider."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.controller.keys import with_secrets
from fleetctl.errors import ConfigError
from fleetctl.testing.engine import FakeEngine
from fleetctl.testing.virtual_time import run_virtual
from tests.controller.rig import FLEET, Rig

if TYPE_CHECKING:
    from pathlib import Path

CONTENT = "hf_not_for_the_store"


def test_an_engine_gets_the_secret_and_the_store_keeps_the_reference(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(CONTENT + "\n")
    reference = f"file:{tmp_path / 'token'}"

    async def scenario() -> None:
        rig = Rig(tmp_path)
        engine = FakeEngine(env={"HF_TOKEN": reference, "PLAIN": "1"})
        rig.world = replace(rig.world, engine_of=lambda _: engine)
        rig.up()
        await rig.run(10)
        rig.store.close()
        assert len(rig.provider.orders) == 4
        assert all(order.env == {"HF_TOKEN": reference, "PLAIN": "1"} for order in rig.provider.orders)
        assert rig.provider.environments == [{"HF_TOKEN": CONTENT, "PLAIN": "1"}] * 4

    run_virtual(scenario())
    kept = values(tmp_path / "state.db")
    assert reference in kept
    assert CONTENT not in kept
    assert CONTENT.encode() not in b"".join(path.read_bytes() for path in tmp_path.glob("state.db*"))


def values(database: Path) -> str:
    """Return all that its tables hold: in the file a long value lies on several pages, and no text of it need be whole."""
    with closing(sqlite3.connect(database)) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = [row for table in tables for row in connection.execute(f'SELECT * FROM "{table}"')]  # noqa: S608  # its own tables
    return "\n".join(
        each.decode(errors="replace") if isinstance(each, bytes) else str(each) for row in rows for each in row
    )


def test_a_reference_that_leads_nowhere_is_a_failed_start_that_names_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        rig = Rig(tmp_path)
        engine = FakeEngine(env={"HF_TOKEN": "env:SURELY_NOT_SET_ANYWHERE"})
        rig.world = replace(rig.world, engine_of=lambda _: engine)
        rig.up()
        await rig.run(5)
        assert rig.provider.live_tokens == []
        assert any("engine variable HF_TOKEN 'env:SURELY_NOT_SET_ANYWHERE' is empty" in line for line in rig.journal())
        assert rig.store.open_intents(FLEET) == ()
        rig.store.close()

    run_virtual(scenario())


@pytest.mark.parametrize("reference", ["file:/nonexistent/key", "keyring:service/user", "env:SURELY_NOT_SET_ANYWHERE"])
def test_the_error_names_the_variable_and_the_reference(reference):
    with pytest.raises(ConfigError, match="HF_TOKEN") as caught:
        with_secrets({"HF_TOKEN": reference}, lambda _: "")
    assert reference in caught.value.message
    assert caught.value.hint
