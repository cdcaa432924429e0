import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { body, client, said } from "../api";
import { at } from "../format";
import type { TabProps } from "./view";

interface Entry {
  timestamp: string;
  message: string;
  level: string;
}

/** How often a followed log is read, in milliseconds: the server has no stream of it. */
const FOLLOW_MS = 1500;
const PAGE = 500;

export function LogsTab({ one }: TabProps) {
  const entries = useSignal<Entry[] | null>(null);
  const search = useSignal("");
  const follow = useSignal(true);
  const problem = useSignal("");
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    let timer = 0;
    let current = true;
    const read = async () => {
      const query = { limit: PAGE, direction: "backward" as const, ...(search.value && { search: search.value }) };
      try {
        const { logs } = await body(
          client.GET("/v2/sandboxes/{id}/logs", { params: { path: { id: one.id }, query } }),
        );
        if (!current) return;
        entries.value = logs.reverse();
        problem.value = "";
      } catch (error) {
        if (current) problem.value = said(error);
      }
      if (current && follow.value && one.status === "running") timer = window.setTimeout(read, FOLLOW_MS);
    };
    void read();
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [one.id, one.status, search.value, follow.value]);
  useEffect(() => {
    if (follow.value && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [entries.value, follow.value]);
  return (
    <>
      <div class="bar">
        <input
          type="search"
          aria-label="Search the log"
          placeholder="Search…"
          value={search.value}
          onChange={(event) => (search.value = event.currentTarget.value)}
        />
        <label class="check">
          <input type="checkbox" checked={follow.value} onChange={() => (follow.value = !follow.value)} /> Follow
        </label>
      </div>
      {problem.value && (
        <p class="problem" role="alert">
          {problem.value}
        </p>
      )}
      {entries.value && !entries.value.length && (
        <p class="empty">{search.value ? "No line matches." : "Nothing was logged yet: the output of the start program comes here."}</p>
      )}
      {entries.value && entries.value.length > 0 && (
        <div class="log" ref={box} tabIndex={0} role="log" aria-label={`Log of ${one.name}`}>
          {entries.value.map((entry) => (
            <div class={entry.level}>
              <time dateTime={entry.timestamp} title={at(entry.timestamp)}>
                {entry.timestamp.slice(11, 23)}
              </time>{" "}
              {entry.message}
            </div>
          ))}
        </div>
      )}
    </>
  );
}
