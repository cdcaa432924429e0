import { ApiError, raw } from "./api";
import { key } from "./key";
import { type StreamEvent, streamEvents } from "./sse";

const AGAIN_LEAST = 500;
const AGAIN_MOST = 10_000;

interface Following {
  signal: AbortSignal;
  /** Takes events in the pieces in which they come. */
  hear: (events: StreamEvent[]) => void | Promise<void>;
  /** The connection was lost, with an error or without. It is opened again. */
  lost: (error?: unknown) => void;
}

/**
 * Follows a stream of events, and opens it again when it breaks, until its signal aborts.
 * @throws when the server has no such stream.
 */
export async function followEvents(path: string, { signal, hear, lost }: Following): Promise<void> {
  let pause = AGAIN_LEAST;
  while (!signal.aborted && key.value) {
    try {
      // Once: this loop tries again, and its caller hears of each loss.
      const response = await raw(path, { signal, headers: { Accept: "text/event-stream" } }, (request) => fetch(request));
      pause = AGAIN_LEAST;
      for await (const events of streamEvents(response)) await hear(events);
      if (!signal.aborted) lost();
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError && [404, 405, 501].includes(error.status)) throw error;
      lost(error);
    }
    await new Promise((done) => setTimeout(done, pause));
    pause = Math.min(pause * 2, AGAIN_MOST);
  }
}
