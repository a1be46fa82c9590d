"""A starting router finds batches in every state and files left by a crash, and continues."""

from hashlib import sha256
from pathlib import Path
from time import time

import msgspec
import pytest

from router.addons.batches.api.shapes import answered
from router.addons.batches.ids import new_batch_id, new_file_id
from router.addons.batches.store.blob_store import BlobStore
from router.addons.batches.store.rows import (
    CANCELLING,
    COMPLETED,
    EXPIRED,
    FINALIZING,
    IN_PROGRESS,
    VALIDATING,
    Batch,
    File,
)
from router.addons.batches.store.store import Result, Store
from router.core.errors import ConfigError
from tests.addons.batches.app.helpers import open_door, results, sdk, until
from tests.addons.batches.lines import numbered
from tests.harness.behaviours import json_ok
from tests.harness.running import scenario

LINES = 200
DONE = 150  # lines done before the crash
OWNER = sha256(b"Bearer key-1").hexdigest()


def left_behind(folder: Path, status: str, ending: str, window_s: int = 3600) -> Batch:
    """A folder as left by a router that died with a batch in this state."""
    blobs = BlobStore(folder, 0)
    store = Store(folder / "batches.sqlite")
    try:
        now = int(time())
        name = new_file_id()
        draft = blobs.draft(name)
        draft.open()
        draft.write(numbered(LINES))
        draft.keep()
        store.add_file(File(0, name, OWNER, "batch", "in.jsonl", draft.bytes, now, now + 3600))
        batch = store.add_batch(
            Batch(
                number=0,
                id=new_batch_id(),
                owner=OWNER,
                needs_secret=True,
                endpoint="/v1/chat/completions",
                completion_window="1h",
                input_file=name,
                output_file=None,
                error_file=None,
                next_output=new_file_id(),
                next_error=new_file_id(),
                output_seconds=None,
                status=VALIDATING,
                ending=COMPLETED,
                metadata=None,
                errors=None,
                total=0,
                completed=0,
                failed=0,
                created_at=now,
                in_progress_at=None,
                expires_at=now + window_s,
                finalizing_at=None,
                completed_at=None,
                failed_at=None,
                expired_at=None,
                cancelling_at=None,
                cancelled_at=None,
            )
        )
        number = batch.number
        if status == VALIDATING:
            return batch
        store.validated(number, LINES, now)
        # Every other line is finished first, so that the finished lines are not a prefix of the
        # file.
        lines = [*range(1, LINES + 1, 2), *range(2, LINES + 1, 2)]
        done = lines if ending == COMPLETED and status == FINALIZING else lines[:DONE]
        store.record(
            Result(
                number,
                at,
                True,
                answered(f"old-{at}", f"r{at - 1}", 200, msgspec.Raw(b'{"old":1}')),
            )
            for at in done
        )
        if status == FINALIZING:
            store.worked_through(number, ending, now)
            # The router died while writing: it left half of a draft file, and a whole file that the
            # database does not list.
            blobs.path(batch.next_error + ".part").write_bytes(b"half")
            blobs.path(batch.next_output).write_bytes(b"of an earlier try")
        elif status == CANCELLING:
            store.cancel(number, now)
        blobs.path("file-" + "0" * 32).write_bytes(b"uploaded, and never in the books")
        return batch
    finally:
        store.close()
        blobs.close()


@pytest.mark.parametrize(
    ("status", "ending", "window_s", "over_as"),
    [
        (VALIDATING, COMPLETED, 3600, "completed"),
        (IN_PROGRESS, COMPLETED, 3600, "completed"),
        (IN_PROGRESS, COMPLETED, -1, "expired"),
        (FINALIZING, COMPLETED, 3600, "completed"),
        (FINALIZING, EXPIRED, 3600, "expired"),
        (CANCELLING, COMPLETED, 3600, "cancelled"),
    ],
)
@scenario
async def test_every_state_is_gone_on_from(
    tmp_path: Path, status: str, ending: str, window_s: int, over_as: str
) -> None:
    left = left_behind(tmp_path, status, ending, window_s)
    async with open_door(tmp_path, json_ok) as router, sdk(router) as client:
        batch = await until(client, left.id)
        assert batch.status == over_as
        found = await results(client, batch)
        assert set(found) == {f"r{n}" for n in range(LINES)}
        old = sum(1 for record in found.values() if record["id"].startswith("old-"))
        wanted_old = {VALIDATING: 0, IN_PROGRESS: DONE, CANCELLING: DONE}
        all_done = LINES if ending == COMPLETED else DONE
        assert old == wanted_old.get(status, all_done)
        sent = len(router.replica.requests)
        assert sent == (LINES - old if over_as == "completed" else 0)
        counts = batch.request_counts
        assert counts is not None
        assert (counts.total, counts.failed) == (LINES, 0)
        assert counts.completed == old + sent
        codes = {r["error"]["code"] for r in found.values() if r["error"] is not None}
        assert codes == (set() if over_as == "completed" else {f"batch_{over_as}"})
    names = {path.name for path in (tmp_path / "files").iterdir()}
    assert names <= {left.input_file, left.next_output, left.next_error}
    store = Store(tmp_path / "batches.sqlite")
    try:
        assert store.spent() == []  # the results are in the files, and no longer in the database
    finally:
        store.close()


@scenario
async def test_a_folder_has_one_router(tmp_path: Path) -> None:
    async with open_door(tmp_path, json_ok):
        with pytest.raises(ConfigError, match="in use by another router"):
            async with open_door(tmp_path, "http://127.0.0.1:1"):
                pass


@scenario
async def test_a_database_of_another_version_is_left_alone(tmp_path: Path) -> None:
    store = Store(tmp_path / "batches.sqlite")
    store._db.execute("PRAGMA user_version = 99")
    store.close()
    with pytest.raises(ConfigError, match="version 99"):
        async with open_door(tmp_path, "http://127.0.0.1:1"):
            pass
