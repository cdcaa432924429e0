import createClient from "openapi-fetch";
import { key, signOut } from "./key";
import { patientIfRepeatable } from "./patient";
import type { components, paths } from "./schema.gen";

export type Schemas = components["schemas"];
export type Sandbox = Schemas["Sandbox"];
export type SandboxDetail = Schemas["SandboxDetail"];
export type Status = Schemas["Status"];
export type FileEntry = Schemas["FileEntry"];

/** An answer that is not what was asked for. The message says what to do. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

/** The server is that of the page: no other host is ever asked. */
export const base = location.origin;

export const client = createClient<paths>({ baseUrl: base, fetch: patientIfRepeatable });
client.use({
  onRequest({ request }) {
    if (!request.headers.has("X-API-Key")) request.headers.set("X-API-Key", key.value);
    return request;
  },
});

/** What a call of `client` returns. */
interface Answered<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** The body of an answer.
 * @throws ApiError with the server's own message. */
export async function body<T>(call: Promise<Answered<T>>): Promise<T> {
  const { data, error, response } = await reached(call);
  if (response.ok) return data as T;
  throw refused(response.status, error);
}

/** The data in the envelope of the native API. */
export async function data<T>(call: Promise<Answered<{ data: T }>>): Promise<T> {
  return (await body(call)).data;
}

/** `fetch` with the key, for requests that the OpenAPI document does not describe. `send` sends the request. */
export async function raw(path: string, init: RequestInit = {}, send = patientIfRepeatable): Promise<Response> {
  const headers = new Headers(init.headers);
  headers.set("X-API-Key", key.value);
  const response = await reached(send(new Request(base + path, { ...init, headers })));
  if (response.ok) return response;
  const text = await response.text();
  let parsed: unknown = text;
  try {
    parsed = JSON.parse(text);
  } catch {
    // It is a text.
  }
  throw refused(response.status, parsed);
}

async function reached<T>(call: Promise<T>): Promise<T> {
  try {
    return await call;
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, "The server does not answer. Is it running? Check the connection and try again.");
  }
}

/** The error of an answer. Without a valid key, the user has to sign in again. */
export function refused(status: number, error: unknown): ApiError {
  const message = messageOf(error) ?? `The server answered ${status}.`;
  if (status === 401) signOut("The server does not accept the key any more. It may have been deleted.");
  return new ApiError(status, message);
}

function messageOf(error: unknown): string | undefined {
  if (typeof error === "string" && error.trim()) return error.trim().slice(0, 400);
  if (typeof error === "object" && error && "message" in error) return String(error.message);
  return undefined;
}

/** A sentence about any error. */
export function said(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Headers by which the gateway sends a request of this origin to a port of a sandbox. */
export function inside(sandbox: Pick<SandboxDetail, "sandboxID" | "envdAccessToken">, port: number): HeadersInit {
  const headers: Record<string, string> = {
    "E2b-Sandbox-Id": sandbox.sandboxID,
    "E2b-Sandbox-Port": String(port),
  };
  if (sandbox.envdAccessToken) headers["X-Access-Token"] = sandbox.envdAccessToken;
  return headers;
}

/** The port of the daemon in each sandbox. */
export const ENVD = 49983;

/** A call of the daemon, in Connect's JSON. */
export async function envd<T>(sandbox: SandboxDetail, method: string, message: object): Promise<T> {
  const headers = { ...inside(sandbox, ENVD), "Content-Type": "application/json", "Connect-Protocol-Version": "1" };
  const response = await raw(`/${method}`, { method: "POST", headers, body: JSON.stringify(message) });
  return (await response.json()) as T;
}

/** Runs a command line in a sandbox, and returns its standard output. */
export async function run(id: string, command: string, user?: string): Promise<string> {
  const path = { params: { path: { id } }, body: { command, user: user ?? null, timeout: 20 } };
  const ran = await data(client.POST("/api/v1/terminal/sandbox/{id}", path));
  if (ran.exitCode !== 0) throw new ApiError(200, ran.errorOutput.trim() || ran.error || `it exited with ${ran.exitCode}`);
  return ran.output;
}
