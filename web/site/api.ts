import { readFileSync } from "node:fs";
import { join } from "node:path";
import { ROOT } from "./pages";
import { code, table, type Schema, typeName } from "./schema";

const METHODS = ["get", "post", "put", "patch", "delete"] as const;

interface Parameter {
  name: string;
  in: string;
  required?: boolean;
  description?: string;
  schema: Schema;
}

type Content = Record<string, { schema?: Schema }>;

interface Answer {
  $ref?: string;
  description?: string;
  content?: Content;
}

interface Operation {
  summary?: string;
  description?: string;
  tags?: string[];
  parameters?: Parameter[];
  requestBody?: { content: Content };
  responses: Record<string, Answer>;
}

interface Server {
  url: string;
}

type Methods = Partial<Record<(typeof METHODS)[number], Operation>>;

interface Document {
  tags: { name: string }[];
  servers: Server[];
  paths: Record<string, Methods & { parameters?: Parameter[]; servers?: Server[] }>;
  components: { schemas: Record<string, Schema>; responses: Record<string, Answer> };
}

/** The types of a body, each with its media type. */
function contents(content: Content | undefined): string {
  const parts = Object.entries(content ?? {}).map(([media, { schema }]) => {
    const type = schema === undefined ? "" : `${typeName(schema)} `;
    return `${type}(${code(media)})`;
  });
  return parts.join(", ");
}

function answers(operation: Operation, document: Document): string {
  const rows = Object.entries(operation.responses).map(([status, answer]) => {
    const name = answer.$ref?.split("/").at(-1) ?? "";
    const known = document.components.responses[name] ?? answer;
    return [status, known.description ?? "", status < "400" ? contents(known.content) : ""];
  });
  return table(["answer", "meaning", "body"], rows);
}

type Whole = Operation & { parameters: Parameter[] };

function operation(method: string, path: string, operation: Whole, document: Document): string {
  const parameters = operation.parameters.map((one) => [
    code(one.name),
    one.in,
    `${typeName(one.schema)}${one.required ? ", required" : ""}`,
    one.description ?? "",
  ]);
  const body = contents(operation.requestBody?.content);
  return [
    `### ${operation.summary ?? path}`,
    code(`${method.toUpperCase()} ${path}`),
    operation.description,
    parameters.length === 0 ? undefined : table(["parameter", "in", "type", "meaning"], parameters),
    body === "" ? undefined : `Body: ${body}`,
    answers(operation, document),
  ]
    .filter((part) => part !== undefined)
    .join("\n\n");
}

function type(name: string, schema: Schema): string {
  const required = schema.required ?? [];
  const rows = Object.entries(schema.properties ?? {}).map(([field, of]) => [
    code(field),
    `${typeName(of)}${required.includes(field) ? ", required" : ""}`,
    of.description ?? "",
  ]);
  const fields = rows.length === 0 ? typeName({ ...schema, description: undefined }) : table(["field", "type", "meaning"], rows);
  return [`### ${name}`, schema.description, fields].filter((part) => part !== undefined).join("\n\n");
}

/** The page of the API, from the document that the server has at `/openapi.json`. */
export function api(): string {
  const document: Document = JSON.parse(readFileSync(join(ROOT, "crates/api/openapi.json"), "utf8"));
  const operations = Object.entries(document.paths).flatMap(([path, { parameters = [], servers = document.servers, ...methods }]) =>
    METHODS.flatMap((method) => {
      const one = methods[method];
      if (one === undefined) return [];
      const full = `${servers[0]?.url ?? ""}${path}`.replace("//", "/");
      const whole = { ...one, parameters: [...parameters, ...(one.parameters ?? [])] };
      return [{ tag: one.tags?.[0], text: operation(method, full, whole, document) }];
    }),
  );
  const sections = document.tags.map(({ name }) => {
    const texts = operations.filter(({ tag }) => tag === name).map(({ text }) => text);
    return [`## ${name}`, ...texts].join("\n\n");
  });
  const types = Object.entries(document.components.schemas).map(([name, schema]) => type(name, schema));
  return [
    "# API",
    "All routes with their parameters, bodies and answers. The server has the same as an OpenAPI document at `/openapi.json`, and the " +
      "web UI sends requests from it. A request has its key in the header `X-API-Key`. Bodies of errors are of the type " +
      "[NativeError](#nativeerror) for routes below `/api/v1`, and [Error](#error) for all others.",
    ...sections,
    "## Types",
    ...types,
  ].join("\n\n");
}
