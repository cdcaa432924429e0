import { useSignal } from "@preact/signals";
import { client, data } from "../api";
import { Catalogue } from "./catalogue";
import { BuildDialog } from "./dockerfile";
import { ago, bytes } from "../format";
import { now } from "../parts/clock";
import { Loaded, useLoaded } from "../parts/loaded";
import { Progress } from "./builds";
import { to } from "../route";
import { CreateDialog } from "../sandboxes/create";
import { Pools } from "./pools";
import { Resolve } from "./resolve";

export function TemplateList() {
  const create = useSignal("");
  const building = useSignal(false);
  const templates = useLoaded(() => data(client.GET("/api/v1/templates")));
  return (
    <>
      <div class="bar">
        <h1>Templates</h1>
        <button onClick={templates.again}>Read again</button>
        <span class="grow" />
        <button class="primary" onClick={() => (building.value = true)}>
          Build…
        </button>
      </div>
      <Loaded from={templates} empty="There is no template: build one.">
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
                      <a href={to("templates", one.templateID)}>
                        <strong>{one.names[0] ?? one.templateID}</strong>
                      </a>
                      {one.public && <span class="label">public</span>}
                      {one.stock && <span class="label">of the installation</span>}
                      <div class="dim">{one.failure ?? one.description}</div>
                    </td>
                    <td>
                      <Progress of={one.state} />
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
      {building.value && <BuildDialog onClose={() => (building.value = false)} />}
      {create.value && <CreateDialog template={create.value} onClose={() => (create.value = "")} />}
    </>
  );
}
