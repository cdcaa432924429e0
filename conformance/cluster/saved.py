"""What tests see of sandboxes that are saved and restored, through the SDK and in the cluster."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

from e2b import Sandbox
from e2b.exceptions import SandboxException

from ..installation import wait_until
from .test_kruise_checkpoint import CHECKPOINTS
from .test_kruise_sandbox import KIND


def counted(sandbox: Sandbox) -> list[str]:
    """The number that the command of a sandbox has drawn, and how far it has counted."""
    return sandbox.commands.run("cat /data/count 2>/dev/null || true").stdout.split()


def goes_on(sandbox: Sandbox, before: list[str]) -> None:
    """It continues to count with its own number: no process has restarted."""
    here = counted(sandbox)
    assert here[0] == before[0] and int(here[1]) >= int(before[1])
    wait_until(lambda: int(counted(sandbox)[1]) > int(here[1]), 60, "it counts on")


def saves(cluster) -> list[dict]:
    """The checkpoints that have not failed. Failed ones stay, with the reason."""
    return [one for one in cluster.get(CHECKPOINTS)["items"] if one.get("status", {}).get("phase") != "Failed"]


def settings(cluster, name: str) -> dict:
    """The settings of a sandbox's daemon."""
    return json.loads(cluster.get(KIND, name)["metadata"]["annotations"]["agents.kruise.io/init-runtime-request"])


def behind(sandbox: Sandbox, api: dict) -> dict[str, list[str]]:
    """The names of the objects behind a sandbox, by their part in it."""
    path = f"{api['api_url']}/api/v1/sandbox/{sandbox.sandbox_id}/objects"
    asked = urllib.request.Request(path, headers={"X-API-Key": api["api_key"]})
    found: dict[str, list[str]] = {}
    with urllib.request.urlopen(asked, timeout=30) as answer:
        for one in json.load(answer)["data"]["objects"]:
            found.setdefault(one["role"], []).append(one["name"])
    return found


def files_with(sandbox: Sandbox, token: str, api: dict) -> str:
    """A file of a sandbox, as a client with this token reads it."""
    headers = {"X-Access-Token": token, "E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "49983"}
    asked = urllib.request.Request(f"{api['sandbox_url']}/files?path=/root/kept&username=root", headers=headers)
    try:
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as refused:
        assert refused.code == 401, refused.code
        raise SandboxException("401") from None
