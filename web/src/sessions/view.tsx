import { useSignal } from "@preact/signals";
import { client, data } from "../api";
import { at } from "../format";
import { Loaded, useLoaded } from "../parts/loaded";
import { to } from "../route";
import { TerminalPane } from "../terminal/pane";
import { Events, useSessionEvents } from "./events";

/** One session, kept as it is by its events. */
export function SessionView({ id }: { id: string }) {
  const params = { path: { id } };
  const session = useLoaded(() => data(client.GET("/api/v1/sessions/{id}", { params })));
  const sync = useLoaded(() => data(client.GET("/api/v1/sessions/{id}/sync", { params })));
  const attached = useSignal("");
  const again = () => {
    session.again();
    sync.again();
  };
  const events = useSessionEvents(id, again);
  return (
    <>
      <p class="crumbs">
        <a href={to("sessions")}>Sessions</a> / {id}
      </p>
      <div class="bar">
        <h1>{id}</h1>
        {events.state === "live" ? <span class="state ok">Live</span> : <button onClick={again}>Read again</button>}
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
      {/* They say why a session that was read can no longer be read. */}
      {session.value && (
        <>
          <h2>Events</h2>
          <Events events={events} />
        </>
      )}
    </>
  );
}
