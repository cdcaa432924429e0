import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { body, client, said, type Schemas } from "../api";
import { at, duration } from "../format";
import { LogLines } from "../parts/log";
import { Table } from "../parts/table";

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
      <Table
        label="Builds"
        rows={builds}
        id={(build) => build.buildID}
        columns={[
          { title: "Build", cell: (build) => build.buildID },
          { title: "State", cell: (build) => <Progress of={build.status} /> },
          { title: "Announced", cell: (build) => at(build.createdAt) },
          { title: "Took", number: true, cell: took },
          {
            title: "Actions",
            quiet: true,
            cell: ({ buildID }) => (
              <button aria-pressed={opened.value === buildID} onClick={() => (opened.value = buildID)}>
                Log
              </button>
            ),
          },
        ]}
      />
      {opened.value && <Log key={opened.value} template={template} build={opened.value} onEnded={onEnded} />}
    </>
  );
}

function took({ createdAt, finishedAt }: Build): string {
  return finishedAt ? duration((Date.parse(finishedAt) - Date.parse(createdAt)) / 1000) : "—";
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
        <LogLines
          label="Log of the build"
          lines={entries.value}
          follow
          mark={({ step }) => step && <span class="label">{step}</span>}
        />
      )}
    </section>
  );
}
