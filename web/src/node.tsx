import { useState } from "preact/hooks";
import { client, data, type Schemas } from "./api";
import { duration } from "./format";
import { Loaded, useLoaded } from "./parts/loaded";
import { Table } from "./parts/table";

export function NodeView() {
  const status = useLoaded(() => data(client.GET("/api/v1/status")));
  const limits = useLoaded(() => data(client.GET("/api/v1/ratelimit")));
  const [round, setRound] = useState(0);
  const again = () => {
    status.again();
    limits.again();
    setRound(round + 1);
  };
  return (
    <>
      <div class="bar">
        <h1>Node</h1>
        <button onClick={again}>Read again</button>
      </div>
      <Loaded from={status}>
        {(one) => (
          <>
            <dl>
              <dt>Version</dt>
              <dd>{one.version}</dd>
              <dt>Driver</dt>
              <dd>{one.driver}</dd>
              <dt>Disk limits</dt>
              <dd>{one.diskLimit}</dd>
              <dt>Your team</dt>
              <dd>
                {one.team}: {states(one.states)}
              </dd>
              {one.totals && (
                <>
                  <dt>All teams</dt>
                  <dd>
                    {one.totals.teams} teams: {states(one.totals.states)}
                  </dd>
                  <dt>Sandboxes</dt>
                  <dd>
                    <Gauge used={one.totals.sandboxes.used} limit={one.totals.sandboxes.limit} label="Sandboxes" />
                  </dd>
                  <dt>CPU allocated</dt>
                  <dd>
                    <Gauge used={one.totals.cpuMilli.used / 1000} limit={one.totals.cpuMilli.limit / 1000} label="CPU" />
                  </dd>
                  <dt>Memory allocated</dt>
                  <dd>{one.totals.memoryMB} MiB</dd>
                </>
              )}
            </dl>
            <h2>Runtimes</h2>
            <ul>
              {one.runtimes.map((runtime, index) => (
                <li>
                  <strong>{runtime.name}</strong> {runtime.version}
                  <span class="label">{runtime.isolation.replaceAll("_", " ")}</span>
                  {runtime.memorySnapshot && <span class="label">memory snapshots</span>}
                  {index === 0 && <span class="label">default</span>}
                </li>
              ))}
            </ul>
            {one.admin && <Checks round={round} />}
          </>
        )}
      </Loaded>
      <h2>Your limits</h2>
      <Loaded from={limits}>
        {(found) => (
          <dl>
            <dt>Sandboxes</dt>
            <dd>
              <Gauge used={found.sandboxes.used} limit={found.sandboxes.limit} label="Your sandboxes" />
            </dd>
            <dt>Longest life</dt>
            <dd>{duration(found.maxTimeout)}</dd>
            <dt>Calls</dt>
            <dd>{found.calls ? `${found.calls.calls} in ${found.calls.seconds} s for each route` : "not limited"}</dd>
          </dl>
        )}
      </Loaded>
      <p class="dim">
        The{" "}
        <a href="/openapi.json" target="_blank" rel="noreferrer">
          OpenAPI document
        </a>{" "}
        describes every route.
      </p>
    </>
  );
}

/** What the machine lacks, with what fixes it, and what is fine. */
function Checks({ round }: { round: number }) {
  const findings = useLoaded<Finding[]>(() => data(client.GET("/api/v1/doctor")), [round]);
  return (
    <>
      <h2>Checks</h2>
      <Loaded from={findings}>
        {(all) => (
          <Table
            label="Checks"
            rows={all}
            id={(finding) => finding.what}
            columns={[
              { title: "Check", cell: (finding) => finding.what },
              { title: "Result", cell: ({ health }) => <span class={health === "good" ? "dim" : "problem"}>{health}</span> },
              { title: "Details", cell: (finding) => finding.detail },
              { title: "Fix", cell: ({ cure }) => cure && <code>{cure}</code> },
            ]}
          />
        )}
      </Loaded>
    </>
  );
}

type Finding = Schemas["Finding"];

function states(counts: Record<string, number>): string {
  return Object.entries(counts).map(([state, count]) => `${count} ${state}`).join(", ") || "no sandbox";
}

function Gauge({ used, limit, label }: { used: number; limit: number; label: string }) {
  return (
    <>
      <meter min={0} max={Math.max(limit, used, 1)} value={used} aria-label={label} /> {used} of {limit}
    </>
  );
}
