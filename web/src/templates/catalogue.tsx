import { useSignal } from "@preact/signals";
import { client, data } from "../api";
import { at } from "../format";
import { Loaded, useLoaded } from "../parts/loaded";
import { status } from "../status";
import { EditDialog } from "./edit";

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
