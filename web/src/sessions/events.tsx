import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { said, type Schemas } from "../api";
import { followEvents } from "../follow";
import { at as shown } from "../format";
import type { StreamEvent } from "../sse";

type Notice = Schemas["SessionNotice"];

type State = "connecting" | "live" | "ended" | "lost";

interface SessionEvents {
  state: State;
  /** Why no events come. */
  problem: string;
  /** The latest first. */
  list: Notice[];
}

/** How many events are shown. */
const KEPT = 200;

/** Follows a session while it is shown. `changed` is called when the session may have changed. */
export function useSessionEvents(id: string, changed: () => void): SessionEvents {
  const events = useSignal<SessionEvents>({ state: "connecting", problem: "", list: [] });
  useEffect(() => {
    const ending = new AbortController();
    const set = (change: Partial<SessionEvents>): void => {
      events.value = { ...events.value, ...change };
    };
    const take = (event: string, text: string): void => {
      if (event === "ready" || event === "lagged") set({ state: "live", problem: "" });
      else if (event === "session") {
        const notice = JSON.parse(text) as Notice;
        set({ list: [notice, ...events.value.list].slice(0, KEPT) });
        // It can no longer be read.
        if (notice.type === "deleted") return set({ state: "ended", problem: "The session is deleted." });
      } else return;
      changed();
    };
    const path = `/api/v1/sessions/${encodeURIComponent(id)}/events`;
    const hear = (pieces: StreamEvent[]) => pieces.forEach(({ event, data }) => take(event, data));
    const lost = (error?: unknown) => {
      if (events.value.state === "ended") ending.abort();
      else set({ state: "lost", problem: error ? said(error) : "The connection was lost." });
    };
    followEvents(path, { signal: ending.signal, hear, lost }).catch((error) => set({ state: "ended", problem: said(error) }));
    return () => ending.abort();
  }, [id]);
  return events.value;
}

export function Events({ events }: { events: SessionEvents }) {
  return (
    <>
      {events.problem && (
        <p class="problem" role="alert">
          {events.problem}
        </p>
      )}
      {events.list.length === 0 && <p class="dim">Nothing has happened since this page was opened.</p>}
      <ol class="timeline">
        {events.list.map(({ at, type, ...more }, index) => (
          <li key={events.list.length - index}>
            <strong>{type.replaceAll("_", " ")}</strong> <time dateTime={at}>{shown(at)}</time>
            {Object.entries(more)
              .filter(([, value]) => value !== null && String(value) !== "")
              .map(([name, value]) => (
                <span class="label">
                  {name}: {Array.isArray(value) ? value.join(", ") : String(value)}
                </span>
              ))}
          </li>
        ))}
      </ol>
    </>
  );
}
