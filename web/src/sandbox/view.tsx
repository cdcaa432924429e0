import { type Signal, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { body, client, data, type Sandbox, type SandboxDetail } from "../api";
import { sandboxes, touched } from "../live";
import { Loaded, useLoaded } from "../parts/loaded";
import { Countdown, State } from "../parts/state";
import { attempt } from "../parts/toast";
import { go, to } from "../route";
import * as actions from "../sandboxes/actions";
import { ForkDialog, KillDialog, ProlongDialog, ResizeDialog, SnapshotDialog } from "../sandboxes/dialogs";
import { CodeTab } from "./code";
import { EventsTab } from "./events";
import { FilesTab } from "./files";
import { LogsTab } from "./logs";
import { NetworkTab } from "./network";
import { Overview } from "./overview";
import { ProcessesTab } from "./processes";
import { TerminalTab } from "./terminals";
import { UsageTab } from "./usage";

export interface TabProps {
  one: Sandbox;
  detail: SandboxDetail;
}

const TABS = [
  ["overview", "Overview", Overview],
  ["terminal", "Terminal", TerminalTab],
  ["files", "Files", FilesTab],
  ["processes", "Processes", ProcessesTab],
  ["logs", "Logs", LogsTab],
  ["events", "Events", EventsTab],
  ["usage", "Usage", UsageTab],
  ["network", "Network", NetworkTab],
  ["code", "Code", CodeTab],
] as const;

/** These look at a running sandbox. */
const NEEDS_RUNNING = new Set(["terminal", "files", "processes", "code"]);

export function SandboxView({ id, tab }: { id: string; tab: string }) {
  const one = sandboxes.value.get(id);
  const read = () => Promise.all([
    data(client.GET("/api/v1/sandbox/{id}", { params: { path: { id } } })),
    body(client.GET("/sandboxes/{id}", { params: { path: { id } } })),
  ]);
  const state = one?.status;
  const loaded = useLoaded(read, [id, state, touched.value.get(id)]);
  const gone = loaded.problem !== "" && !one;
  return (
    <>
      <p class="crumbs">
        <a href={to("sandboxes")}>Sandboxes</a> / {one?.name ?? id}
      </p>
      {gone && loaded.value ? (
        <div class="empty">
          <p>This sandbox has ended.</p>
          <a href={to("sandboxes")}>Back to the list</a>
        </div>
      ) : (
        <Loaded from={gone ? loaded : { ...loaded, problem: loaded.value ? "" : loaded.problem }}>
          {([read, detail]) => <Shown one={{ ...read, ...(one ?? {}) } as Sandbox} detail={detail} tab={tab} />}
        </Loaded>
      )}
    </>
  );
}

function Shown({ one, detail, tab }: TabProps & { tab: string }) {
  // Terminals stay open behind other tabs, and so does what is typed in them.
  const opened = useSignal<ReadonlySet<string>>(new Set());
  useEffect(() => {
    opened.value = new Set([...opened.value, tab]);
  }, [tab]);
  const KEEP = new Set(["terminal", "code"]);
  return (
    <>
      <Head one={one} />
      <div class="tabs" role="tablist" aria-label="Views of the sandbox" onKeyDown={arrows}>
        {TABS.map(([name, title]) => (
          <a
            role="tab"
            id={`tab-${name}`}
            href={to("sandboxes", one.id, name)}
            aria-selected={tab === name}
            aria-controls={tab === name ? `panel-${name}` : undefined}
            tabIndex={tab === name ? 0 : -1}
          >
            {title}
          </a>
        ))}
      </div>
      {TABS.map(([name, , Tab]) => {
        const kept = KEEP.has(name) && opened.value.has(name);
        if (tab !== name && !kept) return null;
        const idle = NEEDS_RUNNING.has(name) && one.status === "paused";
        return (
          <section key={name} id={`panel-${name}`} role="tabpanel" aria-labelledby={`tab-${name}`} hidden={tab !== name}>
            {idle ? <Paused one={one} /> : <Tab one={one} detail={detail} />}
          </section>
        );
      })}
    </>
  );
}

/** Left and right move between tabs. */
function arrows(event: KeyboardEvent) {
  const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
  if (!step) return;
  const tabs = [...(event.currentTarget as HTMLElement).querySelectorAll<HTMLElement>("[role=tab]")];
  const next = tabs[(tabs.indexOf(document.activeElement as HTMLElement) + step + tabs.length) % tabs.length];
  next?.focus();
  next?.click();
  event.preventDefault();
}

function Paused({ one }: { one: Sandbox }) {
  return (
    <div class="empty">
      <p>The sandbox is paused.</p>
      <button class="primary" onClick={() => attempt(() => actions.resume(one.id))}>
        Resume it
      </button>
    </div>
  );
}

const DIALOGS = { prolong: ProlongDialog, fork: ForkDialog, snapshot: SnapshotDialog, resize: ResizeDialog };

function Head({ one }: { one: Sandbox }) {
  const open = useSignal<keyof typeof DIALOGS | "kill" | "">("");
  const close = () => (open.value = "");
  const Opened = open.value && open.value !== "kill" ? DIALOGS[open.value] : undefined;
  const running = one.status === "running";
  return (
    <div class="bar">
      <h1>{one.name}</h1>
      <State of={one.status} />
      {one.status !== "paused" && (
        <span class="dim">
          {one.autoPause ? "pauses" : "ends"} in <Countdown one={one} />
        </span>
      )}
      <span class="grow" />
      <div class="actions">
        <button onClick={() => (open.value = "prolong")} disabled={!running}>
          Prolong
        </button>
        {one.status === "paused" ? (
          <Busy action={() => actions.resume(one.id)}>Resume</Busy>
        ) : (
          <Busy action={() => actions.pause(one.id)} disabled={!running}>
            Pause
          </Busy>
        )}
        <button onClick={() => (open.value = "fork")} disabled={!running}>
          Fork
        </button>
        <button onClick={() => (open.value = "snapshot")}>Snapshot</button>
        <button onClick={() => (open.value = "resize")} disabled={!running}>
          Resize
        </button>
        <button class="danger" onClick={() => (open.value = "kill")}>
          Kill
        </button>
      </div>
      {Opened && <Opened one={one} onClose={close} />}
      {open.value === "kill" && <KillDialog sandboxes={[one]} onClose={close} onKilled={() => go("sandboxes")} />}
    </div>
  );
}

interface BusyProps {
  action: () => Promise<void>;
  children: string;
  disabled?: boolean;
}

function Busy({ action, children, disabled }: BusyProps) {
  const busy: Signal<boolean> = useSignal(false);
  const act = async () => {
    busy.value = true;
    await attempt(action);
    busy.value = false;
  };
  return (
    <button onClick={act} disabled={disabled || busy.value}>
      {busy.value ? `${children}…` : children}
    </button>
  );
}
