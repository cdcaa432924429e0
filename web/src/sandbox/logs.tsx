import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { body, client, said } from "../api";
import { LogLines } from "../parts/log";
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
        <LogLines label={`Log of ${one.name}`} lines={entries.value} follow={follow.value} />
      )}
    </>
  );
}
