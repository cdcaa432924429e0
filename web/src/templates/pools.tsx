import { client, data } from "../api";
import { Loaded, useLoaded } from "../parts/loaded";

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
          <div class="wide" tabIndex={0} role="region" aria-label="Pools">
            <table>
              <thead>
                <tr>
                  <th>Template</th>
                  <th class="number">Ready</th>
                  <th class="number">Starting</th>
                  <th class="number">Size</th>
                  <th class="number">Claims</th>
                  <th class="number">Hit rate</th>
                  <th>Last error</th>
                </tr>
              </thead>
              <tbody>
                {all.map((pool) => (
                  <tr key={pool.template}>
                    <td>{pool.template}</td>
                    <td class="number">{pool.ready}</td>
                    <td class="number">{pool.starting}</td>
                    <td class="number">{pool.size}</td>
                    <td class="number">{pool.claimed}</td>
                    <td class="number">{hitRate(pool)}</td>
                    <td>{pool.lastError?.message}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </Loaded>
    </section>
  );
}

interface PoolRow {
  template: string;
  size: number;
  ready: number;
  starting: number;
  claimed: number;
  misses: number;
  lastError?: { message: string } | null;
}

function hitRate({ claimed, misses }: PoolRow): string {
  const asked = claimed + misses;
  return asked ? `${Math.round((claimed / asked) * 100)} %` : "—";
}
