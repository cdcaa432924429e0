"""The server of this suite, with the template `session-v1` built.

    python -m conformance.sessions.server

builds the template ahead of the suite. With the argument `remove` it frees the disk space.
"""

from __future__ import annotations

from .. import built
from ..built import BuiltServer
from ..shared import WORK

TEMPLATE = "session-v1"

#: The template with Docker, and one of it with images, which privileged machines get.
DOCKER_TEMPLATE, OWN_DOCKER_TEMPLATE = "session-docker-v1", "docker-with-images"

DATA = WORK / "sessions"


class TemplateServer(BuiltServer):
    """A server that has the template."""

    settings = [*BuiltServer.settings, "sessions.privileged=true", f"sessions.docker_template={OWN_DOCKER_TEMPLATE}"]

    def __init__(self) -> None:
        super().__init__(TEMPLATE, DATA)


if __name__ == "__main__":
    built.main(TemplateServer())
