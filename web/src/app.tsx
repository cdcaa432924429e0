import { useEffect } from "preact/hooks";
import { client, data, said } from "./api";
import { key, signOut, signedOutBecause, signIn } from "./key";
import { follow } from "./live";
import { go, route, to } from "./route";
import { isDark, theme, toggleTheme } from "./theme";
import { ApiView } from "./explorer/view";
import { KeysView } from "./keys";
import { NodeView } from "./node";
import { SandboxView } from "./sandbox/view";
import { ListView } from "./sandboxes/list";
import { SessionList } from "./sessions/list";
import { SessionView } from "./sessions/view";
import { SnapshotsView } from "./snapshots/list";
import { TemplateList } from "./templates/list";
import { TemplateView } from "./templates/view";
import { useSignal } from "@preact/signals";
import { Toasts } from "./parts/toast";
import { status } from "./status";

const PAGES = [
  ["sandboxes", "Sandboxes"],
  ["templates", "Templates"],
  ["snapshots", "Snapshots"],
  ["sessions", "Sessions"],
  ["keys", "Keys"],
  ["node", "Node"],
  ["api", "API"],
] as const;

export function App() {
  return (
    <>
      {key.value ? <Signed /> : <SignIn />}
      <Toasts />
    </>
  );
}

function SignIn() {
  const typed = useSignal("");
  const problem = useSignal("");
  const busy = useSignal(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    busy.value = true;
    problem.value = "";
    try {
      const wanted = typed.value.trim();
      const call = client.GET("/api/v1/status", { headers: { "X-API-Key": wanted } });
      const { response } = await call;
      if (response.status === 401) {
        problem.value = "The server does not know this key. Copy the whole key: it begins with e2b_.";
      } else if (response.ok) {
        signIn(wanted);
      } else {
        problem.value = `The server answered ${response.status}. Try again.`;
      }
    } catch {
      problem.value = "The server does not answer. Is it running?";
    }
    busy.value = false;
  };
  return (
    <main class="signin">
      <form onSubmit={submit}>
        <h1>
          <img src="./shoal.svg" alt="" width="32" height="32" /> Shoal
        </h1>
        {signedOutBecause.value && <p class="note warn">{signedOutBecause.value}</p>}
        <label for="key">API key</label>
        <input
          id="key"
          type="password"
          autocomplete="off"
          autofocus
          required
          value={typed.value}
          aria-describedby="key-help"
          aria-invalid={problem.value !== ""}
          onInput={(event) => (typed.value = event.currentTarget.value)}
        />
        {problem.value && (
          <p class="problem" role="alert">
            {problem.value}
          </p>
        )}
        <p id="key-help" class="dim">
          The key is kept until this tab closes. The first key of a server is in the file <code>api-key</code> of its
          data directory.
        </p>
        <button class="primary" disabled={busy.value}>
          {busy.value ? "Signing in…" : "Sign in"}
        </button>
      </form>
    </main>
  );
}

function Signed() {
  const [page = "sandboxes", ...rest] = route.value;
  useEffect(() => {
    const ending = new AbortController();
    void follow(ending.signal);
    data(client.GET("/api/v1/status")).then(
      (answer) => (status.value = answer),
      (error) => console.warn(said(error)),
    );
    return () => ending.abort();
  }, []);
  useEffect(() => {
    if (!route.value.length) go("sandboxes");
  }, [route.value]);
  return (
    <div class="frame">
      <a class="skip" href="#main" onClick={skip}>
        Skip to contents
      </a>
      <header>
        <a class="brand" href={to("sandboxes")}>
          <img src="./shoal.svg" alt="" width="24" height="24" />
          Shoal
        </a>
        <nav aria-label="Pages">
          {PAGES.map(([name, title]) => (
            <a href={to(name)} aria-current={page === name ? "page" : undefined}>
              {title}
            </a>
          ))}
          <a href="/docs/" target="_blank" rel="noreferrer">
            Docs
          </a>
        </nav>
        <span class="who">
          <span class="dim">
            {status.value?.team}
            {status.value?.admin && " (admin: all teams)"}
          </span>
          <button class="quiet" onClick={toggleTheme} aria-label={dark() ? "Light colours" : "Dark colours"}>
            {dark() ? "☀" : "☾"}
          </button>
          <button class="quiet" onClick={() => signOut()}>
            Sign out
          </button>
        </span>
      </header>
      <main id="main" tabIndex={-1}>
        <Page page={page} rest={rest} />
      </main>
    </div>
  );
}

/** Reads the choice, so that the header follows it. */
function dark(): boolean {
  return theme.value ? theme.value === "dark" : isDark();
}

function skip(event: Event) {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

function Page({ page, rest }: { page: string; rest: string[] }) {
  switch (page) {
    case "sandboxes":
      return rest[0] ? <SandboxView key={rest[0]} id={rest[0]} tab={rest[1] ?? "overview"} /> : <ListView />;
    case "templates":
      return rest[0] ? <TemplateView key={rest[0]} id={rest[0]} /> : <TemplateList />;
    case "snapshots":
      return <SnapshotsView />;
    case "sessions":
      return rest[0] ? <SessionView key={rest[0]} id={rest[0]} /> : <SessionList />;
    case "keys":
      return <KeysView />;
    case "node":
      return <NodeView />;
    case "api":
      return <ApiView id={rest[0]} />;
    default:
      return (
        <p class="empty">
          There is no page “{page}”. <a href={to("sandboxes")}>Go to the sandboxes</a>.
        </p>
      );
  }
}
