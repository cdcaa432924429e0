import { useSignal } from "@preact/signals";
import { client, data } from "./api";
import { ago, at } from "./format";
import { now } from "./parts/clock";
import { Loaded, useLoaded } from "./parts/loaded";
import { attempt } from "./parts/toast";
import { go, to } from "./route";
import { TerminalPane } from "./terminal/pane";

export function SessionsView({ id }: { id?: string }) {
  return id ? <SessionView key={id} id={id} /> : <SessionList />;
}

function SessionList() {
  const sessions = useLoaded(() => data(client.GET("/api/v1/sessions")));
  const make = () => attempt(async () => go("sessions", (await data(client.POST("/api/v1/sessions", { body: {} }))).id));
  return (
    <>
      <div class="bar">
        <h1>Sessions</h1>
        <button onClick={sessions.again}>Read again</button>
        <span class="grow" />
        <button class="primary" onClick={make}>
          New session
        </button>
      </div>
      <Loaded from={sessions} empty="There is no session. A session keeps files and terminal windows while its machine comes and goes.">
        {(all) => (
          <div class="wide" tabIndex={0} role="region" aria-label="Sessions">
            <table>
              <thead>
                <tr>
                  <th>Session</th>
                  <th>Machine</th>
                  <th>Windows</th>
                  <th>Last command</th>
                </tr>
              </thead>
              <tbody>
                {all.map((one) => (
                  <tr key={one.id}>
                    <td>
                      <a href={to("sessions", one.id)}>{one.id}</a>
                    </td>
                    <td>{one.sandboxId ? <a href={to("sandboxes", one.sandboxId)}>{one.sandboxId}</a> : <span class="dim">none</span>}</td>
                    <td>{one.windows.map((window) => window.name).join(", ") || <span class="dim">none</span>}</td>
                    <td>{ago(one.lastExecution, now.value)} ago</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </Loaded>
    </>
  );
}

function SessionView({ id }: { id: string }) {
  const params = { path: { id } };
  const session = useLoaded(() => data(client.GET("/api/v1/sessions/{id}", { params })));
  const sync = useLoaded(() => data(client.GET("/api/v1/sessions/{id}/sync", { params })));
  const attached = useSignal("");
  const again = () => {
    session.again();
    sync.again();
  };
  return (
    <>
      <p class="crumbs">
        <a href={to("sessions")}>Sessions</a> / {id}
      </p>
      <div class="bar">
        <h1>{id}</h1>
        <button onClick={again}>Read again</button>
      </div>
      <Loaded from={session}>
        {(one) => (
          <>
            <dl>
              <dt>Machine</dt>
              <dd>{one.sandboxId ? <a href={to("sandboxes", one.sandboxId)}>{one.sandboxId}</a> : "none: the next command starts one"}</dd>
              <dt>System</dt>
              <dd>{one.system ?? "—"}</dd>
              <dt>Machine ends</dt>
              <dd>{one.endsAt ? at(one.endsAt) : "—"}</dd>
              <dt>Preview</dt>
              <dd>
                <a href={one.previewUrl} target="_blank" rel="noreferrer noopener">
                  {one.previewUrl}
                </a>
              </dd>
              <dt>Files</dt>
              <dd>
                {sync.problem ||
                  (sync.value && (
                    <>
                      <span class={`state ${sync.value.state === "synced" ? "ok" : "warn"}`}>{sync.value.state}</span>{" "}
                      {sync.value.notes.join(" ")} {sync.value.conflicts.join(", ")}
                    </>
                  ))}
              </dd>
            </dl>
            <h2>Windows</h2>
            <div class="bar">
              {["main", ...one.windows.map((window) => window.name).filter((name) => name !== "main")].map((name) => (
                <button aria-pressed={attached.value === name} onClick={() => (attached.value = name)}>
                  Attach {name}
                </button>
              ))}
              {attached.value && <button onClick={() => (attached.value = "")}>Detach</button>}
            </div>
            {attached.value && (
              <TerminalPane
                key={attached.value}
                path={`/api/v1/sessions/${id}/windows/${attached.value}/ws`}
                label={`Window ${attached.value}`}
                visible
              />
            )}
          </>
        )}
      </Loaded>
    </>
  );
}
