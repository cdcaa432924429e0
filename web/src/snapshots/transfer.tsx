import { useSignal } from "@preact/signals";
import { client, data } from "../api";
import { bytes } from "../format";
import { Dialog, Field } from "../parts/dialog";
import { tell } from "../parts/toast";

/** Writes a snapshot into a file of the server's machine. */
export function ExportDialog({ snapshot, onClose }: { snapshot: string; onClose: () => void }) {
  const path = useSignal(`/var/tmp/${snapshot.replace(/^.*\//, "").replace(/[^\w.-]/g, "-")}.shoal`);
  const write = async () => {
    const done = await data(client.POST("/api/v1/snapshots/export", { body: { snapshot, path: path.value } }));
    tell(`Exported ${snapshot} to ${done.path}: ${bytes(done.bytes)}.`);
  };
  return (
    <Dialog title={`Export ${snapshot}`} action="Export" onClose={onClose} onDone={write}>
      <Field label="File" hint="An absolute path on the server's machine. The file must not exist.">
        <input required pattern="/.+" value={path.value} onInput={(event) => (path.value = event.currentTarget.value)} />
      </Field>
    </Dialog>
  );
}

/** Reads a snapshot from a file of the server's machine. */
export function ImportDialog({ onClose, onDone }: { onClose: () => void; onDone: () => void }) {
  const path = useSignal("");
  const name = useSignal("");
  const trust = useSignal(false);
  const read = async () => {
    const body = { path: path.value, name: name.value || null, trust: trust.value };
    const { snapshotID } = await data(client.POST("/api/v1/snapshots/import", { body }));
    tell(`Imported ${snapshotID}.`);
    onDone();
  };
  return (
    <Dialog title="Import a snapshot" action="Import" onClose={onClose} onDone={read}>
      <Field label="File" hint="An absolute path on the server's machine.">
        <input required pattern="/.+" value={path.value} onInput={(event) => (path.value = event.currentTarget.value)} />
      </Field>
      <Field label="Name" hint="The name that it had, if empty.">
        <input value={name.value} onInput={(event) => (name.value = event.currentTarget.value)} />
      </Field>
      <label class="check">
        <input type="checkbox" checked={trust.value} onChange={() => (trust.value = !trust.value)} /> Trust the file of another
        installation: its memory is loaded, and its programs run as its author wrote them
      </label>
    </Dialog>
  );
}
