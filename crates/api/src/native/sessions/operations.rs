//! The operations of sessions in the OpenAPI document.

mod parts;

use shoal_protocol::native as wire;

use super::files;
use crate::native::sse::LAST_EVENT;
use crate::openapi::operation::{CREATE, Content, Dialect, Group, Operation, RequestHeader};

const GROUP: Group = Group(Dialect::Native, "Native: sessions");

/// All of them, in the order of the document.
pub(in crate::native) fn operations() -> Vec<Operation> {
    let families = [
        of_sessions(),
        of_windows(),
        of_files(),
        of_events(),
        parts::of_secrets(),
        parts::of_memories(),
    ];
    families.into_iter().flatten().collect()
}

fn of_sessions() -> Vec<Operation> {
    vec![
        GROUP
            .op("POST", "/sessions", "createSession", "Make a session")
            .about("It has no machine until its first command.")
            .body::<wire::NewSession>()
            .answers::<wire::Session>(201)
            .fails(&[400, 429, 501, 507]),
        GROUP
            .op(
                "GET",
                "/sessions",
                "listSessions",
                "List sessions, newest first",
            )
            .about("Sessions of the key's team.")
            .lists::<wire::Session>(&[])
            .fails(&[501]),
        GROUP
            .op("GET", "/sessions/{id}", "getSession", "Show a session")
            .answers::<wire::Session>(200)
            .fails(&[404, 501]),
        GROUP
            .op(
                "PATCH",
                "/sessions/{id}",
                "changeSession",
                "Change a session",
            )
            .about("Absent fields keep their values.")
            .body::<wire::ChangeSession>()
            .answers::<wire::Session>(200)
            .fails(&[400, 404, 501, 507]),
        GROUP
            .op(
                "DELETE",
                "/sessions/{id}",
                "deleteSession",
                "Delete a session with everything in it",
            )
            .answers::<()>(200)
            .fails(CREATE)
            .fails(&[501]),
        GROUP
            .op(
                "POST",
                "/sessions/{id}/reset",
                "resetSession",
                "End the machine of a session",
            )
            .about(
                "Without a token, nothing ends: the answer has the status 202 and the token that confirms it. With the \
                 token, the machine ends at once. The session stays.",
            )
            .body::<wire::ResetSession>()
            .answers::<wire::SessionReset>(200)
            .answers::<wire::SessionReset>(202)
            .fails(CREATE)
            .fails(&[501]),
    ]
}

fn of_windows() -> Vec<Operation> {
    vec![
        GROUP
            .op(
                "POST",
                "/sessions/{id}/exec",
                "runInSession",
                "Run a command in a window",
            )
            .about(
                "In place of the command that runs there. Starts the machine and opens the window when there is none. \
                 Answers with a line of JSON for each piece of output, and a last one for the end. The command \
                 continues when its client goes.",
            )
            .required_body::<wire::SessionCommand>()
            .lines::<wire::SessionOutput>()
            .fails(CREATE)
            .fails(&[501]),
        GROUP
            .op(
                "POST",
                "/sessions/{id}/windows/{window}/cancel",
                "cancelInSession",
                "Cancel the command of a window",
            )
            .answers::<()>(200)
            .fails(&[400, 404, 501]),
        GROUP
            .op(
                "GET",
                "/sessions/{id}/windows/{window}/ws",
                "attachToSession",
                "Attach a terminal to a window over a WebSocket",
            )
            .about(
                "Starts the machine and opens the window when there is none, and repeats what is kept of the window's \
                 output. The messages are those of `/terminal/sandbox/{id}/ws`. Closing it detaches: the window stays.",
            )
            .empty(101)
            .fails(CREATE)
            .fails(&[405, 426, 501]),
    ]
}

const CONDITIONS: &[RequestHeader] = &[
    RequestHeader("If-Match", "Write only over the file with this `ETag`."),
    RequestHeader(
        "If-None-Match",
        "`*`: write only when there is no file yet.",
    ),
];

fn of_files() -> Vec<Operation> {
    let files = "/sessions/{id}/files";
    let content = "/sessions/{id}/files/content";
    vec![
        GROUP
            .op("GET", files, "listSessionFiles", "List the files of a session")
            .about("They are there with and without a machine. By path.")
            .query::<files::SessionFilesQuery>()
            .lists::<wire::SessionFile>(&[])
            .fails(&[400, 404, 501]),
        GROUP
            .op("DELETE", files, "removeSessionFiles", "Remove a file, or a directory with its files")
            .query::<files::SessionPathQuery>()
            .answers::<wire::SessionFileCount>(200)
            .fails(&[400, 404, 409, 501, 507]),
        GROUP
            .op("GET", content, "readSessionFile", "Read a file of a session")
            .query::<files::SessionPathQuery>()
            .answer(200, Content::Bytes, &["ETag"])
            .fails(&[400, 404, 501]),
        GROUP
            .op("PUT", content, "writeSessionFile", "Write a file of a session")
            .about("At most 64 MiB. The machine gets it at once, unless a `.gitignore` of the session ignores it.")
            .query::<files::SessionFileQuery>()
            .headers(CONDITIONS)
            .archive()
            .answers::<wire::SessionFile>(200)
            .fails(&[400, 404, 409, 412, 413, 429, 501, 507]),
        GROUP
            .op("POST", "/sessions/{id}/files/move", "moveSessionFiles", "Move a file, or a directory with its files")
            .required_body::<wire::MoveSessionFile>()
            .answers::<wire::SessionFileCount>(200)
            .fails(&[400, 404, 409, 501, 507]),
        GROUP
            .op("GET", "/sessions/{id}/sync", "getSessionSync", "Show how the files of a session and of its machine stand")
            .answers::<wire::SessionSync>(200)
            .fails(&[404, 501]),
    ]
}

fn of_events() -> Vec<Operation> {
    vec![
        GROUP
            .op("GET", "/sessions/{id}/events", "followSession", "Follow what happens in a session")
            .about(
                "Server-sent events: `ready` once the subscription stands, then `session` for each event, with this data. \
                 After `lagged`, and after `ready`, read the session: nothing is repeated. Comments and the end are those \
                 of `/sandboxes/events`; the stream ends with the session, too.",
            )
            .headers(&[LAST_EVENT])
            .events::<wire::SessionNotice>()
            .fails(&[404, 501]),
        GROUP
            .op("GET", "/sessions/{id}/files/watch", "watchSessionFiles", "Follow changes of the files of a session")
            .about(
                "As `/sessions/{id}/events`, with the events of files alone, named `files`. After `lagged` list the files \
                 again.",
            )
            .query::<files::SessionFilesQuery>()
            .headers(&[LAST_EVENT])
            .events::<wire::SessionFilesNotice>()
            .fails(&[404, 501]),
    ]
}
