import { useSignal } from "@preact/signals";
import { client, data } from "./api";
import { Catalogue } from "./catalogue";
import { ago, bytes } from "./format";
import { now } from "./parts/clock";
import { Loaded, useLoaded } from "./parts/loaded";
import { CreateDialog } from "./sandboxes/create";

export function TemplatesView() {
  const create = useSignal("");
  const templates = useLoaded(() => data(client.GET("/api/v1/templates")));
  return (
    <>
      <div class="bar">
        <h1>Templates</h1>
        <button onClick={templates.again}>Read again</button>
      </div>
      <Loaded from={templates} empty={<p>There is no template. Build one with <code>shoal template build</code>.</p>}>
        {(all) => (
          <div class="wide" tabIndex={0} role="region" aria-label="Templates">
            <table>
              <thead>
                <tr>
                  <th>Name</th>
                  <th>State</th>
                  <th>Tags</th>
                  <th class="number">CPU</th>
                  <th class="number">Memory</th>
                  <th class="number">Disk</th>
                  <th>Updated</th>
                  <th>
                    <span class="hidden">Action</span>
                  </th>
                </tr>
              </thead>
              <tbody>
                {all.map((one) => (
                  <tr key={one.templateID}>
                    <td>
                      <strong>{one.names[0] ?? one.templateID}</strong>
                      {one.public && <span class="label">public</span>}
                      {one.stock && <span class="label">of the installation</span>}
                      <div class="dim">{one.failure ?? one.description}</div>
                    </td>
                    <td>
                      <span class={`state ${one.state === "ready" ? "ok" : one.state === "error" ? "bad" : "warn"}`}>
                        {one.state}
                      </span>
                    </td>
                    <td>{(one.tags ?? []).join(", ")}</td>
                    <td class="number">{one.cpuMilli / 1000}</td>
                    <td class="number">{bytes(one.memoryMB * 2 ** 20)}</td>
                    <td class="number">{bytes(one.diskSizeMB * 2 ** 20)}</td>
                    <td>{ago(one.updatedAt, now.value)} ago</td>
                    <td>
                      <button onClick={() => (create.value = one.names[0] ?? one.templateID)}>Create sandbox</button>
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </Loaded>
      <Resolve />
      <Pools />
      <Catalogue />
      {create.value && <CreateDialog template={create.value} onClose={() => (create.value = "")} />}
    </>
  );
}

/** What a name or image resolves to, with the origin of each value. */
function Resolve() {
  const typed = useSignal("");
  const asked = useSignal("");
  return (
    <section>
      <h2>What a name means</h2>
      <form
        class="bar"
        onSubmit={(event) => {
          event.preventDefault();
          asked.value = typed.value.trim();
        }}
      >
        <input
          aria-label="Name of a template"
          placeholder="base"
          required
          value={typed.value}
          onInput={(event) => (typed.value = event.currentTarget.value)}
        />
        <button>Resolve</button>
      </form>
      {asked.value && <Resolved key={asked.value} name={asked.value} />}
    </section>
  );
}

function Resolved({ name }: { name: string }) {
  const query = { templateID: name };
  const resolved = useLoaded(() => data(client.GET("/api/v1/config/templates/resolve", { params: { query } })), [name]);
  return <Loaded from={resolved}>{(found) => <pre class="source">{JSON.stringify(found, null, 2)}</pre>}</Loaded>;
}

function Pools() {
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
