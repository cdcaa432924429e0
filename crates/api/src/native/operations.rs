//! The native API's operations in the OpenAPI document.
#![expect(clippy::too_many_lines, reason = "each function is one list")]

mod templates;

use shoal_protocol::native as wire;

use super::{files, images, observe, sandbox_events, sandboxes};
use crate::openapi::operation::{
    CREATE, Content, Dialect, Group, IMAGE, INSIDE, KEYS, Operation, SANDBOX, SNAPSHOT,
};

const fn group(name: &'static str) -> Group {
    Group(Dialect::Native, name)
}

/// All of them, in the order of the document.
pub(crate) fn operations() -> Vec<Operation> {
    let all = [
        of_sandboxes(),
        of_insides(),
        super::sessions::operations(),
        of_observation(),
        templates::operations(),
        of_installation(),
    ];
    all.into_iter().flatten().collect()
}

fn of_sandboxes() -> Vec<Operation> {
    let native = group("Native: sandboxes");
    vec![
        native
            .op(
                "POST",
                "/sandbox",
                "createNativeSandbox",
                "Create a sandbox",
            )
            .about("Answers when the sandbox runs and its program, if any, is started.")
            .body::<wire::NewSandbox>()
            .answers::<wire::Sandbox>(201)
            .fails(CREATE),
        native
            .op(
                "GET",
                "/sandbox",
                "listNativeSandboxes",
                "List sandboxes, newest first",
            )
            .about("Sandboxes of the key's team, or of all teams for an admin key.")
            .query::<sandboxes::ListQuery>()
            .lists::<wire::Sandbox>(&["X-Next-Token"]),
        native
            .op("GET", "/sandbox/{id}", "getNativeSandbox", "Show a sandbox")
            .answers::<wire::Sandbox>(200)
            .fails(&[404]),
        native
            .op(
                "DELETE",
                "/sandbox/{id}",
                "killNativeSandbox",
                "Kill a sandbox",
            )
            .answers::<()>(200)
            .fails(SANDBOX),
        native
            .op(
                "GET",
                "/sandbox/{id}/objects",
                "listSandboxObjects",
                "List the objects of a cluster behind a sandbox",
            )
            .about("Empty on one machine. The node is told to admin keys alone.")
            .answers::<wire::SandboxObjects>(200)
            .fails(SANDBOX),
        native
            .op(
                "PATCH",
                "/sandbox/{id}/resources",
                "resizeSandbox",
                "Change limits of a running sandbox",
            )
            .about("Absent fields keep their values.")
            .body::<wire::ResizeSandbox>()
            .answers::<wire::SandboxResources>(200)
            .fails(SANDBOX),
        native
            .op(
                "POST",
                "/sandbox/{id}/rotate-token",
                "rotateSandboxTokens",
                "Replace the tokens of a sandbox",
            )
            .answers::<wire::SandboxTokens>(200)
            .fails(SANDBOX),
        native
            .op(
                "POST",
                "/sandbox/pause/{id}",
                "pauseNativeSandbox",
                "Pause a sandbox",
            )
            .answers::<wire::Sandbox>(200)
            .fails(SANDBOX),
        native
            .op(
                "POST",
                "/sandbox/resume/{id}",
                "resumeNativeSandbox",
                "Resume a paused sandbox",
            )
            .body::<wire::ResumeSandbox>()
            .answers::<wire::Sandbox>(200)
            .fails(CREATE),
    ]
}

fn of_insides() -> Vec<Operation> {
    let native = group("Native: files and commands");
    vec![
        native
            .op("GET", "/sandbox/files/{id}", "listFiles", "List a directory of a sandbox")
            .query::<files::FileQuery>()
            .lists::<wire::FileEntry>(&[])
            .fails(INSIDE),
        native
            .op("DELETE", "/sandbox/files/{id}", "removeFile", "Remove a regular file, or a link to one")
            .query::<files::FileQuery>()
            .answers::<()>(200)
            .fails(INSIDE),
        native
            .op("GET", "/sandbox/files/{id}/download", "downloadFile", "Download a file")
            .query::<files::FileQuery>()
            .answer(200, Content::Bytes, &["Content-Disposition"])
            .fails(INSIDE),
        native
            .op("POST", "/sandbox/files/{id}/upload", "uploadFile", "Upload a file")
            .about("The part `file` of a form, at most 100 MiB.")
            .query::<files::FileQuery>()
            .form()
            .answers::<wire::FileEntry>(201)
            .fails(INSIDE),
        native
            .op("POST", "/terminal/sandbox/{id}", "runCommand", "Run a command line in a login shell")
            .body::<wire::RunCommand>()
            .answers::<wire::RanCommand>(200)
            .fails(INSIDE),
        native
            .op("GET", "/terminal/sandbox/{id}/ws", "openTerminal", "Open a terminal over a WebSocket")
            .about(
                "Messages are JSON. The client sends `{\"type\": \"init\", \"cols\": 80, \"rows\": 24}` first, then \
                 `input` (with `data`), `resize` and `close`; the server sends `ready`, `output`, `error`, `exit` and \
                 `closed`. A web page, which cannot set headers, sends the key as the subprotocol \
                 `shoal-key.<key>`, beside `shoal-terminal`.",
            )
            .empty(101)
            .fails(INSIDE)
            .fails(&[405, 426]),
    ]
}

fn of_observation() -> Vec<Operation> {
    let native = group("Native: logs and metrics");
    vec![
        native
            .op(
                "POST",
                "/sandbox/metrics",
                "getNativeMetrics",
                "Show the resource usage of sandboxes",
            )
            .about("Sandboxes that do not exist are left out.")
            .body::<wire::AskMetrics>()
            .answers::<wire::Items<wire::SandboxUse>>(200),
        native
            .op(
                "GET",
                "/logs/sandbox/{id}",
                "getNativeLogs",
                "Show the last log lines of a sandbox",
            )
            .about("A sandbox that has ended is found by its id only.")
            .query::<observe::LogsQuery>()
            .answers::<wire::SandboxLogs>(200)
            .fails(SANDBOX),
        native
            .op(
                "GET",
                "/events",
                "listEvents",
                "List events of the key's team, newest first",
            )
            .query::<observe::EventsQuery>()
            .answers::<wire::Items<wire::Event>>(200)
            .fails(&[404]),
        native
            .op(
                "GET",
                "/sandboxes/events",
                "followSandboxes",
                "Follow what happens to sandboxes",
            )
            .about(
                "Server-sent events: `ready` once the subscription stands, then `sandbox` for each event, with this data. \
                 After `lagged` read the list again: the reader was too slow, or has come back with a `Last-Event-ID`, \
                 and has missed some. A comment every 15 seconds keeps the connection open. The stream ends when the key \
                 is deleted or the server stops.",
            )
            .query::<sandbox_events::FollowQuery>()
            .headers(&[super::sse::LAST_EVENT])
            .events::<wire::SandboxNotice>()
            .fails(&[403, 501]),
    ]
}

fn of_installation() -> Vec<Operation> {
    let native = group("Native: installation");
    vec![
        native
            .op("GET", "/status", "getStatus", "Show the server's status")
            .answers::<wire::Status>(200),
        native
            .op("GET", "/doctor", "examineMachine", "Check the machine")
            .about(
                "The checks of `shoal doctor`, but for the port: what the machine lacks first, with what fixes it. A cluster \
                 answers 501.",
            )
            .admin()
            .lists::<wire::Finding>(&[])
            .fails(&[501]),
        native
            .op("GET", "/ratelimit", "getLimits", "Show limits and usage of the key's team")
            .answers::<wire::RateLimits>(200),
        native
            .op("GET", "/teams", "listTeams", "List teams: the key's own, or all for an admin key")
            .lists::<wire::Team>(&[])
            .fails(KEYS)
            .fails(SANDBOX),
        native
            .op("PUT", "/teams/{name}/limits", "setTeamLimits", "Set the limits of a team")
            .about("Creates the team if it does not exist. Absent limits are the installation's.")
            .admin()
            .body::<wire::NewTeamLimits>()
            .answers::<wire::NewTeamLimits>(200)
            .fails(KEYS)
            .fails(SANDBOX),
        native
            .op("GET", "/keys", "listNativeKeys", "List API keys of all teams, oldest first")
            .admin()
            .lists::<wire::Key>(&[])
            .fails(&[409, 507]),
        native
            .op("POST", "/keys", "createNativeKey", "Create an API key")
            .about("The only response with the secret.")
            .admin()
            .body::<wire::NewKey>()
            .answers::<wire::MintedKey>(201)
            .fails(KEYS),
        native
            .op("DELETE", "/keys/{id}", "deleteNativeKey", "Delete an API key")
            .admin()
            .answers::<()>(200)
            .fails(KEYS),
        native
            .op("GET", "/images", "listImages", "List images of the machine")
            .admin()
            .lists::<wire::Image>(&[])
            .fails(IMAGE),
        native
            .op("DELETE", "/images", "removeImage", "Remove an image")
            .admin()
            .query::<images::RemoveQuery>()
            .answers::<()>(200)
            .fails(IMAGE),
        native
            .op("POST", "/images/pull", "pullImage", "Pull an image from a registry")
            .about("Streams progress. A failure of the pull is the last line of a response with status 200.")
            .admin()
            .body::<wire::PullImage>()
            .lines::<wire::ImageEvent>(),
        native
            .op("POST", "/images/import", "importImage", "Import an image from a file of the machine")
            .about("Streams progress. A failure of the import is the last line of a response with status 200.")
            .admin()
            .body::<wire::ImportImage>()
            .lines::<wire::ImageEvent>(),
        native
            .op("POST", "/snapshots/export", "exportSnapshot", "Export a snapshot to a file of the machine")
            .admin()
            .body::<wire::ExportSnapshot>()
            .answers::<wire::ExportedSnapshot>(201)
            .fails(SNAPSHOT),
        native
            .op("POST", "/snapshots/import", "importSnapshot", "Import a snapshot from a file of the machine")
            .admin()
            .body::<wire::ImportSnapshot>()
            .answers::<wire::ImportedSnapshot>(201)
            .fails(SNAPSHOT),
    ]
}
