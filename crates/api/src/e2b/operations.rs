//! E2B's operations in the OpenAPI document.
#![expect(clippy::too_many_lines, reason = "each function is one list")]

mod templates;

use super::{
    api_keys, create, list, logs, metrics, network, pause, sandboxes, snapshots, team_metrics, view,
};
use crate::openapi::operation::{
    CREATE, Content, Dialect, Group, KEYS, Operation, RequestHeader, SANDBOX,
};

const fn group(name: &'static str) -> Group {
    Group(Dialect::E2b, name)
}

/// All of them, in the order of the document.
pub(crate) fn operations() -> Vec<Operation> {
    let all = [
        of_new_sandboxes(),
        of_sandboxes(),
        of_snapshots(),
        of_observation(),
        templates::operations(),
        of_keys(),
    ];
    all.into_iter().flatten().collect()
}

const IDEMPOTENCY_KEY: RequestHeader = RequestHeader(
    "Idempotency-Key",
    "1 to 255 of a-z, 0-9 and `-`. A repeated request with this key gets the sandbox of the first.",
);

fn of_new_sandboxes() -> Vec<Operation> {
    let e2b = group("E2B: sandboxes");
    let created = Content::Json(|generator| generator.subschema_for::<view::Sandbox>());
    vec![
        e2b.op("POST", "/sandboxes", "createSandboxV1", "Create a sandbox")
            .about("The default timeout is 15 s, and the sandbox is secured only if the request says so.")
            .headers(&[IDEMPOTENCY_KEY])
            .required_body::<create::NewSandboxBody>()
            .answer(201, created, &["Server-Timing"])
            .fails(CREATE),
        e2b.op("POST", "/v2/sandboxes", "createSandbox", "Create a secured sandbox")
            .about("The default timeout is 300 s.")
            .headers(&[IDEMPOTENCY_KEY])
            .required_body::<create::NewSandboxBody>()
            .answer(201, created, &["Server-Timing"])
            .fails(CREATE),
        e2b.op("GET", "/sandboxes", "listSandboxesV1", "List running sandboxes, newest first")
            .query::<list::V1Query>()
            .lists::<view::ListedSandbox>(&[]),
        e2b.op("GET", "/v2/sandboxes", "listSandboxes", "List sandboxes by pages")
            .query::<list::V2Query>()
            .lists::<view::ListedSandbox>(&["X-Next-Token", "X-Total-Running"]),
    ]
}

fn of_sandboxes() -> Vec<Operation> {
    let e2b = group("E2B: sandboxes");
    vec![
        e2b.op("GET", "/sandboxes/{id}", "getSandbox", "Show a sandbox")
            .answers::<view::SandboxDetail>(200)
            .fails(&[404]),
        e2b.op("DELETE", "/sandboxes/{id}", "killSandbox", "Kill a sandbox")
            .empty(204)
            .fails(SANDBOX),
        e2b.op(
            "POST",
            "/sandboxes/{id}/connect",
            "connectSandboxV1",
            "Connect to a sandbox, resuming it if it is paused",
        )
        .about("`timeout` is required.")
        .body::<sandboxes::TimeoutBody>()
        .answers::<view::Sandbox>(200)
        .answers::<view::Sandbox>(201)
        .fails(CREATE),
        e2b.op(
            "POST",
            "/v2/sandboxes/{id}/connect",
            "connectSandbox",
            "Connect to a sandbox, resuming it if it is paused",
        )
        .about("The default timeout is 300 s.")
        .body::<sandboxes::TimeoutBody>()
        .answers::<view::Sandbox>(200)
        .answers::<view::Sandbox>(201)
        .fails(CREATE),
        e2b.op(
            "POST",
            "/sandboxes/{id}/timeout",
            "setTimeout",
            "Set the timeout of a sandbox, from now on",
        )
        .body::<sandboxes::TimeoutBody>()
        .empty(204)
        .fails(SANDBOX),
        e2b.op(
            "POST",
            "/sandboxes/{id}/refreshes",
            "refreshSandbox",
            "Extend the life of a sandbox",
        )
        .body::<sandboxes::RefreshBody>()
        .empty(204)
        .fails(SANDBOX),
        e2b.op(
            "PUT",
            "/sandboxes/{id}/network",
            "setNetwork",
            "Replace the outbound rules of a sandbox",
        )
        .about("Absent rules are cleared.")
        .required_body::<network::NetworkBody>()
        .empty(204)
        .fails(SANDBOX),
        e2b.op(
            "POST",
            "/sandboxes/{id}/pause",
            "pauseSandbox",
            "Pause a sandbox",
        )
        .body::<pause::PauseBody>()
        .empty(204)
        .fails(SANDBOX),
        e2b.op(
            "POST",
            "/sandboxes/{id}/resume",
            "resumeSandbox",
            "Resume a paused sandbox",
        )
        .deprecated()
        .body::<pause::ResumeBody>()
        .answers::<view::Sandbox>(201)
        .fails(CREATE),
    ]
}

const SNAPSHOT_HEADERS: &[RequestHeader] = &[
    RequestHeader(
        "x-e2b-kruise-snapshot-keep-running",
        "`true` or `false`: whether the sandbox runs on.",
    ),
    RequestHeader(
        "x-e2b-kruise-snapshot-ttl",
        "Time until the snapshot expires: `30m`, `30h` or `30d`.",
    ),
    RequestHeader(
        "x-e2b-kruise-snapshot-persistent-contents",
        "`filesystem`, or `memory,filesystem`.",
    ),
    RequestHeader(
        "x-e2b-kruise-snapshot-wait-success-seconds",
        "Seconds to wait for the snapshot.",
    ),
];

fn of_snapshots() -> Vec<Operation> {
    let e2b = group("E2B: snapshots");
    vec![
        e2b.op(
            "POST",
            "/sandboxes/{id}/snapshots",
            "createSnapshot",
            "Take a snapshot of a sandbox",
        )
        .headers(SNAPSHOT_HEADERS)
        .body::<snapshots::SnapshotBody>()
        .answers::<snapshots::Snapshot>(201)
        .fails(SANDBOX),
        e2b.op(
            "POST",
            "/sandboxes/{id}/fork",
            "forkSandbox",
            "Start copies of a running sandbox",
        )
        .about("Each member of the list is a sandbox, or the error of that copy.")
        .body::<snapshots::ForkBody>()
        .answers::<Vec<snapshots::Forked>>(201)
        .fails(CREATE),
        e2b.op(
            "GET",
            "/snapshots",
            "listSnapshots",
            "List snapshots by pages, newest first",
        )
        .query::<snapshots::ListQuery>()
        .lists::<snapshots::Snapshot>(&["X-Next-Token"])
        .fails(&[404]),
    ]
}

fn of_observation() -> Vec<Operation> {
    let e2b = group("E2B: logs and metrics");
    vec![
        e2b.op(
            "GET",
            "/sandboxes/{id}/logs",
            "getSandboxLogsV1",
            "Show log entries of a sandbox, oldest first",
        )
        .query::<logs::V1Query>()
        .answers::<logs::V1Logs>(200)
        .fails(SANDBOX),
        e2b.op(
            "GET",
            "/v2/sandboxes/{id}/logs",
            "getSandboxLogs",
            "Show log entries of a sandbox",
        )
        .query::<logs::V2Query>()
        .answers::<logs::V2Logs>(200)
        .fails(SANDBOX),
        e2b.op(
            "GET",
            "/sandboxes/{id}/metrics",
            "getSandboxMetrics",
            "Show the resource usage of a sandbox, oldest first",
        )
        .query::<metrics::HistoryQuery>()
        .lists::<metrics::SandboxMetric>(&[])
        .fails(&[404]),
        e2b.op(
            "GET",
            "/sandboxes/metrics",
            "getLatestMetrics",
            "Show the latest resource usage of sandboxes",
        )
        .about("Sandboxes that do not exist are left out.")
        .query::<metrics::LatestQuery>()
        .answers::<metrics::Latest>(200)
        .fails(&[404]),
        e2b.op(
            "GET",
            "/teams/{id}/metrics",
            "getTeamMetrics",
            "Show the sandboxes of a team over time",
        )
        .query::<team_metrics::TimeQuery>()
        .lists::<team_metrics::TeamMetric>(&[])
        .fails(&[403]),
        e2b.op(
            "GET",
            "/teams/{id}/metrics/max",
            "getTeamMaximum",
            "Show the maximum of a metric of a team",
        )
        .query::<team_metrics::MaxQuery>()
        .answers::<team_metrics::MaxTeamMetric>(200)
        .fails(&[403]),
    ]
}

fn of_keys() -> Vec<Operation> {
    let e2b = group("E2B: API keys");
    vec![
        e2b.op(
            "GET",
            "/api-keys",
            "listApiKeys",
            "List API keys of the team, oldest first",
        )
        .admin()
        .lists::<api_keys::TeamApiKey>(&[])
        .fails(&[409, 507]),
        e2b.op(
            "POST",
            "/api-keys",
            "createApiKey",
            "Create an API key of the team",
        )
        .about("The only response with the key itself.")
        .admin()
        .body::<api_keys::NewTeamApiKey>()
        .answers::<api_keys::CreatedTeamApiKey>(201)
        // A quota may be no matter of the backend.
        .fails(&[400, 403, 404, 409, 501, 507]),
        e2b.op(
            "PATCH",
            "/api-keys/{id}",
            "renameApiKey",
            "Rename an API key",
        )
        .admin()
        .body::<api_keys::NamedKey>()
        .empty(202)
        .fails(KEYS),
        e2b.op(
            "DELETE",
            "/api-keys/{id}",
            "deleteApiKey",
            "Delete an API key",
        )
        .admin()
        .empty(204)
        .fails(KEYS),
    ]
}
