import { client, data } from "../api";
import { Loaded, useLoaded } from "../parts/loaded";
import { Table } from "../parts/table";

export function Pools() {
  const pools = useLoaded(async () => (await data(client.GET("/api/v1/pool"))) as unknown as PoolRow[]);
  return (
    <section>
      <div class="bar">
        <h2>Pools</h2>
        <button onClick={pools.again}>Read again</button>
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
              { title: "Last error", cell: (pool) => pool.lastError?.message },
            ]}
          />
        )}
      </Loaded>
    </section>
  );
}

interface PoolRow {
  template: string;
  size: number;
  ready: number;
  parked: number;
  starting: number;
  claimed: number;
  misses: number;
  lastError?: { message: string } | null;
}

function hitRate({ claimed, misses }: PoolRow): string {
  const asked = claimed + misses;
  return asked ? `${Math.round((claimed / asked) * 100)} %` : "—";
}
