"""A typed client of Shoal's sessions.

    from shoal_sessions import Sessions

    sessions = Sessions("http://localhost:3000", "shoal_…")
    session = sessions.create_session()
    for line in sessions.run_in_session(session["id"], {"command": "make"}):
        if line["type"] == "output":
            print(line["data"], end="")
"""

from .client import Sessions
from .transport import Event, ShoalError, Stream

__all__ = ["Event", "Sessions", "ShoalError", "Stream"]
