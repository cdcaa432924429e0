"""The shell blocks of the pages in `docs/` run."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from ..installation import ROOT, program

PAGES = sorted(path.name for path in (ROOT / "docs").glob("*.md"))


def script(page: str) -> str:
    text = (ROOT / "docs" / page).read_text()
    return "\n".join(re.findall(r"^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))


@pytest.mark.parametrize("page", [page for page in PAGES if script(page)])
def test_the_shell_blocks_of_a_page_run(shared, client, tmp_path, page):
    (tmp_path / "shoal").symlink_to(program())
    env = client.env | {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "E2B_API_KEY": shared.key,
        "E2B_API_URL": shared.url,
    }
    before = set(client.ok("ps", "-q").split())
    # Later blocks need a server that an earlier one starts in the background, so wait for it.
    setting = "set -euo pipefail\ncurl() { command curl --fail --retry 20 --retry-all-errors --retry-delay 1 \"$@\"; }\n"
    ran = subprocess.run(
        ["bash", "-c", setting + script(page)], env=env, cwd=tmp_path, timeout=240,
        capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
    )
    for left in set(client.ok("ps", "-q").split()) - before:
        client.run("kill", left)
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"


def test_links_between_pages_lead_somewhere():
    for page in [ROOT / "README.md", ROOT / "examples" / "README.md", *(ROOT / "docs").rglob("*.md")]:
        # Code has brackets too.
        prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        for link in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", prose):
            if not link.startswith(("http:", "https:")):
                assert (page.parent / link).exists(), f"{page.name}: {link}"
