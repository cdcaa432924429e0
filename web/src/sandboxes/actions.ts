import { body, client, data, type Sandbox } from "../api";
import { refresh } from "../live";

const at = (id: string) => ({ params: { path: { id } } });

/** What can be done with a sandbox, each with the list read again afterwards. */
export async function pause(id: string): Promise<void> {
  await data(client.POST("/api/v1/sandbox/pause/{id}", at(id)));
  await refresh(id);
}

export async function resume(id: string): Promise<void> {
  await data(client.POST("/api/v1/sandbox/resume/{id}", { ...at(id), body: {} }));
  await refresh(id);
}

export async function kill(id: string): Promise<void> {
  await body(client.DELETE("/api/v1/sandbox/{id}", at(id)));
  await refresh(id);
}

/** Lets it live for so many seconds from now on. */
export async function setTimeout(id: string, timeout: number): Promise<void> {
  await body(client.POST("/sandboxes/{id}/timeout", { ...at(id), body: { timeout } }));
  await refresh(id);
}

/** Starts copies, and returns the ids of those that run.
 * @throws with the error of the first copy that failed, when none runs. */
export async function fork(id: string, count: number): Promise<string[]> {
  const copies = (await body(client.POST("/sandboxes/{id}/fork", { ...at(id), body: { count } }))) as {
    sandbox?: { sandboxID: string };
    error?: { message: string };
  }[];
  const ids = copies.flatMap((copy) => copy.sandbox?.sandboxID ?? []);
  if (!ids.length) throw new Error(copies[0]?.error?.message ?? "no copy was started");
  await refresh(...ids);
  return ids;
}

export async function snapshot(id: string, name: string): Promise<string> {
  const path = { path: { id } };
  const taken = await body(client.POST("/sandboxes/{id}/snapshots", { params: path, body: name ? { name } : {} }));
  return taken.snapshotID;
}

export async function resize(id: string, cpu: number, memory: number): Promise<void> {
  await data(client.PATCH("/api/v1/sandbox/{id}/resources", { ...at(id), body: { cpu, memory } }));
  await refresh(id);
}

export const canPause = (one: Sandbox) => one.status === "running";
export const canResume = (one: Sandbox) => one.status === "paused";
