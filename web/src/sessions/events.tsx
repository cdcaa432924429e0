import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ApiError, raw, said, type Schemas } from "../api";
import { at as shown } from "../format";
import { key } from "../key";
import { streamEvents } from "../sse";

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
const AGAIN_MS = 2000;

/** Follows a session while it is shown. `changed` is called when what the API says of it may have changed. */
export function useSessionEvents(id: string, changed: () => void): SessionEvents {
  const events = useSignal<SessionEvents>({ state: "connecting", problem: "", list: [] });
  useEffect(() => {
    const ending = new AbortController();
    const set = (change: Partial<SessionEvents>) => (events.value = { ...events.value, ...change });
    const take = (event: string, text: string) => {
      if (event === "ready" || event === "lagged") set({ state: "live", problem: "" });
      else if (event === "session") {
        const notice = JSON.parse(text) as Notice;
        set({ list: [notice, ...events.value.list].slice(0, KEPT) });
        if (notice.type === "deleted") set({ state: "ended", problem: "The session is deleted." });
      } else return;
      changed();
    };
    const follow = async () => {
      const response = await raw(`/api/v1/sessions/${encodeURIComponent(id)}/events`, {
        signal: ending.signal,
        headers: { Accept: "text/event-stream" },
      });
      for await (const piece of streamEvents(response)) for (const { event, data } of piece) take(event, data);
    };
    const ended = () => ending.signal.aborted || events.value.state === "ended";
    const keep = async () => {
      while (!ended() && key.value) {
        try {
          await follow();
          if (!ended()) set({ state: "lost", problem: "The connection was lost." });
        } catch (error) {
          if (ending.signal.aborted) return;
          const gone = error instanceof ApiError && [404, 405, 501].includes(error.status);
          set({ state: gone ? "ended" : "lost", problem: said(error) });
        }
        await new Promise((done) => setTimeout(done, AGAIN_MS));
      }
    };
    void keep();
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
