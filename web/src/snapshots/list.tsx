import { useSignal } from "@preact/signals";
import { body, client } from "../api";
import { ago, bytes } from "../format";
import { sandboxes } from "../live";
import { now } from "../parts/clock";
import { Dialog } from "../parts/dialog";
import { Loaded, useLoaded } from "../parts/loaded";
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
          <div class="wide" tabIndex={0} role="region" aria-label="Snapshots">
            <table>
              <thead>
                <tr>
                  <th>Snapshot</th>
                  <th>Taken of</th>
                  <th>Created from it</th>
                  <th>Contents</th>
                  <th class="number">Memory</th>
                  <th class="number">Files</th>
                  <th>Age</th>
                  <th>
                    <span class="hidden">Actions</span>
                  </th>
                </tr>
              </thead>
              <tbody>
                {branches(all, sandboxes.value.values()).map(({ snapshot: one, depth, sandboxes: made }) => (
                  <tr key={one.snapshotID}>
                    <td>
                      <span class="branch">
                        {depth > 0 && (
                          <>
                            <span class="dim" aria-hidden="true">
                              {"\u00a0\u00a0".repeat(depth - 1)}└{" "}
                            </span>
                            <span class="hidden">Level {depth + 1}: </span>
                          </>
                        )}
                        <strong>{one.names[0] ?? one.snapshotID}</strong>
                      </span>
                    </td>
                    <td>
                      {sandboxes.value.has(one.shoal.source) ? (
                        <a href={to("sandboxes", one.shoal.source)}>{one.shoal.source}</a>
                      ) : (
                        <span class="dim">{one.shoal.source}, which is gone</span>
                      )}
                    </td>
                    <td>{made.length ? <Made ids={made} /> : <span class="dim">none</span>}</td>
                    <td>{one.shoal.contents}</td>
                    <td class="number">{bytes(one.shoal.memoryBytes)}</td>
                    <td class="number">{bytes(one.shoal.fileBytes)}</td>
                    <td>{ago(one.shoal.createdAt, now.value)}</td>
                    <td>
                      <button onClick={() => (create.value = one.snapshotID)}>Create sandbox</button>{" "}
                      {admin && <button onClick={() => (exporting.value = one.names[0] ?? one.snapshotID)}>Export…</button>}{" "}
                      <button class="danger" onClick={() => (removing.value = one.snapshotID)}>
                        Delete
                      </button>
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
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

/** How many sandboxes are named; the list has all of them. */
const NAMED = 3;

function Made({ ids }: { ids: string[] }) {
  const more = ids.length - NAMED;
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
