import { client, data } from "../api";
import { ago } from "../format";
import { now } from "../parts/clock";
import { Loaded, useLoaded } from "../parts/loaded";
import { attempt } from "../parts/toast";
import { go, to } from "../route";

export function SessionList() {
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
