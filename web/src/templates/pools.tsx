import { useState } from "preact/hooks";
import { client, data, type Schemas } from "../api";
import { Chart } from "../parts/chart";
import { Loaded, useLoaded } from "../parts/loaded";
import { Table } from "../parts/table";
import { perMinute, type PoolSample } from "./samples";

type Pool = Schemas["Pool"];

export function Pools() {
  const [chosen, setChosen] = useState("");
  const [round, setRound] = useState(0);
  const pools = useLoaded<Pool[]>(() => data(client.GET("/api/v1/pool")), [round]);
  const history = (pool: Pool) => {
    const shown = chosen === pool.template;
    return (
      <button aria-pressed={shown} onClick={() => setChosen(shown ? "" : pool.template)}>
        History
      </button>
    );
  };
  return (
    <section>
      <div class="bar">
        <h2>Pools</h2>
        <button onClick={() => setRound(round + 1)}>Read again</button>
      </div>
      <Loaded from={pools} empty="No entry of the catalogue has a pool.">
        {(all) => (
          <Table
            label="Pools"
            rows={all}
            id={(pool) => pool.template}
            columns={[
              { title: "Template", cell: (pool) => pool.template },
              { title: "Ready", number: true, cell: (pool) => pool.ready },
              { title: "Parked", number: true, cell: (pool) => pool.parked },
              { title: "Starting", number: true, cell: (pool) => pool.starting },
              { title: "Size", number: true, cell: (pool) => pool.size },
              { title: "Claims", number: true, cell: (pool) => pool.claimed },
              { title: "Hit rate", number: true, cell: hitRate },
              { title: "Claim, p50 / p99", number: true, cell: claimTime },
              { title: "Last error", cell: (pool) => pool.lastError?.message },
              { title: "History", quiet: true, cell: history },
            ]}
          />
        )}
      </Loaded>
      {chosen && <History template={chosen} round={round} />}
    </section>
  );
}

function History({ template, round }: { template: string; round: number }) {
  const samples = useLoaded<PoolSample[]>(
    () => data(client.GET("/api/v1/pool/history/{id}", { params: { path: { id: template } } })),
    [template, round],
  );
  return (
    <Loaded from={samples} empty="No history is kept here.">
      {(all) => {
        const times = all.map((sample) => Date.parse(sample.at) / 1000);
        const chart = (title: string, values: number[], most?: number) => (
          <Chart title={title} times={times} values={values} show={number} most={most} />
        );
        return (
          <div class="charts" key={template}>
            {chart("Ready", all.map((sample) => sample.ready), all.at(-1)!.size)}
            {chart("Claims a minute", perMinute(all, (sample) => sample.claimed))}
            {chart("Misses a minute", perMinute(all, (sample) => sample.misses))}
          </div>
        );
      }}
    </Loaded>
  );
}

function number(value: number): string {
  return String(Math.round(value * 10) / 10);
}

function hitRate({ claimed, misses }: Pool): string {
  const asked = claimed + misses;
  return asked ? `${Math.round((claimed / asked) * 100)} %` : "—";
}

function claimTime({ claimSeconds: times }: Pool): string {
  const millis = (seconds: number) => Math.round(seconds * 1000);
  return times ? `${millis(times.p50)} / ${millis(times.p99)} ms` : "—";
}
