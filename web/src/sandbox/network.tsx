import { useSignal } from "@preact/signals";
import { body, client, run } from "../api";
import { listed } from "../format";
import { Loaded, useLoaded } from "../parts/loaded";
import { attempt } from "../parts/toast";
import { LIST_SOCKETS, listeningPorts } from "./proc";
import { Field } from "../parts/dialog";
import type { TabProps } from "./view";

export function NetworkTab({ one, detail }: TabProps) {
  return (
    <div class="columns">
      <Ports one={one} detail={detail} />
      <Rules one={one} detail={detail} />
    </div>
  );
}

/** The daemon's, and the code interpreter's: they are no services of the sandbox's user. */
const OURS = new Set([49983, 49999]);

function Ports({ one, detail }: TabProps) {
  const running = one.status === "running";
  const ports = useLoaded(async () => {
    if (!running) return [];
    return listeningPorts(await run(one.id, LIST_SOCKETS)).filter((port) => !OURS.has(port));
  }, [one.id, running]);
  return (
    <div>
      <div class="bar">
        <h2>Open ports</h2>
        <button onClick={ports.again}>Look again</button>
      </div>
      <Loaded from={ports} empty={running ? "No program listens on a port." : "The sandbox does not run."}>
        {(all) => (
          <ul>
            {all.map((port) => (
              <li>
                <a href={urlOf(port, one.id, detail.domain)} target="_blank" rel="noreferrer noopener">
                  {port}
                </a>{" "}
                <code class="dim">{urlOf(port, one.id, detail.domain)}</code>
              </li>
            ))}
          </ul>
        )}
      </Loaded>
      {!detail.network.allowPublicTraffic && (
        <p class="note">The sandbox is private: requests to its ports need the header e2b-traffic-access-token.</p>
      )}
    </div>
  );
}

/** Ports have a host name each, so a page of a sandbox never shares the origin of this one. */
export function urlOf(port: number, id: string, domain?: string | null): string {
  const own = location.port ? `:${location.port}` : "";
  return `${location.protocol}//${port}-${id}.${domain || `localhost${own}`}`;
}

function Rules({ one, detail }: TabProps) {
  const internet = useSignal(detail.allowInternetAccess !== false);
  const allow = useSignal((detail.network.allowOut ?? []).join("\n"));
  const deny = useSignal((detail.network.denyOut ?? []).join("\n"));
  const save = (event: Event) => {
    event.preventDefault();
    return attempt(
      () =>
        body(
          client.PUT("/sandboxes/{id}/network", {
            params: { path: { id: one.id } },
            body: {
              allow_internet_access: internet.value,
              allowOut: listed(allow.value),
              denyOut: listed(deny.value),
            },
          }),
        ),
      "The rules are in force.",
    );
  };
  return (
    <form onSubmit={save} class="fields">
      <h2>Outbound rules</h2>
      <label class="check">
        <input type="checkbox" checked={internet.value} onChange={() => (internet.value = !internet.value)} /> Internet
        access, except what is denied
      </label>
      <Field label="Allow" hint="Host names, addresses or ranges, one a line. They win over what is denied.">
        <textarea rows={4} value={allow.value} onInput={(event) => (allow.value = event.currentTarget.value)} />
      </Field>
      <Field label="Deny" hint="Addresses or ranges, one a line. 0.0.0.0/0 is everything.">
        <textarea rows={4} value={deny.value} onInput={(event) => (deny.value = event.currentTarget.value)} />
      </Field>
      <button class="primary" disabled={one.status !== "running"}>
        Apply
      </button>
    </form>
  );
}
