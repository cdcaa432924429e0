import { computed, signal, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { Sandbox } from "../api";
import { type Column, type Filter, matches, type Order, sorted } from "../filter";
import { connection, listError, readList, sandboxes } from "../live";
import { to } from "../route";
import { attempt, tell } from "../parts/toast";
import { CreateDialog } from "./create";
import { KillDialog } from "./dialogs";
import { RowsView } from "./rows";

export const filter = signal<Filter>({ text: "", state: "", template: "" });
export const order = signal<Order>({ column: "created_at", down: true });
export const selected = signal<ReadonlySet<string>>(new Set());

export const shown = computed<Sandbox[]>(() => {
  const wanted = filter.value;
  return sorted([...sandboxes.value.values()].filter((one) => matches(one, wanted)), order.value);
});

const states = computed(() => unique("status"));
const templates = computed(() => unique("template"));

function unique(field: "status" | "template"): string[] {
  return [...new Set([...sandboxes.value.values()].map((one) => one[field]))].sort();
}

export function sortBy(column: Column): void {
  const before = order.value;
  order.value = { column, down: before.column === column ? !before.down : false };
}

export function ListView() {
  const creating = useSignal(false);
  const killing = useSignal(false);
  useEffect(() => {
    // Those that have ended meanwhile are not killed.
    selected.value = new Set([...selected.value].filter((id) => sandboxes.value.has(id)));
  }, [sandboxes.value]);
  const chosen = [...selected.value].flatMap((id) => sandboxes.value.get(id) ?? []);
  return (
    <>
      <div class="bar">
        <h1>Sandboxes</h1>
        <Connection />
        <span class="grow" />
        {chosen.length > 0 && (
          <>
            <button class="danger" onClick={() => (killing.value = true)}>
              Kill {chosen.length}
            </button>
            <button onClick={() => (selected.value = new Set())}>Clear selection</button>
          </>
        )}
        <button class="primary" onClick={() => (creating.value = true)}>
          New sandbox
        </button>
      </div>
      <Filters />
      {listError.value && (
        <p class="problem" role="alert">
          {listError.value}
        </p>
      )}
      <List onCreate={() => (creating.value = true)} />
      {creating.value && <CreateDialog onClose={() => (creating.value = false)} />}
      {killing.value && (
        <KillDialog
          sandboxes={chosen}
          onClose={() => (killing.value = false)}
          onKilled={() => {
            selected.value = new Set();
            tell(`Killed ${chosen.length}.`);
          }}
        />
      )}
    </>
  );
}

function Filters() {
  const set = (change: Partial<Filter>) => (filter.value = { ...filter.value, ...change });
  return (
    <div class="bar filters" role="search">
      <input
        type="search"
        placeholder="Name, id, label=value…"
        aria-label="Filter by name, id, template or label"
        value={filter.value.text}
        onInput={(event) => set({ text: event.currentTarget.value })}
      />
      <select aria-label="State" value={filter.value.state} onChange={(event) => set({ state: event.currentTarget.value })}>
        <option value="">All states</option>
        {states.value.map((state) => (
          <option value={state}>{state}</option>
        ))}
      </select>
      <select
        aria-label="Template"
        value={filter.value.template}
        onChange={(event) => set({ template: event.currentTarget.value })}
      >
        <option value="">All templates</option>
        {templates.value.map((name) => (
          <option value={name}>{name}</option>
        ))}
      </select>
      <span class="dim" role="status">
        {shown.value.length} of {sandboxes.value.size}
      </span>
    </div>
  );
}

function Connection() {
  switch (connection.value) {
    case "live":
      return <span class="state ok">Live</span>;
    case "stale":
      return <span class="state warn">Reconnecting…</span>;
    case "manual":
      return (
        <button class="quiet" onClick={() => attempt(readList)}>
          Read again
        </button>
      );
    case "reading":
      return <span class="dim">Loading…</span>;
  }
}

function List({ onCreate }: { onCreate: () => void }) {
  if (connection.value === "reading" && !sandboxes.value.size) return null;
  if (!sandboxes.value.size) {
    return (
      <div class="empty">
        <p>No sandbox runs.</p>
        <button class="primary" onClick={onCreate}>
          Create the first one
        </button>
        <p class="dim">
          Or run <code>shoal create</code>. It shows up here at once.
        </p>
      </div>
    );
  }
  if (!shown.value.length) {
    return (
      <div class="empty">
        <p>No sandbox matches the filter.</p>
        <button onClick={() => (filter.value = { text: "", state: "", template: "" })}>Clear the filter</button>
      </div>
    );
  }
  return <RowsView />;
}

export const linkTo = (one: Sandbox) => to("sandboxes", one.id);
