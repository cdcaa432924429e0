"""The operations of sessions.

Generated from crates/api/openapi.json by scripts/clients.py. Do not edit.
"""

from __future__ import annotations

from . import models
from .transport import Event, Stream, Transport, fill


class Sessions(Transport):
    """The sessions of a team."""

    def list_sessions(self) -> list[models.Session]:
        """List sessions, newest first.

        Sessions of the key's team.
        """
        data: list[models.Session] = self._data("GET", "/api/v1/sessions")
        return data

    def create_session(self, body: models.NewSession | None = None) -> models.Session:
        """Make a session.

        It has no machine until its first command.
        """
        data: models.Session = self._data("POST", "/api/v1/sessions", body=body)
        return data

    def delete_session(self, id: str) -> None:
        """Delete a session with everything in it."""
        self._data("DELETE", fill("/api/v1/sessions/{id}", id=id))

    def get_session(self, id: str) -> models.Session:
        """Show a session."""
        data: models.Session = self._data("GET", fill("/api/v1/sessions/{id}", id=id))
        return data

    def change_session(self, id: str, body: models.ChangeSession | None = None) -> models.Session:
        """Change a session.

        Absent fields keep their values.
        """
        data: models.Session = self._data("PATCH", fill("/api/v1/sessions/{id}", id=id), body=body)
        return data

    def follow_session(
        self,
        id: str,
        *,
        last_event_id: str | None = None,
    ) -> Stream[Event[models.SessionNotice]]:
        """Follow what happens in a session.

        Server-sent events: `ready` once the subscription stands, then `session` for each event,
        with this data. After `lagged`, and after `ready`, read the session: nothing is repeated.
        Comments and the end are those of `/sandboxes/events`; the stream ends with the session,
        too.
        """
        return self._events(
            "GET",
            fill("/api/v1/sessions/{id}/events", id=id),
            headers={"Last-Event-ID": last_event_id},
        )

    def run_in_session(self, id: str, body: models.SessionCommand) -> Stream[models.SessionOutput]:
        """Run a command in a window.

        In place of the command that runs there. Starts the machine and opens the window when there
        is none. Answers with a line of JSON for each piece of output, and a last one for the end.
        The command continues when its client goes.
        """
        return self._lines("POST", fill("/api/v1/sessions/{id}/exec", id=id), body=body)

    def remove_session_files(self, id: str, *, path: str) -> models.SessionFileCount:
        """Remove a file, or a directory with its files."""
        data: models.SessionFileCount = self._data(
            "DELETE",
            fill("/api/v1/sessions/{id}/files", id=id),
            query={"path": path},
        )
        return data

    def list_session_files(self, id: str, *, path: str | None = None) -> list[models.SessionFile]:
        """List the files of a session.

        They are there with and without a machine. By path.
        """
        data: list[models.SessionFile] = self._data(
            "GET",
            fill("/api/v1/sessions/{id}/files", id=id),
            query={"path": path},
        )
        return data

    def read_session_file(self, id: str, *, path: str) -> bytes:
        """Read a file of a session."""
        return self._bytes(
            "GET",
            fill("/api/v1/sessions/{id}/files/content", id=id),
            query={"path": path},
        )

    def write_session_file(
        self,
        id: str,
        content: bytes,
        *,
        executable: bool | None = None,
        path: str,
        if_match: str | None = None,
        if_none_match: str | None = None,
    ) -> models.SessionFile:
        """Write a file of a session.

        At most 64 MiB. The machine gets it at once, unless a `.gitignore` of the session ignores
        it.
        """
        data: models.SessionFile = self._data(
            "PUT",
            fill("/api/v1/sessions/{id}/files/content", id=id),
            query={"executable": executable, "path": path},
            headers={"If-Match": if_match, "If-None-Match": if_none_match},
            content=content,
        )
        return data

    def move_session_files(self, id: str, body: models.MoveSessionFile) -> models.SessionFileCount:
        """Move a file, or a directory with its files."""
        data: models.SessionFileCount = self._data(
            "POST",
            fill("/api/v1/sessions/{id}/files/move", id=id),
            body=body,
        )
        return data

    def watch_session_files(
        self,
        id: str,
        *,
        path: str | None = None,
        last_event_id: str | None = None,
    ) -> Stream[Event[models.SessionFilesNotice]]:
        """Follow changes of the files of a session.

        As `/sessions/{id}/events`, with the events of files alone, named `files`. After `lagged`
        list the files again.
        """
        return self._events(
            "GET",
            fill("/api/v1/sessions/{id}/files/watch", id=id),
            query={"path": path},
            headers={"Last-Event-ID": last_event_id},
        )

    def list_session_memories(self, id: str) -> list[models.SessionMemoryEntry]:
        """List the memories of a session by name."""
        data: list[models.SessionMemoryEntry] = self._data(
            "GET",
            fill("/api/v1/sessions/{id}/memories", id=id),
        )
        return data

    def delete_session_memory(self, id: str, memory: str) -> None:
        """Delete a memory."""
        self._data("DELETE", fill("/api/v1/sessions/{id}/memories/{memory}", id=id, memory=memory))

    def get_session_memory(self, id: str, memory: str) -> models.SessionMemory:
        """Read a memory."""
        data: models.SessionMemory = self._data(
            "GET",
            fill("/api/v1/sessions/{id}/memories/{memory}", id=id, memory=memory),
        )
        return data

    def put_session_memory(
        self,
        id: str,
        memory: str,
        body: models.PutMemory,
    ) -> models.SessionMemory:
        """Write a memory.

        Memories are kept outside of the machine, until they or their session are deleted.
        """
        data: models.SessionMemory = self._data(
            "PUT",
            fill("/api/v1/sessions/{id}/memories/{memory}", id=id, memory=memory),
            body=body,
        )
        return data

    def reset_session(
        self,
        id: str,
        body: models.ResetSession | None = None,
    ) -> models.SessionReset:
        """End the machine of a session.

        Without a token, nothing ends: the answer has the status 202 and the token that confirms it.
        With the token, the machine ends at once. The session stays.
        """
        data: models.SessionReset = self._data(
            "POST",
            fill("/api/v1/sessions/{id}/reset", id=id),
            body=body,
        )
        return data

    def list_session_secrets(self, id: str) -> list[models.SessionSecret]:
        """List the secrets of a session by name.

        Without their values, which no answer contains.
        """
        data: list[models.SessionSecret] = self._data(
            "GET",
            fill("/api/v1/sessions/{id}/secrets", id=id),
        )
        return data

    def delete_session_secret(self, id: str, secret: str) -> None:
        """Delete a secret.

        Windows lose the variable before their next command.
        """
        self._data("DELETE", fill("/api/v1/sessions/{id}/secrets/{secret}", id=id, secret=secret))

    def set_session_secret(
        self,
        id: str,
        secret: str,
        body: models.SetSecret,
    ) -> models.SessionSecret:
        """Set the value of a secret.

        It is stored encrypted. An active secret stays active, with the new value. Names that the
        machine needs (`PATH`, `HOME`, `LD_PRELOAD` and the like) are refused.
        """
        data: models.SessionSecret = self._data(
            "PUT",
            fill("/api/v1/sessions/{id}/secrets/{secret}", id=id, secret=secret),
            body=body,
        )
        return data

    def activate_session_secret(self, id: str, secret: str) -> models.SessionSecret:
        """Make a secret a variable of all windows.

        Open windows get it before their next command. It ends with the machine: another needs
        another activation. Without a machine, the next one has it. Output shows `***` in place of
        the value.
        """
        data: models.SessionSecret = self._data(
            "POST",
            fill("/api/v1/sessions/{id}/secrets/{secret}/activate", id=id, secret=secret),
        )
        return data

    def deactivate_session_secret(self, id: str, secret: str) -> models.SessionSecret:
        """Take a secret from all windows.

        Before their next command. Programs that run keep what they have.
        """
        data: models.SessionSecret = self._data(
            "POST",
            fill("/api/v1/sessions/{id}/secrets/{secret}/deactivate", id=id, secret=secret),
        )
        return data

    def get_session_sync(self, id: str) -> models.SessionSync:
        """Show how the files of a session and of its machine stand."""
        data: models.SessionSync = self._data("GET", fill("/api/v1/sessions/{id}/sync", id=id))
        return data

    def cancel_in_session(self, id: str, window: str) -> None:
        """Cancel the command of a window."""
        self._data(
            "POST",
            fill("/api/v1/sessions/{id}/windows/{window}/cancel", id=id, window=window),
        )
