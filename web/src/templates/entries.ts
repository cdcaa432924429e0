/** An entry of the catalogue, as it is written. */
export type Entry = Record<string, unknown>;

export interface FormField {
  /** The names that lead to it. */
  path: readonly string[];
  label: string;
  hint?: string;
  kind: "text" | "number" | "choice";
  choices?: readonly string[];
  required?: boolean;
}

/** The fields of the form. The JSON has all others too. */
export const FIELDS: readonly FormField[] = [
  { path: ["name"], label: "Name", kind: "text", required: true },
  { path: ["description"], label: "Description", kind: "text", required: true },
  { path: ["type"], label: "Type", kind: "choice", choices: ["static", "dynamic"] },
  { path: ["pattern"], label: "Pattern", kind: "text", hint: "Of a dynamic entry: a regular expression for names" },
  { path: ["image"], label: "Image", kind: "text", hint: "This, or a template" },
  { path: ["template"], label: "Template", kind: "text", hint: "A built one" },
  { path: ["port"], label: "Port", kind: "number" },
  { path: ["resources", "cpuLimit"], label: "CPU", kind: "text", hint: "2, 500m" },
  { path: ["resources", "memoryLimit"], label: "Memory", kind: "text", hint: "1Gi, 512Mi" },
  { path: ["startCmd"], label: "Start command", kind: "text" },
  { path: ["readyCmd"], label: "Ready command", kind: "text", hint: "Succeeds when the start command is ready" },
  { path: ["user"], label: "User", kind: "text" },
  { path: ["workdir"], label: "Working directory", kind: "text" },
  { path: ["pool", "size"], label: "Pool size", kind: "number", hint: "Warm sandboxes" },
  { path: ["network", "allowInternetAccess"], label: "Internet", kind: "choice", choices: ["true", "false"] },
];

/** The entries of a text.
 * @throws when it is no JSON, or no list of objects. */
export function entriesOf(text: string): Entry[] {
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch (error) {
    throw new Error(`This is not JSON: ${(error as Error).message}`);
  }
  const isEntry = (one: unknown) => typeof one === "object" && one !== null && !Array.isArray(one);
  if (!Array.isArray(parsed) || !parsed.every(isEntry)) throw new Error("The catalogue is a list of entries: [ { … } ].");
  return parsed as Entry[];
}

export function textOf(entries: readonly Entry[]): string {
  return JSON.stringify(entries, null, 2);
}

function inner(entry: Entry, path: readonly string[]): unknown {
  return path.reduce<unknown>((value, name) => (typeof value === "object" && value !== null ? (value as Entry)[name] : undefined), entry);
}

/** The value of a field as text; none if the form cannot show it. */
export function fieldOf(entry: Entry, { path }: FormField): string | undefined {
  const value = inner(entry, path);
  if (value === undefined || value === null) return "";
  return typeof value === "object" ? undefined : String(value);
}

function valueOf(field: FormField, text: string): unknown {
  if (text === "") return undefined;
  // The server reports text that is not a number.
  if (field.kind === "number") return Number.isFinite(Number(text)) ? Number(text) : text;
  if (text === "true" || text === "false") return field.kind === "choice" ? text === "true" : text;
  return text;
}

function put(entry: Entry, path: readonly string[], value: unknown): Entry {
  const [name = "", ...rest] = path;
  const { [name]: before, ...others } = entry;
  const next = rest.length ? put((before ?? {}) as Entry, rest, value) : value;
  const isEmpty = next === undefined || (rest.length > 0 && !Object.keys(next as Entry).length);
  if (isEmpty) return others;
  // A field keeps its place among the others.
  return name in entry ? { ...entry, [name]: next } : { ...others, [name]: next };
}

/** An entry with another text in a field. An empty text removes the field, and an object that has no other field. */
export function withField(entry: Entry, field: FormField, text: string): Entry {
  return put(entry, field.path, valueOf(field, text));
}
