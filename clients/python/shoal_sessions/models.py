"""The bodies of sessions.

Generated from crates/api/openapi.json by scripts/clients.py. Do not edit.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict


class ChangeSession(TypedDict):
    """Changes of a session. Absent fields stay as they are."""

    #: Your labels, in place of the former.
    metadata: NotRequired[dict[str, str] | None]
    #: Whether its machine is kept for a day after its last command, instead of an hour.
    persist: NotRequired[bool | None]
    #: Whether requests to its preview start its machine.
    wakeOnRequest: NotRequired[bool | None]


#: A file or a directory to move.
MoveSessionFile = TypedDict(
    "MoveSessionFile",
    {
        #: Where it is.
        "from": str,
        #: Where it goes. Nothing may be there.
        "to": str,
    },
)


class NewSession(TypedDict):
    """A session to make."""

    #: The machine that it gets.
    machine: NotRequired[SessionMachine]
    #: Your labels.
    metadata: NotRequired[dict[str, str]]
    #: Whether its machine is kept for a day after its last command, instead of an hour.
    persist: NotRequired[bool]
    #: Whether requests to its preview start its machine.
    wakeOnRequest: NotRequired[bool]


class PutMemory(TypedDict):
    """The text of a memory."""

    #: The text: at most 65536 bytes.
    text: str


class ResetSession(TypedDict):
    """A reset of a session."""

    #: The token of the answer to a request without one. It confirms the reset.
    token: NotRequired[str | None]


class Session(TypedDict):
    """A session."""

    #: When it was made.
    createdAt: str
    #: When its machine ends unless it is used; absent while a command runs, and without a machine.
    endsAt: NotRequired[str | None]
    #: Its id.
    id: str
    #: The isolation of its present machine: `gvisor`, `namespaces` (runc), or `microvm`, which needs KVM.
    isolation: NotRequired[str | None]
    #: When its last command ended, or its machine started, or it was made.
    lastExecution: str
    #: The machine that it gets.
    machine: SessionMachine
    #: Your labels.
    metadata: dict[str, str]
    #: Whether its machine is kept for a day after its last command, instead of an hour.
    persist: bool
    #: Where everybody who knows this URL reaches port 8080 of its machine.
    previewUrl: str
    #: The host name of its preview, for its whole life.
    publicHostname: str
    #: Its present sandbox; absent when it has none, and for an external machine.
    sandboxId: NotRequired[str | None]
    #: The fingerprint of its external machine's host key, once it was connected.
    sshHostKey: NotRequired[str | None]
    #: The system of its present machine, and, in brackets, why it is not what the session is to have.
    system: NotRequired[str | None]
    #: Whether requests to its preview start its machine.
    wakeOnRequest: bool
    #: Its open windows.
    windows: list[SessionWindow]


class SessionCommand(TypedDict):
    """A command for a window of a session."""

    #: The command line.
    command: str
    #: The window, by default `main`. It opens when it is not open. A command that runs in it is cancelled.
    window: NotRequired[str | None]


class SessionFile(TypedDict):
    """A file of a session."""

    #: Both sides had changed the file at this path, and this is the machine's.
    conflictOf: NotRequired[str | None]
    #: Whether its owner may execute it.
    executable: bool
    #: When its contents last changed.
    modifiedAt: str
    #: Where it is, below the home directory of the machine.
    path: str
    #: The SHA-256 digest of its contents, in hexadecimal digits.
    sha256: str
    #: Its size, in bytes.
    size: int


class SessionFileCount(TypedDict):
    """How many files were concerned."""

    #: The number of files.
    files: int


class SessionFilesNotice(TypedDict):
    """Files of a session that changed, from either side."""

    #: When they changed.
    at: str
    #: Paths of files that were written.
    changed: list[str]
    #: Paths of files that are gone.
    removed: list[str]


class SessionMachine(TypedDict):
    """The machine of a session. Values that are absent are those of its template."""

    #: Processors: 1 to 16.
    cpu_count: NotRequired[int | None]
    #: The image of the container in which commands run. Needs `privileged`.
    docker_image: NotRequired[str | None]
    #: The number of its GPUs: 1 to 8.
    gpu_count: NotRequired[int | None]
    #: The model of its GPUs: A10G, A100, T4, L4 or H100.
    gpu_type: NotRequired[str | None]
    #: Memory in GiB: 1 to 64.
    memory_gb: NotRequired[int | None]
    #: Whether containers run inside.
    privileged: NotRequired[bool]
    #: An external machine: `username@host:port`. Needs `ssh_private_key`, and excludes all others.
    ssh_connection: NotRequired[str | None]
    #: The private key of the external machine: Ed25519 or ECDSA, without a passphrase. It is in no answer.
    ssh_private_key: NotRequired[str | None]


class SessionMemory(TypedDict):
    """A memory of a session."""

    #: Its name.
    name: str
    #: Its text.
    text: str
    #: When it was written.
    updatedAt: str


class SessionMemoryEntry(TypedDict):
    """A memory of a session in a list."""

    #: The length of its text.
    bytes: int
    #: Its name.
    name: str
    #: When it was written.
    updatedAt: str


class SessionNoticeChanged(TypedDict):
    """Its labels or settings changed."""

    #: When it happened.
    at: str
    type: Literal["changed"]


class SessionNoticeDeleted(TypedDict):
    """It is deleted. The stream ends."""

    #: When it happened.
    at: str
    type: Literal["deleted"]


class SessionNoticeMachineStarted(TypedDict):
    """A machine started."""

    #: When it happened.
    at: str
    #: The sandbox.
    sandboxId: str
    type: Literal["machine_started"]


class SessionNoticeMachineEnded(TypedDict):
    """The machine ended."""

    #: When it happened.
    at: str
    #: The sandbox.
    sandboxId: str
    type: Literal["machine_ended"]


class SessionNoticeReset(TypedDict):
    """A reset was confirmed: the machine is being ended."""

    #: When it happened.
    at: str
    type: Literal["reset"]


class SessionNoticeWindowOpened(TypedDict):
    """A window opened."""

    #: When it happened.
    at: str
    type: Literal["window_opened"]
    #: Its name.
    window: str


class SessionNoticeWindowClosed(TypedDict):
    """A window closed."""

    #: When it happened.
    at: str
    type: Literal["window_closed"]
    #: Its name.
    window: str


class SessionNoticeCommandStarted(TypedDict):
    """A command started."""

    #: When it happened.
    at: str
    #: The command line, with `***` in place of secrets.
    command: str
    type: Literal["command_started"]
    #: Its window.
    window: str


class SessionNoticeCommandEnded(TypedDict):
    """A command ended."""

    #: When it happened.
    at: str
    #: The exit code, if it exited.
    exitCode: NotRequired[int | None]
    #: `exited`, `cancelled`, or `lost` with its window or machine.
    outcome: str
    #: Why it is lost.
    reason: NotRequired[str | None]
    type: Literal["command_ended"]
    #: Its window.
    window: str


class SessionNoticeSync(TypedDict):
    """The files of both sides stand in another way."""

    #: When it happened.
    at: str
    #: How many files wait for the machine, or cannot get there.
    behind: int
    #: Whether there is a machine that is kept equal.
    connected: bool
    #: `synced`, `behind` or `conflict`.
    state: str
    type: Literal["sync"]


class SessionNoticeFiles(TypedDict):
    """Files changed, from either side. Many files become several events."""

    #: When it happened.
    at: str
    #: Paths of files that were written.
    changed: list[str]
    #: Paths of files that are gone.
    removed: list[str]
    type: Literal["files"]


class SessionNoticeSecretActivated(TypedDict):
    """A secret became a variable of the windows."""

    #: When it happened.
    at: str
    #: Its name.
    name: str
    type: Literal["secret_activated"]


class SessionNoticeSecretDeactivated(TypedDict):
    """A secret was taken from the windows."""

    #: When it happened.
    at: str
    #: Its name.
    name: str
    type: Literal["secret_deactivated"]


#: Something that happened in a session, as the stream of events tells it.
SessionNotice = (
    SessionNoticeChanged |
    SessionNoticeDeleted |
    SessionNoticeMachineStarted |
    SessionNoticeMachineEnded |
    SessionNoticeReset |
    SessionNoticeWindowOpened |
    SessionNoticeWindowClosed |
    SessionNoticeCommandStarted |
    SessionNoticeCommandEnded |
    SessionNoticeSync |
    SessionNoticeFiles |
    SessionNoticeSecretActivated |
    SessionNoticeSecretDeactivated
)


class SessionOutputNotice(TypedDict):
    """A warning about its machine, which has just started: that it differs from the session's machine
    type. Comes first.
    """
    #: A sentence for people.
    message: str
    type: Literal["notice"]


class SessionOutputOutput(TypedDict):
    """Text on its terminal."""

    #: The text.
    data: str
    type: Literal["output"]


class SessionOutputExit(TypedDict):
    """It has exited."""

    #: Its exit code.
    code: int
    type: Literal["exit"]


class SessionOutputCancelled(TypedDict):
    """A later command, or a request, has cancelled it."""

    type: Literal["cancelled"]


class SessionOutputLost(TypedDict):
    """Its window or its machine has ended."""

    #: Why.
    reason: str
    type: Literal["lost"]


#: A line of the answer to a command: perhaps a notice, then output, and at last one of the others.
SessionOutput = (
    SessionOutputNotice |
    SessionOutputOutput |
    SessionOutputExit |
    SessionOutputCancelled |
    SessionOutputLost
)


class SessionReset(TypedDict):
    """The result of a request for a reset."""

    #: Whether the machine has ended. Otherwise, send the token to confirm it.
    done: bool
    #: The token that confirms the reset.
    token: NotRequired[str | None]
    #: Until when it does.
    until: NotRequired[str | None]


class SessionSecret(TypedDict):
    """A secret of a session, without its value."""

    #: Whether windows have it as a variable. That ends with the machine; activated without a machine, it is for the next one.
    active: bool
    #: Its name, and that of its variable.
    name: str
    #: When its value was set.
    setAt: str


class SessionSync(TypedDict):
    """How the files of a session and of its machine stand."""

    #: How many files wait for the machine, or cannot get there.
    behind: int
    #: The machine's versions of files that both sides had changed. Remove or move them to settle the conflict.
    conflicts: list[str]
    #: Whether there is a machine that is kept equal.
    connected: bool
    #: Files that are not synced, each with the reason.
    notes: list[str]
    #: `synced`, also without a machine; `behind`, while files of the session wait for the machine, or while the synchronization is interrupted; or `conflict`.
    state: str


class SessionWindow(TypedDict):
    """An open window of a session."""

    #: When it was last used.
    activeAt: str
    #: Its name.
    name: str
    #: The command that runs in it.
    running: NotRequired[str | None]


class SetSecret(TypedDict):
    """The value of a secret. It is in no answer."""

    #: The value: 1 to 32768 bytes of text, without NUL.
    value: str
