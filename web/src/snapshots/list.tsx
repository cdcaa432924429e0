import { useSignal } from "@preact/signals";
import { body, client } from "../api";
import { ago, bytes } from "../format";
import { sandboxes } from "../live";
import { now } from "../parts/clock";
import { Dialog } from "../parts/dialog";
import { Loaded, useLoaded } from "../parts/loaded";
import { Table } from "../parts/table";
import { to } from "../route";
import { CreateDialog } from "../sandboxes/create";
import { status } from "../status";
import { ExportDialog, ImportDialog } from "./transfer";
import { branches } from "./tree";

export function SnapshotsView() {
  const create = useSignal("");
  const removing = useSignal("");
  const exporting = useSignal("");
  const importing = useSignal(false);
  // Files of the server's machine are an admin's.
  const admin = status.value?.admin === true;
  const snapshots = useLoaded(() => body(client.GET("/snapshots", { params: { query: { limit: 100 } } })));
  return (
    <>
      <div class="bar">
        <h1>Snapshots</h1>
        <button onClick={snapshots.again}>Read again</button>
        <span class="grow" />
        {admin && <button onClick={() => (importing.value = true)}>Import…</button>}
      </div>
      <Loaded from={snapshots} empty="There is no snapshot. Take one of a sandbox: sandboxes start from it with its memory and files.">
        {(all) => (
          <Table
            label="Snapshots"
            rows={branches(all, sandboxes.value.values())}
            id={({ snapshot }) => snapshot.snapshotID}
            columns={[
              { title: "Snapshot", cell: ({ snapshot, depth }) => <Name name={snapshot.names[0] ?? snapshot.snapshotID} depth={depth} /> },
              { title: "Taken of", cell: ({ snapshot }) => <Source id={snapshot.shoal.source} /> },
              { title: "Created from it", cell: ({ sandboxes }) => <Made ids={sandboxes} /> },
              { title: "Contents", cell: ({ snapshot }) => snapshot.shoal.contents },
              { title: "Memory", number: true, cell: ({ snapshot }) => bytes(snapshot.shoal.memoryBytes) },
              { title: "Files", number: true, cell: ({ snapshot }) => bytes(snapshot.shoal.fileBytes) },
              { title: "Age", cell: ({ snapshot }) => ago(snapshot.shoal.createdAt, now.value) },
              {
                title: "Actions",
                quiet: true,
                cell: ({ snapshot: { snapshotID, names } }) => (
                  <>
                    <button onClick={() => (create.value = snapshotID)}>Create sandbox</button>{" "}
                    {admin && <button onClick={() => (exporting.value = names[0] ?? snapshotID)}>Export…</button>}{" "}
                    <button class="danger" onClick={() => (removing.value = snapshotID)}>
                      Delete
                    </button>
                  </>
                ),
              },
            ]}
          />
        )}
      </Loaded>
      {exporting.value && <ExportDialog snapshot={exporting.value} onClose={() => (exporting.value = "")} />}
      {importing.value && <ImportDialog onClose={() => (importing.value = false)} onDone={snapshots.again} />}
      {create.value && <CreateDialog template={create.value} onClose={() => (create.value = "")} />}
      {removing.value && (
        <Dialog
          title={`Delete ${removing.value}?`}
          action="Delete"
          danger
          onClose={() => (removing.value = "")}
          onDone={async () => {
            await body(client.DELETE("/templates/{id}", { params: { path: { id: removing.value } } }));
            snapshots.again();
          }}
        >
          <p>Sandboxes that were created from it stay. This cannot be undone.</p>
        </Dialog>
      )}
    </>
  );
}

function Name({ name, depth }: { name: string; depth: number }) {
  return (
    <span class="branch">
      {depth > 0 && (
        <>
          <span class="dim" aria-hidden="true">
            {"\u00a0\u00a0".repeat(depth - 1)}└{" "}
          </span>
          <span class="hidden">Level {depth + 1}: </span>
        </>
      )}
      <strong>{name}</strong>
    </span>
  );
}

function Source({ id }: { id: string }) {
  return sandboxes.value.has(id) ? <a href={to("sandboxes", id)}>{id}</a> : <span class="dim">{id}, which is gone</span>;
}

/** How many sandboxes are named; the list has all of them. */
const NAMED = 3;

function Made({ ids }: { ids: string[] }) {
  const more = ids.length - NAMED;
  if (!ids.length) return <span class="dim">none</span>;
  return (
    <>
      {ids.slice(0, NAMED).map((id, index) => (
        <>
          {index > 0 && ", "}
          <a href={to("sandboxes", id)}>{id}</a>
        </>
      ))}
      {more > 0 && ` and ${more} more`}
    </>
  );
}
