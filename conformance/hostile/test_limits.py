"""A tenant at all of its limits does not stop others from creating, writing, pausing and snapshotting."""

from __future__ import annotations

import hashlib
import os
import subprocess

import pytest
from e2b import Sandbox

from ..installation import program, wait_until
from .conftest import SMALL, furnished
from .machine import Call, run

#: Writes large files until there is no space.
FILL = "for n in $(seq 40); do dd if=/dev/zero of=/home/user/$n bs=1M count=64 conv=fsync 2>/dev/null || break; done; df -P /home/user | tail -1"

#: Writes small files until there is no space.
SMALL_FILES = (
    "python3 -c 'import os\nn=0\ntry:\n while n < 60000:\n"
    "  open(f\"/home/user/f{n}\",\"w\").write(\"x\"*2000); n+=1\nexcept OSError: pass\nprint(n)'; sync || true"
)


@pytest.fixture(scope="module")
def tight(scratch):
    """Two tenants on a disk that one could fill, with the default limits."""
    settings = ("disk.size=2GiB", "limits.snapshots_per_team=4", "limits.forks=3", "runtime.allowed=runsc")
    with furnished(scratch, "tight", *settings) as installation:
        installation.add_team("greedy")
        yield installation


def team(server, name: str) -> dict:
    status, answer = Call(server).get("/api/v1/teams")
    assert status == 200, answer
    return {one["name"]: one for one in answer["data"]}[name]


def goes_on(server, name: str = "other") -> None:
    """Every kind of operation of a tenant."""
    options = server.options(name)
    made = Sandbox.create("base", timeout=300, **options)
    try:
        made.files.write("room", "x" * (8 << 20))
        assert run(made, "sync; echo well > /home/user/well").code == 0
        snapshot = made.create_snapshot()
        clone = Sandbox.create(snapshot.snapshot_id, timeout=300, **options)
        assert clone.files.read("well") == "well\n"
        clone.kill()
        made.pause()
        again = Sandbox.connect(made.sandbox_id, **options)
        assert again.files.read("well") == "well\n"
        Call(server, name).delete(f"/templates/{snapshot.snapshot_id}")
    finally:
        Sandbox.kill(made.sandbox_id, **options)


@pytest.fixture
def greedy(tight):
    """Removes a tenant's resources after its test."""
    made: list[Sandbox] = []
    yield made
    for one in made:
        Sandbox.kill(one.sandbox_id, **tight.options("greedy"))
    status, snapshots = Call(tight, "greedy").get("/snapshots?limit=100")
    assert status == 200, snapshots
    for snapshot in snapshots:
        Call(tight, "greedy").delete(f"/templates/{snapshot['snapshotID']}")
    # The kernel releases deleted space asynchronously.
    wait_until(lambda: team(tight, "greedy")["diskMB"]["used"] < 64, 120, "the disk is given back")


def fill(server, made: list[Sandbox], how: str, runtime: str) -> None:
    """Fills a team's share of the disk from four sandboxes. Other teams are not affected."""
    options = server.options("greedy") | {"metadata": {"shoal/runtime": runtime}}
    for _ in range(4):
        try:
            one = Sandbox.create("base", timeout=600, **options)
        except Exception as refused:  # noqa: BLE001 — the team holds all it may
            assert "limits.disk_per_team" in str(refused) or "quota" in str(refused), refused
            break
        made.append(one)
        run(one, how, timeout=300)
    held = team(server, "greedy")["diskMB"]
    assert held["used"] <= held["limit"] + 8, held
    goes_on(server)


def released(server, made: list[Sandbox]) -> None:
    """Released resources are available to the tenant again."""
    for one in made:
        one.kill()
    made.clear()
    assert team(server, "greedy")["sandboxes"]["used"] == 0


def test_a_team_that_fills_its_disk_does_not_affect_others(tight, greedy):
    fill(tight, greedy, FILL, "runsc")
    held = team(tight, "greedy")["diskMB"]
    assert held["used"] > held["limit"] * 3 // 4, held
    status, answer = Call(tight, "greedy").post(f"/sandboxes/{greedy[0].sandbox_id}/snapshots", {})
    assert status in (429, 507), answer
    released(tight, greedy)


def test_a_team_without_room_resumes_and_deletes_what_it_saved(tight, greedy):
    """A change of saved files reserves a few bytes beside them, which count for the team."""
    options = tight.options("greedy")
    resumed, ended = (Sandbox.create("base", timeout=600, **options) for _ in range(2))
    greedy += [resumed, ended]
    for one in (resumed, ended):
        one.files.write("note", "kept")
    snapshot = ended.create_snapshot().snapshot_id
    for one in (resumed, ended):
        one.pause()
    fill(tight, greedy, FILL, "runsc")
    call = Call(tight, "greedy")
    status, answer = call.post(f"/sandboxes/{greedy[-1].sandbox_id}/snapshots", {})
    assert status in (429, 507), answer
    assert Sandbox.connect(resumed.sandbox_id, **options).files.read("note") == "kept"
    for path in (f"/templates/{snapshot}", f"/sandboxes/{ended.sandbox_id}"):
        status, answer = call.delete(path)
        assert status == 204, answer
    released(tight, greedy)


def test_a_team_that_fills_its_disk_with_small_files_does_not_affect_others(scratch):
    """They are kept in the metadata of the file system. runc makes this many in seconds."""
    with furnished(scratch, "small-files") as server:
        server.add_team("greedy")
        made: list[Sandbox] = []
        fill(server, made, SMALL_FILES, "runc")
        held = team(server, "greedy")["diskMB"]
        assert held["used"] > held["limit"] // 8, held
        released(server, made)


def test_snapshots_and_pauses_count_in_the_teams_disk(tight, greedy):
    options = tight.options("greedy")

    def held() -> int:
        # The kernel counts all written bytes at the end of a transaction, and only some before.
        subprocess.run(["sync", "--file-system", tight.data / "disk"], check=True)
        return team(tight, "greedy")["diskMB"]["used"]

    wait_until(lambda: held() < 8, 120, "the disk is given back")
    one = Sandbox.create("base", timeout=600, **options)
    greedy.append(one)
    run(one, "head -c 100M /dev/urandom > /home/user/much; sync")
    # A sandbox without a running program has hardly any memory.
    hold = "import os,time; held = os.urandom(48 << 20); open('/tmp/holds', 'w'); time.sleep(600)"
    one.commands.run(f'python3 -c "{hold}"', background=True)
    wait_until(lambda: one.files.exists("/tmp/holds"), 60, "the memory is taken")
    wait_until(lambda: held() >= 95, 60, "the files are counted")
    files = held()
    one.create_snapshot()
    # The sum includes the memory, and the files once, however often they are saved.
    wait_until(lambda: held() - files > 40, 60, "the memory is counted")
    memory = held() - files
    assert memory < 400, (files, memory)
    assert team(tight, "greedy")["snapshots"]["used"] == 1
    for _ in range(3):
        one.create_snapshot()
    more = lambda: held() - files - memory  # noqa: E731
    wait_until(lambda: more() > 3 * memory // 2, 60, "the memory of the others is counted")
    assert more() < 6 * memory, (files, memory, held())
    status, answer = Call(tight, "greedy").post(f"/sandboxes/{one.sandbox_id}/snapshots", {})
    assert status == 429 and "4 snapshots" in answer["message"], answer
    goes_on(tight)


def test_uploads_of_all_teams_are_bounded(scratch):
    with furnished(scratch, "uploads", "limits.uploads=40MiB", "limits.uploads_per_team=30MiB") as server:
        sent = {}
        for name, size in (("default", 24), ("other", 24)):
            call = Call(server, name)
            status, build = call.post("/v3/templates", {"name": "sent"})
            assert status == 202, build
            digest = hashlib.sha256(name.encode()).hexdigest()
            status, link = call.get(f"/templates/{build['templateID']}/files/{digest}")
            assert status == 201, link
            path = "/" + link["url"].split("/", 3)[3]
            sent[name] = Call(server, None).put(path, b"x" * (size << 20))
        assert sent["default"][0] in (200, 201, 204), sent["default"]
        assert sent["other"][0] == 507 and "all teams" in str(sent["other"][1]), sent["other"]


@pytest.mark.parametrize(
    "size, asked, what",
    [({"memoryMB": 200_000}, {"memory": 200_000}, "of memory"), ({"cpuCount": 32}, {"cpu": 32}, "of cpu")],
    ids=["memory", "cpu"],
)
def test_a_template_cannot_exceed_the_machines_limits(tight, size, asked, what):
    status, answer = Call(tight, "greedy").post("/v3/templates", {"name": "large"} | size)
    assert status == 400 and what in answer["message"] and "at most" in answer["message"], answer
    status, answer = Call(tight, "greedy").post("/v2/sandboxes", {"templateID": "base"} | asked)
    assert status == 409 and what in answer["message"], answer


def test_no_cgroup_weighs_more_than_the_machine(tight, greedy):
    made = Sandbox.create("base", timeout=60, **tight.options("greedy"))
    greedy.append(made)
    processors = os.cpu_count()
    for group in [group for group in tight.groups() if group.name == made.sandbox_id]:
        shares, weight = group / "cpu.shares", group / "cpu.weight"
        if shares.exists():
            assert int(shares.read_text()) <= 1024 * processors
        if weight.exists():
            assert int(weight.read_text()) <= 100 * processors


def test_the_runtime_is_the_operators_choice(tight):
    asked = {"templateID": SMALL, "metadata": {"shoal/runtime": "runc"}}
    status, answer = Call(tight, "greedy").post("/v2/sandboxes", asked)
    assert status == 403 and "runtime.allowed" in answer["message"], answer
    status, made = Call(tight).post("/v2/sandboxes", asked)
    assert status == 201, made
    # The admin's own quota is no way around it either.
    plain = tight._admin("POST", "/api/v1/keys", {"name": "plain"})
    tight.keys["plain"] = plain["secret"]
    call = Call(tight, "plain")
    status, answer = call.post(f"/sandboxes/{made['sandboxID']}/fork", {"count": 1})
    assert status == 403, answer
    keep = {"x-e2b-kruise-snapshot-persistent-contents": "filesystem"}
    status, snapshot = call.post(f"/sandboxes/{made['sandboxID']}/snapshots", {}, headers=keep)
    assert status == 201, snapshot
    status, answer = call.post("/v2/sandboxes", {"templateID": snapshot["snapshotID"]})
    assert status == 403, answer
    Call(tight).delete(f"/templates/{snapshot['snapshotID']}")
    Call(tight).delete(f"/sandboxes/{made['sandboxID']}")


def test_too_many_forks_are_refused_at_once(tight, greedy):
    made = Sandbox.create("base", timeout=120, **tight.options("greedy"))
    greedy.append(made)
    status, answer = Call(tight, "greedy", timeout=60).post(f"/sandboxes/{made.sandbox_id}/fork", {"count": 92})
    assert status == 400 and "at most 3" in answer["message"], answer


def shoal(server, *words: str) -> subprocess.CompletedProcess:
    environment = {"E2B_API_URL": server.url, "E2B_API_KEY": server.key, "PATH": "/usr/bin:/bin"}
    return subprocess.run([str(program()), *words], env=environment, capture_output=True, text=True, timeout=60)


def test_limits_of_a_team_are_set_seen_and_in_force(tight):
    made = shoal(tight, "key", "create", "short", "--team", "short", "--max-sandboxes", "1", "--max-cpu", "2")
    assert made.returncode == 0, made.stderr
    tight.keys["short"] = made.stdout.strip()
    first = Sandbox.create(SMALL, timeout=600, **tight.options("short"))
    status, answer = Call(tight, "short").post("/v2/sandboxes", {"templateID": SMALL})
    assert status == 429 and "limit of 1 sandboxes" in answer["message"], answer
    listed = shoal(tight, "team", "ls")
    assert listed.returncode == 0, listed.stderr
    row = next(line for line in listed.stdout.splitlines() if line.startswith("short "))
    assert "1 of 1" in row and "1.0 of 2.0" in row, row
    status, own = Call(tight, "short").get("/api/v1/teams")
    assert status == 200 and [one["name"] for one in own["data"]] == ["short"], own
    status, answer = Call(tight, "short").put("/api/v1/teams/short/limits", {"sandboxes": 100})
    assert status == 403, answer
    first.kill()
    removed = shoal(tight, "key", "rm", "short")
    assert removed.returncode == 0, removed.stderr
    assert Call(tight, "short").get("/v2/sandboxes")[0] == 401
