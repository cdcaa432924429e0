import { useSignal } from "@preact/signals";
import { body, client } from "./api";
import { ago, bytes } from "./format";
import { now } from "./parts/clock";
import { Dialog } from "./parts/dialog";
import { Loaded, useLoaded } from "./parts/loaded";
import { to } from "./route";
import { CreateDialog } from "./sandboxes/create";

export function SnapshotsView() {
  const create = useSignal("");
  const removing = useSignal("");
  const snapshots = useLoaded(() => body(client.GET("/snapshots", { params: { query: { limit: 100 } } })));
  return (
    <>
      <div class="bar">
        <h1>Snapshots</h1>
        <button onClick={snapshots.again}>Read again</button>
      </div>
      <Loaded from={snapshots} empty="There is no snapshot. Take one of a sandbox: sandboxes start from it with its memory and files.">
        {(all) => (
          <div class="wide" tabIndex={0} role="region" aria-label="Snapshots">
            <table>
              <thead>
                <tr>
                  <th>Snapshot</th>
                  <th>Taken of</th>
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
                {all.map((one) => (
                  <tr key={one.snapshotID}>
                    <td>
                      <strong>{one.names[0] ?? one.snapshotID}</strong>
                    </td>
                    <td>
                      <a href={to("sandboxes", one.shoal.source)}>{one.shoal.source}</a>
                    </td>
                    <td>{one.shoal.contents}</td>
                    <td class="number">{bytes(one.shoal.memoryBytes)}</td>
                    <td class="number">{bytes(one.shoal.fileBytes)}</td>
                    <td>{ago(one.shoal.createdAt, now.value)}</td>
                    <td>
                      <button onClick={() => (create.value = one.snapshotID)}>Create sandbox</button>{" "}
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
