/** The server's OpenAPI document, as far as the API explorer needs it. */

/** A JSON Schema. */
export interface Schema {
  $ref?: string;
  type?: string | string[];
  description?: string;
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema;
  additionalProperties?: boolean | Schema;
  enum?: unknown[];
  const?: unknown;
  default?: unknown;
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
}

export interface Parameter {
  name: string;
  in: "path" | "query" | "header";
  required?: boolean;
  description?: string;
  schema?: Schema;
}

/** An entry below a path; other keys of a path are not operations. */
interface Described {
  operationId: string;
  summary?: string;
  description?: string;
  tags?: string[];
  parameters?: (Parameter | { $ref: string })[];
  requestBody?: { required?: boolean; content: Record<string, { schema?: Schema }> };
}

export interface Document {
  tags?: { name: string }[];
  paths: Record<string, Record<string, unknown>>;
  components?: Record<string, Record<string, unknown>>;
}

export interface Operation {
  id: string;
  method: string;
  path: string;
  group: string;
  summary: string;
  description: string;
  parameters: Parameter[];
  body?: { type: string; required: boolean; schema: Schema };
}

const METHODS = ["get", "post", "put", "patch", "delete"];

/** All operations, in the order of the document's groups. */
export function operations(document: Document): Operation[] {
  const all = Object.entries(document.paths).flatMap(([path, entries]) =>
    METHODS.filter((method) => entries[method]).map((method) => operation(document, path, method, entries)),
  );
  const groups = (document.tags ?? []).map((tag) => tag.name);
  const place = ({ group }: Operation) => (groups.includes(group) ? groups.indexOf(group) : groups.length);
  return all.sort((one, other) => place(one) - place(other));
}

function operation(document: Document, path: string, method: string, entries: Record<string, unknown>): Operation {
  const described = entries[method] as Described;
  const shared = (entries.parameters as Described["parameters"]) ?? [];
  const parameters = [...shared, ...(described.parameters ?? [])].map((one) =>
    "$ref" in one ? (lookup(document, one.$ref) as Parameter) : one,
  );
  const [type, content] = Object.entries(described.requestBody?.content ?? {})[0] ?? [];
  return {
    id: described.operationId,
    method: method.toUpperCase(),
    path,
    group: described.tags?.[0] ?? "Others",
    summary: described.summary ?? "",
    description: described.description ?? "",
    parameters: parameters.filter((one) => ["path", "query", "header"].includes(one.in)),
    body: type ? { type, required: described.requestBody?.required ?? false, schema: content?.schema ?? {} } : undefined,
  };
}

/** The operations whose method, path, name or summary contains every word, by group. */
export function grouped(all: Operation[], filter: string): Map<string, Operation[]> {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const groups = new Map<string, Operation[]>();
  for (const one of all) {
    const text = `${one.method} ${one.path} ${one.id} ${one.summary}`.toLowerCase();
    if (!words.every((word) => text.includes(word))) continue;
    groups.set(one.group, [...(groups.get(one.group) ?? []), one]);
  }
  return groups;
}

/** What a reference like `#/components/schemas/Sandbox` refers to. */
function lookup(document: Document, reference: string): unknown {
  const [kind, name] = reference.split("/").slice(-2) as [string, string];
  return document.components?.[kind]?.[name] ?? {};
}

function resolved(document: Document, schema: Schema): Schema {
  return schema.$ref ? { ...(lookup(document, schema.$ref) as Schema), ...schema, $ref: undefined } : schema;
}

/** The alternative of a schema that is not null. */
function chosen(document: Document, schema: Schema): Schema {
  const found = resolved(document, schema);
  const choices = found.anyOf ?? found.oneOf;
  const real = choices?.find((one) => one.type !== "null");
  return real ? resolved(document, real) : found;
}

function typeOf(schema: Schema): string | undefined {
  const types = [schema.type ?? (schema.properties ? "object" : undefined)].flat();
  return types.find((type) => type !== "null");
}

/** References within references: a schema may refer to itself. */
const DEPTH = 6;

/** A value of a schema with the required fields alone. */
export function example(document: Document, schema: Schema, depth = 0): unknown {
  const found = chosen(document, schema);
  if (found.const !== undefined) return found.const;
  if (found.default !== undefined) return found.default;
  if (found.enum) return found.enum.find((value) => value !== null);
  switch (typeOf(found)) {
    case "object": {
      const required = depth < DEPTH ? (found.required ?? []) : [];
      return Object.fromEntries(required.map((name) => [name, example(document, found.properties?.[name] ?? {}, depth + 1)]));
    }
    case "array":
      return [];
    case "integer":
    case "number":
      return 0;
    case "boolean":
      return false;
    case "string":
      return "";
    default:
      return null;
  }
}

export interface Field {
  name: string;
  type: string;
  required: boolean;
  description: string;
}

/** The fields of a body; none if it is not an object. */
export function fields(document: Document, schema: Schema): Field[] {
  const found = chosen(document, schema);
  return Object.entries(found.properties ?? {}).map(([name, field]) => ({
    name,
    type: named(document, field),
    required: found.required?.includes(name) ?? false,
    description: field.description ?? resolved(document, field).description ?? "",
  }));
}

/** The type of a value, for people. */
export function named(document: Document, schema: Schema): string {
  const found = chosen(document, schema);
  if (found.enum) return found.enum.filter((value) => value !== null).map(String).join(" | ");
  if (found.oneOf?.every((one) => one.const !== undefined)) return found.oneOf.map((one) => String(one.const)).join(" | ");
  if (found.const !== undefined) return String(found.const);
  const type = typeOf(found);
  if (type === "array") return `${named(document, found.items ?? {})}[]`;
  return type ?? "any";
}

/** The values of parameters, by place and name. */
export type Values = Record<string, string>;

export function nameOf(parameter: Parameter): string {
  return `${parameter.in}:${parameter.name}`;
}

/** The path and the query of a request.
 * @throws Error when a required value is missing. */
export function address(operation: Operation, values: Values): string {
  let path = operation.path;
  const query = new URLSearchParams();
  for (const parameter of operation.parameters) {
    const value = (values[nameOf(parameter)] ?? "").trim();
    if (!value && parameter.required) throw new Error(`“${parameter.name}” is missing.`);
    if (parameter.in === "path") path = path.replace(`{${parameter.name}}`, encodeURIComponent(value));
    if (parameter.in === "query" && value) query.append(parameter.name, value);
  }
  const text = query.toString();
  return text ? `${path}?${text}` : path;
}

/** The headers of a request, without the key. */
export function headers(operation: Operation, values: Values, body: string): Record<string, string> {
  const found: Record<string, string> = {};
  for (const parameter of operation.parameters) {
    const value = (values[nameOf(parameter)] ?? "").trim();
    if (parameter.in === "header" && value) found[parameter.name] = value;
  }
  if (operation.body && body) found["Content-Type"] = operation.body.type;
  return found;
}

/** The same request as a command line, with the key in a variable. */
export function curl(origin: string, operation: Operation, values: Values, body: string): string {
  const words = ["curl", "-sS"];
  if (operation.method !== "GET") words.push("-X", operation.method);
  words.push("-H", '"X-API-Key: $E2B_API_KEY"');
  for (const [name, value] of Object.entries(headers(operation, values, body))) words.push("-H", quoted(`${name}: ${value}`));
  if (operation.body && body) words.push("--data-raw", quoted(body));
  words.push(quoted(origin + address(operation, values)));
  return words.join(" ");
}

function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}
