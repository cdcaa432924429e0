import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { client, data, envd, raw, type FileEntry, said } from "../api";
import { bytes } from "../format";
import { Dialog, Field } from "../parts/dialog";
import { Loaded, useLoaded } from "../parts/loaded";
import { attempt, tell } from "../parts/toast";
import { Opened } from "./opened";
import { upload } from "./upload";
import type { TabProps } from "./view";

/** Where a user begins to look. */
const HOME = "/home/user";

export function FilesTab({ one, detail }: TabProps) {
  const directory = useSignal(HOME);
  const opened = useSignal<FileEntry | null>(null);
  const naming = useSignal(false);
  const progress = useSignal<Record<string, number>>({});
  const over = useSignal(false);
  const list = (path: string) =>
    data(client.GET("/api/v1/sandbox/files/{id}", { params: { path: { id: one.id }, query: { path } } }));
  const entries = useLoaded(() => list(directory.value), [directory.value]);
  useEffect(() => {
    // An image may have no such home.
    if (entries.problem && directory.value === HOME && !entries.value) directory.value = "/";
  }, [entries.problem]);

  const send = async (files: Iterable<File>) => {
    await Promise.all(
      [...files].map(async (file) => {
        const path = join(directory.value, file.name);
        const report = (share: number) => (progress.value = { ...progress.value, [file.name]: share });
        try {
          await upload(one.id, path, file, report);
        } catch (error) {
          tell(`${file.name}: ${said(error)}`, "error");
        }
        const { [file.name]: _, ...rest } = progress.value;
        progress.value = rest;
      }),
    );
    entries.again();
  };
  const remove = (entry: FileEntry) =>
    attempt(async () => {
      await envd(detail, "filesystem.Filesystem/Remove", { path: entry.path });
      if (opened.value?.path === entry.path) opened.value = null;
      entries.again();
    }, `Removed ${entry.name}.`);
  return (
    <div
      class={over.value ? "files over" : "files"}
      onDragOver={(event) => {
        event.preventDefault();
        over.value = true;
      }}
      onDragLeave={() => (over.value = false)}
      onDrop={(event) => {
        event.preventDefault();
        over.value = false;
        void send(event.dataTransfer?.files ?? []);
      }}
    >
      <div>
        <div class="bar">
          <Path path={directory.value} go={(path) => (directory.value = path)} />
          <span class="grow" />
          <button onClick={() => (naming.value = true)}>New…</button>
          <label class="button">
            Upload
            <input
              type="file"
              multiple
              class="hidden"
              onChange={(event) => void send(event.currentTarget.files ?? [])}
            />
          </label>
        </div>
        {Object.entries(progress.value).map(([name, share]) => (
          <p>
            {name} <progress max={1} value={share} aria-label={`Upload of ${name}`} /> {Math.round(share * 100)} %
          </p>
        ))}
        <Loaded from={entries} empty="The directory is empty. Drop files here to upload them.">
          {(all) => (
            <ul class="entries">
              {[...all].sort((a, b) => Number(b.isDir) - Number(a.isDir)).map((entry) => (
                <li key={entry.path}>
                  <button
                    class="quiet entry"
                    aria-current={opened.value?.path === entry.path ? "true" : undefined}
                    onClick={() => (entry.isDir ? (directory.value = entry.path) : (opened.value = entry))}
                  >
                    <span aria-hidden="true">{entry.isDir ? "▸" : " "}</span> {entry.name}
                    {entry.isDir && "/"}
                  </button>
                  <span class="dim number">{entry.isDir ? "" : bytes(entry.size)}</span>
                  {!entry.isDir && (
                    <button class="quiet" aria-label={`Download ${entry.name}`} onClick={() => attempt(() => save(one.id, entry))}>
                      ↓
                    </button>
                  )}
                  <Remove name={entry.name} remove={() => remove(entry)} />
                </li>
              ))}
            </ul>
          )}
        </Loaded>
      </div>
      {opened.value && <Opened key={opened.value.path} id={one.id} entry={opened.value} onClose={() => (opened.value = null)} />}
      {naming.value && (
        <NewDialog
          onClose={() => (naming.value = false)}
          onNamed={async (name, folder) => {
            const path = join(directory.value, name);
            if (folder) await envd(detail, "filesystem.Filesystem/MakeDir", { path });
            else await upload(one.id, path, new File([], name), () => {});
            entries.again();
            if (!folder) opened.value = { name, path, isDir: false, size: 0 };
          }}
        />
      )}
    </div>
  );
}

export function join(directory: string, name: string): string {
  return `${directory.replace(/\/$/, "")}/${name}`;
}

/** Saves a file of a sandbox with the browser. */
async function save(id: string, entry: FileEntry): Promise<void> {
  const response = await raw(`/api/v1/sandbox/files/${id}/download?path=${encodeURIComponent(entry.path)}`);
  const url = URL.createObjectURL(await response.blob());
  const link = document.createElement("a");
  link.href = url;
  link.download = entry.name;
  link.click();
  URL.revokeObjectURL(url);
}

function Path({ path, go }: { path: string; go: (path: string) => void }) {
  const parts = path.split("/").filter(Boolean);
  return (
    <nav class="path" aria-label="Directory">
      <button class="quiet" onClick={() => go("/")} aria-label="Root directory">
        /
      </button>
      {parts.map((part, index) => (
        <button class="quiet" onClick={() => go(`/${parts.slice(0, index + 1).join("/")}`)}>
          {part}/
        </button>
      ))}
    </nav>
  );
}

/** Asks in its own place: a second click removes. */
function Remove({ name, remove }: { name: string; remove: () => void }) {
  const asked = useSignal(false);
  return (
    <button
      class={asked.value ? "danger small" : "quiet"}
      aria-label={asked.value ? `Really remove ${name}` : `Remove ${name}`}
      onBlur={() => (asked.value = false)}
      onClick={() => (asked.value ? remove() : (asked.value = true))}
    >
      {asked.value ? "Remove" : "✕"}
    </button>
  );
}

interface NewProps {
  onClose: () => void;
  onNamed: (name: string, folder: boolean) => Promise<void>;
}

function NewDialog({ onClose, onNamed }: NewProps) {
  const name = useSignal("");
  const folder = useSignal(false);
  return (
    <Dialog title="New file or directory" action="Create" onClose={onClose} onDone={() => onNamed(name.value, folder.value)}>
      <Field label="Name">
        <input required value={name.value} onInput={(event) => (name.value = event.currentTarget.value)} />
      </Field>
      <label class="check">
        <input type="checkbox" checked={folder.value} onChange={() => (folder.value = !folder.value)} /> Directory
      </label>
    </Dialog>
  );
}
