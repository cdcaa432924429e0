import { client, data } from "../api";
import { ago } from "../format";
import { now } from "../parts/clock";
import { Loaded, useLoaded } from "../parts/loaded";
import { Table } from "../parts/table";
import { attempt } from "../parts/toast";
import { go, to } from "../route";

const NONE = <span class="dim">none</span>;

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
          <Table
            label="Sessions"
            rows={all}
            id={(one) => one.id}
            columns={[
              { title: "Session", cell: ({ id }) => <a href={to("sessions", id)}>{id}</a> },
              { title: "Machine", cell: ({ sandboxId }) => (sandboxId ? <a href={to("sandboxes", sandboxId)}>{sandboxId}</a> : NONE) },
              { title: "Windows", cell: ({ windows }) => windows.map((window) => window.name).join(", ") || NONE },
              { title: "Last command", cell: (one) => `${ago(one.lastExecution, now.value)} ago` },
            ]}
          />
        )}
      </Loaded>
    </>
  );
}
