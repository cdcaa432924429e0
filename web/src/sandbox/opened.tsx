import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { type FileEntry, raw, said } from "../api";
import { bytes } from "../format";
import { Loaded, useLoaded } from "../parts/loaded";
import { attempt } from "../parts/toast";
import type { Editor } from "./editor";
import { cellsOf } from "./notebook";
import { Shown } from "./shown";
import { upload } from "./upload";

/** Larger files are downloaded, not edited. */
const EDIT_MOST = 2 << 20;
/** Pictures and notebooks with pictures are shown up to this size. */
const SHOW_MOST = 16 << 20;
const IMAGES: Record<string, string> = {
  png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp", svg: "image/svg+xml",
};

interface OpenedProps {
  id: string;
  entry: FileEntry;
  onClose: () => void;
}

/** A file: its text to edit, or its picture. */
export function Opened({ id, entry, onClose }: OpenedProps) {
  const suffix = entry.name.split(".").at(-1)?.toLowerCase() ?? "";
  const kind = IMAGES[suffix];
  const preview = useSignal(suffix === "ipynb");
  const read = async () => {
    if (entry.size > (kind || preview.value ? SHOW_MOST : EDIT_MOST)) throw new Error(`The file has ${bytes(entry.size)}: download it instead.`);
    const response = await raw(`/api/v1/sandbox/files/${id}/download?path=${encodeURIComponent(entry.path)}`);
    return response.arrayBuffer();
  };
  const contents = useLoaded(read, [entry.path]);
  return (
    <section class="opened" aria-label={entry.name}>
      <Loaded from={contents}>
        {(buffer) =>
          kind ? (
            <Picture buffer={buffer} kind={kind} entry={entry} onClose={onClose} />
          ) : preview.value ? (
            <Notebook buffer={buffer} entry={entry} onClose={onClose} onEdit={() => (preview.value = false)} />
          ) : (
            <Text id={id} entry={entry} buffer={buffer} onClose={onClose} />
          )
        }
      </Loaded>
      {contents.problem && <button onClick={onClose}>Close</button>}
    </section>
  );
}

function Picture({ buffer, kind, entry, onClose }: { buffer: ArrayBuffer; kind: string; entry: FileEntry; onClose: () => void }) {
  const url = useSignal("");
  useEffect(() => {
    url.value = URL.createObjectURL(new Blob([buffer], { type: kind }));
    return () => URL.revokeObjectURL(url.value);
  }, [buffer]);
  return (
    <>
      <div class="bar">
        <strong>{entry.name}</strong>
        <span class="grow" />
        <button onClick={onClose}>Close</button>
      </div>
      {url.value && <img class="picture" src={url.value} alt={entry.name} />}
    </>
  );
}

interface NotebookProps {
  buffer: ArrayBuffer;
  entry: FileEntry;
  onClose: () => void;
  onEdit: () => void;
}

/** A notebook with the outputs that were saved in it. Its text is shown as it is: Markdown and HTML are not rendered. */
function Notebook({ buffer, entry, onClose, onEdit }: NotebookProps) {
  const read = () => {
    try {
      return cellsOf(new TextDecoder().decode(buffer));
    } catch (error) {
      return said(error);
    }
  };
  const cells = useMemo(read, [buffer]);
  return (
    <>
      <div class="bar">
        <strong>{entry.name}</strong>
        <span class="grow" />
        <button onClick={onEdit} disabled={entry.size > EDIT_MOST}>
          Edit
        </button>
        <button onClick={onClose}>Close</button>
      </div>
      {typeof cells === "string" ? (
        <p class="problem" role="alert">
          {cells}
        </p>
      ) : (
        <div class="cells notebook" tabIndex={0} role="region" aria-label={`Cells of ${entry.name}`}>
          {cells.map((cell, index) => (
            <article key={index} aria-label={`Cell ${index + 1}`}>
              <pre class={cell.kind === "code" ? "source" : "prose"}>{cell.source}</pre>
              {cell.outputs.map((output) => (
                <Shown output={output} />
              ))}
            </article>
          ))}
        </div>
      )}
    </>
  );
}

function Text({ id, entry, buffer, onClose }: { id: string; entry: FileEntry; buffer: ArrayBuffer; onClose: () => void }) {
  const box = useRef<HTMLDivElement>(null);
  const editor = useRef<Editor>(null);
  const changed = useSignal(false);
  const binary = useSignal(false);
  const save = () =>
    attempt(async () => {
      const file = new File([editor.current!.text()], entry.name);
      await upload(id, entry.path, file, () => {});
      changed.value = false;
    }, `Saved ${entry.name}.`);
  useEffect(() => {
    let current = true;
    let text = "";
    try {
      text = new TextDecoder("utf-8", { fatal: true }).decode(buffer);
    } catch {
      binary.value = true;
      return;
    }
    void import("./editor").then(({ Editor }) => {
      if (!current || !box.current) return;
      const act = { changed: () => (changed.value = true), save: () => void save() };
      editor.current = new Editor(box.current, entry.name, text, act);
    });
    return () => {
      current = false;
      editor.current?.dispose();
    };
  }, [buffer]);
  return (
    <>
      <div class="bar">
        <strong>{entry.name}</strong>
        {changed.value && <span class="state warn">not saved</span>}
        <span class="grow" />
        <button class="primary" onClick={save} disabled={!changed.value}>
          Save
        </button>
        <button onClick={onClose}>Close</button>
      </div>
      {binary.value ? <p class="empty">The file is not text: download it instead.</p> : <div class="editor" ref={box} />}
    </>
  );
}
