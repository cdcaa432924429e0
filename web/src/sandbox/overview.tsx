import { client, data, type Schemas } from "../api";
import { at, bytes, cpus, quantity } from "../format";
import { useLoaded } from "../parts/loaded";
import { Table } from "../parts/table";
import type { TabProps } from "./view";

const ISOLATION: Record<string, string> = {
  userspace_kernel: "a kernel in user space (gVisor)",
  namespaces: "namespaces: the kernel of the machine is shared",
  virtual_machine: "a virtual machine",
  none: "none",
};

const ORIGIN: Record<string, string> = {
  cold: "cold: it was booted",
  pooled: "pooled: it was claimed from a pool",
  restored: "restored from a saved memory",
};

const ROLE: Record<string, string> = {
  record: "the sandbox",
  owner: "its owner",
  runs: "runs it",
  node: "where it runs",
  started_from: "it was started from this",
  saved_from: "saved from it",
};

export function Overview({ one, detail }: TabProps) {
  const report = detail.shoal;
  const phases = Object.entries(report?.phases ?? {});
  const longest = Math.max(1, ...phases.map(([, ms]) => ms));
  return (
    <div class="columns">
      <dl>
        <dt>Id</dt>
        <dd>
          <code>{one.id}</code>
        </dd>
        <dt>Template</dt>
        <dd>{one.template}</dd>
        <dt>Image</dt>
        <dd>{one.image}</dd>
        <dt>Team</dt>
        <dd>{one.user}</dd>
        <dt>Size</dt>
        <dd>
          {cpus(one.cpu_limit)} CPU, {bytes(quantity(one.memory_limit))} memory, {bytes(detail.diskSizeMB * 2 ** 20)} disk
        </dd>
        <dt>Isolation</dt>
        <dd>
          {report ? (ISOLATION[report.isolation] ?? report.isolation) : "not started yet"}
          {report && <span class="dim"> by {report.runtime}</span>}
        </dd>
        <dt>Started</dt>
        <dd>{report ? (ORIGIN[report.origin] ?? report.origin) : "not yet"}</dd>
        <dt>Created</dt>
        <dd>{at(one.created_at)}</dd>
        <dt>{one.autoPause ? "Pauses" : "Ends"}</dt>
        <dd>{at(one.expires_at)}</dd>
        <dt>Labels</dt>
        <dd>
          {Object.entries(one.metadata).map(([name, value]) => (
            <span class="label">
              {name}={value}
            </span>
          ))}
          {!Object.keys(one.metadata).length && <span class="dim">none</span>}
        </dd>
      </dl>
      <div>
        <h2>Phases of the start</h2>
        {!phases.length && <p class="dim">None were measured.</p>}
        <ol class="phases">
          {phases.map(([name, ms]) => (
            <li>
              <span>{name.replaceAll("_", " ")}</span>
              <meter min={0} max={longest} value={ms} aria-label={name} />
              <span class="number">{ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms</span>
            </li>
          ))}
        </ol>
        <h2>Variables</h2>
        <Variables all={one.envVars ?? {}} />
        <Objects id={one.id} state={one.status} />
      </div>
    </div>
  );
}

/** What a cluster has behind the sandbox; nothing on one machine. */
function Objects({ id, state }: { id: string; state: string }) {
  const read = () => data(client.GET("/api/v1/sandbox/{id}/objects", { params: { path: { id } } }));
  const loaded = useLoaded(read, [id, state]);
  const objects = loaded.value?.objects ?? [];
  if (loaded.problem) return <p class="problem">{loaded.problem}</p>;
  if (!objects.length) return null;
  return (
    <>
      <h2>In the cluster</h2>
      <Table
        label="Objects in the cluster"
        rows={objects}
        id={(one: Schemas["SandboxObject"]) => `${one.kind}/${one.name}`}
        columns={[
          { title: "Kind", cell: (one) => <span title={one.apiVersion}>{one.kind}</span> },
          { title: "Name", cell: (one) => <code>{one.namespace ? `${one.namespace}/${one.name}` : one.name}</code> },
          { title: "Part", cell: (one) => ROLE[one.role] ?? one.role },
          { title: "State", cell: (one) => one.state },
        ]}
      />
    </>
  );
}

function Variables({ all }: { all: Record<string, string> }) {
  const names = Object.keys(all);
  if (!names.length) return <p class="dim">None were set.</p>;
  return (
    <dl>
      {names.map((name) => (
        <>
          <dt>
            <code>{name}</code>
          </dt>
          <dd>
            <code>{all[name]}</code>
          </dd>
        </>
      ))}
    </dl>
  );
}
