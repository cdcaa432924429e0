"""The server of this suite, with the template `session-v1` built.

    python -m conformance.sessions.server

builds the template ahead of the suite. With the argument `remove` it frees the disk space.
"""

from __future__ import annotations

import functools

from .. import built
from ..built import BuiltServer
from ..shared import WORK

TEMPLATE = "session-v1"

DATA = WORK / "sessions"

#: A server that has the template.
TemplateServer = functools.partial(BuiltServer, TEMPLATE, DATA)

if __name__ == "__main__":
    built.main(TemplateServer())
