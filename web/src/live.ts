import { signal } from "@preact/signals";
import { ApiError, client, data, said, type Sandbox } from "./api";
import { followEvents } from "./follow";
import type { StreamEvent } from "./sse";

/** Sandboxes by id, kept equal to the server's by its events. */
export const sandboxes = signal<ReadonlyMap<string, Sandbox>>(new Map());

/** `live` while events come; `stale` while the connection is lost; `manual` where the server has no events. */
export const connection = signal<"reading" | "live" | "stale" | "manual">("reading");

export const listError = signal("");

/** Counts events of each sandbox, so that open views of it read again. */
export const touched = signal<ReadonlyMap<string, number>>(new Map());

const EVENTS = "/api/v1/sandboxes/events";
/** More changed sandboxes than this at once: reading the list is cheaper. */
const ONE_BY_ONE = 8;

/** Reads the whole list. */
export async function readList(): Promise<void> {
  const found = new Map<string, Sandbox>();
  let next = "";
  do {
    const answer = await client.GET("/api/v1/sandbox", { params: { query: { limit: 100, ...(next && { next }) } } });
    for (const one of await data(Promise.resolve(answer))) found.set(one.id, one);
    next = answer.response.headers.get("x-next-token") ?? "";
  } while (next);
  sandboxes.value = found;
  listError.value = "";
}

const changed = new Set<string>();
let reading = false;

/** Reads what has changed, one read at a time: events that come meanwhile cause another. */
async function readChanged(): Promise<void> {
  if (reading) return;
  reading = true;
  try {
    while (changed.size) {
      const ids = [...changed];
      changed.clear();
      if (ids.length > ONE_BY_ONE) await readList();
      else await Promise.all(ids.map(readOne));
      const counts = new Map(touched.value);
      for (const id of ids) counts.set(id, (counts.get(id) ?? 0) + 1);
      touched.value = counts;
    }
  } catch (error) {
    listError.value = said(error);
  } finally {
    reading = false;
  }
}

async function readOne(id: string): Promise<void> {
  let one: Sandbox | undefined;
  try {
    one = await data(client.GET("/api/v1/sandbox/{id}", { params: { path: { id } } }));
  } catch (error) {
    if (!(error instanceof ApiError && error.status === 404)) throw error;
  }
  const next = new Map(sandboxes.value);
  if (one) next.set(one.id, one);
  else next.delete(id);
  sandboxes.value = next;
}

/** Reads sandboxes again after an action of this page. */
export async function refresh(...ids: string[]): Promise<void> {
  for (const id of ids) changed.add(id);
  await readChanged();
}

/** Follows the server's events until `signal` aborts. */
export async function follow(signal: AbortSignal): Promise<void> {
  const lost = (error?: unknown) => {
    connection.value = "stale";
    if (error) listError.value = said(error);
  };
  try {
    await followEvents(EVENTS, { signal, hear, lost });
  } catch {
    await byHand();
  }
}

/** A server without events: the list is read once, and on request. */
async function byHand(): Promise<void> {
  try {
    await readList();
  } catch (error) {
    listError.value = said(error);
  }
  connection.value = "manual";
}

async function hear(events: StreamEvent[]): Promise<void> {
  for (const event of events) {
    if (event.event === "sandbox") {
      changed.add((JSON.parse(event.data) as { sandboxId: string }).sandboxId);
    } else if (event.event === "ready" || event.event === "lagged") {
      // Earlier changes are in the list only.
      await readList();
      connection.value = "live";
    }
  }
  void readChanged();
}
