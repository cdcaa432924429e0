import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { client, data, type Schemas } from "../api";
import { status } from "../status";
import { at } from "../format";
import { Dialog } from "../parts/dialog";
import { Loaded, useLoaded } from "../parts/loaded";
import type { Editor } from "../sandbox/editor";

type Found = Schemas["Catalogue"];

/** The operator's list of templates. An admin key may edit it. */
export function Catalogue() {
  const editing = useSignal(false);
  const catalogue = useLoaded(() => data(client.GET("/api/v1/config/templates")));
  return (
    <section>
      <div class="bar">
        <h2>Catalogue</h2>
        <button onClick={catalogue.again}>Read again</button>
        {status.value?.admin && (
          <button disabled={!catalogue.value} onClick={() => (editing.value = true)}>
            Edit
          </button>
        )}
      </div>
      <Loaded from={catalogue}>
        {(found) => (
          <>
            <p class="dim">Version {found.version}.</p>
            {found.lastError && (
              <p class="problem">
                Refused on {at(found.lastError.at)}, from {found.lastError.source}: {found.lastError.message}
              </p>
            )}
            {(found.warnings ?? []).map((warning) => (
              <p class="note warn">
                {warning.name}, {warning.field}: {warning.message}
              </p>
            ))}
            {found.templates.length > 0 && <pre class="source">{JSON.stringify(found.templates, null, 2)}</pre>}
            {editing.value && (
              <EditDialog
                found={found}
                onClose={() => {
                  editing.value = false;
                  catalogue.again();
                }}
              />
            )}
          </>
        )}
      </Loaded>
    </section>
  );
}

/** The entries as JSON. The server checks them as a whole: an error names each entry and field, and changes nothing. */
function EditDialog({ found, onClose }: { found: Found; onClose: () => void }) {
  const box = useRef<HTMLDivElement>(null);
  const editor = useRef<Editor>(null);
  const problem = useSignal("");
  const edited = useSignal(false);
  const changed = () => {
    edited.value = true;
    problem.value = syntax(editor.current?.text() ?? "[]");
  };
  useEffect(() => {
    let current = true;
    void import("../sandbox/editor").then(({ Editor }) => {
      if (!current || !box.current) return;
      const text = JSON.stringify(found.templates, null, 2);
      editor.current = new Editor(box.current, "templates.json", text, { changed, save: () => {} });
    });
    return () => {
      current = false;
      editor.current?.dispose();
    };
  }, []);
  const apply = async () => {
    if (!editor.current) throw new Error("The editor is still loading.");
    const wrong = syntax(editor.current.text());
    if (wrong) throw new Error(wrong);
    const body = { templates: JSON.parse(editor.current.text()), version: found.version };
    await data(client.POST("/api/v1/config/templates", { body }));
  };
  return (
    <Dialog title={`Edit the catalogue, version ${found.version}`} action="Apply" wide edited={edited.value} onClose={onClose} onDone={apply}>
      <div class="editor" ref={box} />
      <p class={problem.value ? "problem" : "dim"}>{problem.value || "All entries are replaced, or none."}</p>
    </Dialog>
  );
}

/** What is wrong with a text, before the server is asked; empty if nothing is. */
function syntax(text: string): string {
  try {
    return Array.isArray(JSON.parse(text)) ? "" : "The catalogue is a list of entries: [ … ].";
  } catch (error) {
    return `This is not JSON: ${(error as Error).message}`;
  }
}
