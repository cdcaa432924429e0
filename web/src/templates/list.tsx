import { useSignal } from "@preact/signals";
import { client, data, type Schemas } from "../api";
import { ago, bytes } from "../format";
import { now } from "../parts/clock";
import { Loaded, useLoaded } from "../parts/loaded";
import { Table } from "../parts/table";
import { to } from "../route";
import { CreateDialog } from "../sandboxes/create";
import { Progress } from "./builds";
import { Catalogue } from "./catalogue";
import { BuildDialog } from "./dockerfile";
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
          <Table
            label="Templates"
            rows={all}
            id={(one) => one.templateID}
            columns={[
              { title: "Name", cell: (one) => <Name of={one} /> },
              { title: "State", cell: (one) => <Progress of={one.state} /> },
              { title: "Tags", cell: (one) => one.tags.join(", ") },
              { title: "CPU", number: true, cell: (one) => one.cpuMilli / 1000 },
              { title: "Memory", number: true, cell: (one) => bytes(one.memoryMB * 2 ** 20) },
              { title: "Disk", number: true, cell: (one) => bytes(one.diskSizeMB * 2 ** 20) },
              { title: "Updated", cell: (one) => `${ago(one.updatedAt, now.value)} ago` },
              {
                title: "Action",
                quiet: true,
                cell: (one) => <button onClick={() => (create.value = one.names[0] ?? one.templateID)}>Create sandbox</button>,
              },
            ]}
          />
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

function Name({ of }: { of: Schemas["Template"] }) {
  return (
    <>
      <a href={to("templates", of.templateID)}>
        <strong>{of.names[0] ?? of.templateID}</strong>
      </a>
      {of.public && <span class="label">public</span>}
      {of.stock && <span class="label">of the installation</span>}
      <div class="dim">{of.failure ?? of.description}</div>
    </>
  );
}
