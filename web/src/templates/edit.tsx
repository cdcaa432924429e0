import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { client, data, said, type Schemas } from "../api";
import { Dialog } from "../parts/dialog";
import { patient } from "../patient";
import type { Editor } from "../sandbox/editor";
import { entriesOf, type Entry, textOf } from "./entries";
import { EntryForm } from "./form";

type Found = Schemas["Catalogue"];

/** How long the text stays as it is before the server is asked, in milliseconds. */
const REST_MS = 400;

/** The entries as a form and as JSON, which follow each other. The server checks them as a whole while they are edited. */
export function EditDialog({ found, onClose }: { found: Found; onClose: () => void }) {
  const box = useRef<HTMLDivElement>(null);
  const editor = useRef<Editor>(null);
  const before = textOf(found.templates as Entry[]);
  const text = useSignal(before);
  const shown = useSignal(0);
  const checked = useChecked(text.value, found.version);
  useEffect(() => {
    let current = true;
    void import("../sandbox/editor").then(({ Editor }) => {
      if (!current || !box.current) return;
      const changed = () => (text.value = editor.current?.text() ?? text.value);
      editor.current = new Editor(box.current, "templates.json", text.value, { changed, save: () => {} });
    });
    return () => {
      current = false;
      editor.current?.dispose();
    };
  }, []);
  const apply = async () => {
    const body = { templates: entriesOf(text.value), version: found.version };
    // A second attempt replaces nothing: the version has changed.
    await data(client.POST("/api/v1/config/templates", { body, fetch: patient }));
  };
  const entries = parsed(text.value);
  return (
    <Dialog
      title={`Edit the catalogue, version ${found.version}`}
      action="Apply"
      wide
      edited={text.value !== before}
      onClose={onClose}
      onDone={apply}
    >
      <div class="form-and-text">
        {entries ? (
          <EntryForm
            entries={entries}
            shown={Math.min(shown.value, entries.length - 1)}
            onShow={(index) => (shown.value = index)}
            onChange={(changed) => {
              text.value = textOf(changed);
              editor.current?.replace(text.value);
            }}
          />
        ) : (
          <p class="dim">The form is back when the JSON is whole.</p>
        )}
        <div class="editor" ref={box} />
      </div>
      <div role="status" aria-label="Check">
        {checked.problem && <p class="problem">{checked.problem}</p>}
        {!checked.problem && <p class="dim">{checked.asking ? "Checking…" : "The server accepts it. All entries are replaced, or none."}</p>}
        {checked.warnings.map((warning) => (
          <p class="note warn">
            {warning.name}, {warning.field}: {warning.message}
          </p>
        ))}
      </div>
    </Dialog>
  );
}

function parsed(text: string) {
  try {
    return entriesOf(text);
  } catch {
    return undefined;
  }
}

interface Checked {
  asking: boolean;
  problem: string;
  warnings: Schemas["CatalogueWarning"][];
}

/** The server's check of a text, once it has not changed for a moment. */
function useChecked(text: string, version: number): Checked {
  const checked = useSignal<Checked>({ asking: true, problem: "", warnings: [] });
  useEffect(() => {
    let current = true;
    const told = (change: Partial<Checked>) => {
      if (current) checked.value = { asking: false, problem: "", warnings: [], ...change };
    };
    const ask = async () => {
      try {
        const body = { templates: entriesOf(text), version };
        const params = { query: { dryRun: true } };
        const { warnings } = await data(client.POST("/api/v1/config/templates", { params, body, fetch: patient }));
        told({ warnings });
      } catch (error) {
        told({ problem: said(error) });
      }
    };
    checked.value = { ...checked.value, asking: true };
    const timer = setTimeout(ask, REST_MS);
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [text, version]);
  return checked.value;
}
