import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { raw } from "../api";
import { Loaded, useLoaded } from "../parts/loaded";
import { to } from "../route";
import { type Document, grouped, type Operation, operations } from "./document";
import { RequestView } from "./request";

/** The operations of the API, and a form to call each. */
export function ApiView({ id }: { id?: string }) {
  const document = useLoaded(async () => (await (await raw("/openapi.json")).json()) as Document);
  return (
    <>
      <div class="bar">
        <h1>API</h1>
        <a href="/openapi.json">OpenAPI document</a>
      </div>
      <Loaded from={document}>{(found) => <Explorer document={found} id={id} />}</Loaded>
    </>
  );
}

function Explorer({ document, id }: { document: Document; id?: string }) {
  const filter = useSignal("");
  const all = useMemo(() => operations(document), [document]);
  const groups = grouped(all, filter.value);
  const chosen = all.find((one) => one.id === id);
  return (
    <div class="explorer">
      <nav aria-label="Operations">
        <input
          type="search"
          aria-label="Find an operation"
          placeholder="Find: fork, GET files, …"
          value={filter.value}
          onInput={(event) => (filter.value = event.currentTarget.value)}
        />
        {!groups.size && <p class="dim">No operation has all of these words.</p>}
        {[...groups].map(([group, found]) => (
          <Group key={group} group={group} found={found} id={id} open={filter.value !== "" || found.some((one) => one.id === id)} />
        ))}
      </nav>
      <div>
        {chosen ? (
          <RequestView key={chosen.id} document={document} operation={chosen} />
        ) : (
          <p class="dim">{id ? `The API has no operation “${id}”.` : "Choose an operation."}</p>
        )}
      </div>
    </div>
  );
}

interface GroupProps {
  group: string;
  found: Operation[];
  id?: string;
  open: boolean;
}

function Group({ group, found, id, open }: GroupProps) {
  return (
    <details open={open}>
      <summary>
        {group} <span class="dim">{found.length}</span>
      </summary>
      <ul class="entries">
        {found.map((one) => (
          <li>
            <a href={to("api", one.id)} aria-current={one.id === id ? "true" : undefined} title={one.summary}>
              <code>{one.method}</code> {one.path}
            </a>
          </li>
        ))}
      </ul>
    </details>
  );
}
