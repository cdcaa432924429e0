import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { body, client, said, type Schemas } from "../api";
import { at, duration } from "../format";

type Build = Schemas["TemplateBuild"];

const KINDS: Record<string, string> = { ready: "ok", error: "bad" };

/** The state of a template or a build. */
export function Progress({ of }: { of: string }) {
  return <span class={`state ${KINDS[of] ?? "warn"}`}>{of}</span>;
}

/** Builds, the latest first, and the log of one of them. */
export function Builds({ template, builds, onEnded }: { template: string; builds: Build[]; onEnded: () => void }) {
  const opened = useSignal(builds[0]?.buildID ?? "");
  if (!builds.length) return <p class="dim">It was made from an image, without a build.</p>;
  return (
    <>
      <div class="wide" tabIndex={0} role="region" aria-label="Builds">
        <table>
          <thead>
            <tr>
              <th>Build</th>
              <th>State</th>
              <th>Announced</th>
              <th class="number">Took</th>
              <th>
                <span class="hidden">Actions</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {builds.map((build) => (
              <tr key={build.buildID}>
                <td>{build.buildID}</td>
                <td>
                  <Progress of={build.status} />
                </td>
                <td>{at(build.createdAt)}</td>
                <td class="number">
                  {build.finishedAt ? duration((Date.parse(build.finishedAt) - Date.parse(build.createdAt)) / 1000) : "—"}
                </td>
                <td>
                  <button aria-pressed={opened.value === build.buildID} onClick={() => (opened.value = build.buildID)}>
                    Log
                  </button>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {opened.value && <Log key={opened.value} template={template} build={opened.value} onEnded={onEnded} />}
    </>
  );
}

type Entry = Schemas["BuildLogEntry"];

/** How often the log of a build that runs is read, in milliseconds: the server has no stream of it. */
const FOLLOW_MS = 1000;
const PAGE = 100;

interface LogProps {
  template: string;
  build: string;
  /** Called when a build that ran has ended. */
  onEnded: () => void;
}

function Log({ template, build, onEnded }: LogProps) {
  const entries = useSignal<Entry[]>([]);
  const progress = useSignal("");
  const problem = useSignal("");
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    let timer = 0;
    let current = true;
    let ran = false;
    const read = async () => {
      const query = { logsOffset: entries.value.length, limit: PAGE };
      const params = { path: { id: template, build }, query };
      const answer = await body(client.GET("/templates/{id}/builds/{build}/status", { params }));
      if (!current) return;
      entries.value = [...entries.value, ...answer.logEntries];
      progress.value = answer.status;
      problem.value = answer.reason?.message ?? "";
      const runs = answer.status === "waiting" || answer.status === "building";
      if (answer.logEntries.length === PAGE) return read();
      if (runs) timer = window.setTimeout(attempt, FOLLOW_MS);
      else if (ran) onEnded();
      ran = runs;
    };
    const attempt = () =>
      read().catch((error) => {
        if (!current) return;
        problem.value = said(error);
        timer = window.setTimeout(attempt, FOLLOW_MS);
      });
    void attempt();
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [template, build]);
  useEffect(() => {
    if (box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [entries.value]);
  return (
    <section>
      <div class="bar">
        <h2>Log</h2>
        {progress.value && <Progress of={progress.value} />}
      </div>
      {problem.value && (
        <p class="problem" role="alert">
          {problem.value}
        </p>
      )}
      {progress.value && !entries.value.length && <p class="dim">The build has logged nothing yet.</p>}
      {entries.value.length > 0 && (
        <div class="log" ref={box} tabIndex={0} role="log" aria-label="Log of the build">
          {entries.value.map((entry) => (
            <div class={entry.level}>
              <time dateTime={entry.timestamp} title={at(entry.timestamp)}>
                {entry.timestamp.slice(11, 23)}
              </time>{" "}
              {entry.step && <span class="label">{entry.step}</span>} {entry.message}
            </div>
          ))}
        </div>
      )}
    </section>
  );
}
