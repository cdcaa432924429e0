import { readFileSync } from "node:fs";
import { join } from "node:path";
import { parseAllDocuments } from "yaml";
import { ROOT } from "./pages";
import { code, table, type Schema, typeName } from "./schema";

interface Definition {
  spec: {
    group: string;
    names: { kind: string; plural: string; shortNames?: string[] };
    scope: string;
    versions: { name: string; deprecated?: boolean; schema: { openAPIV3Schema: Schema } }[];
  };
}

/** How deep fields are listed. */
const DEPTH = 5;

/** Kubernetes describes what pods and volumes are. */
function isKubernetes(schema: Schema): boolean {
  const { containers, accessModes } = schema.properties ?? {};
  return containers !== undefined || accessModes !== undefined;
}

/** The rows of the fields of an object or of the objects in an array. */
function fields(schema: Schema, path: string): string[][] {
  if (isKubernetes(schema) || path.split(".").length >= DEPTH) return [];
  return Object.entries(schema.properties ?? {}).flatMap(([name, of]) => {
    const full = `${path}.${name}`;
    const start = of.default === undefined ? "" : code(JSON.stringify(of.default));
    const nested = of.items === undefined ? fields(of, full) : fields(of.items, `${full}[]`);
    const type = isKubernetes(of) ? "as in Kubernetes" : typeName({ ...of, properties: undefined });
    return [[code(full), type, start], ...nested];
  });
}

function resource({ spec }: Definition): string {
  const names = [spec.names.plural, ...(spec.names.shortNames ?? [])].map(code).join(", ");
  const versions = spec.versions.map(({ name, deprecated, schema }) => {
    const { spec: wanted = {}, status = {} } = schema.openAPIV3Schema.properties ?? {};
    const rows = [...fields(wanted, "spec"), ...fields(status, "status")];
    return `### ${spec.names.kind} ${spec.group}/${name}${deprecated ? " (deprecated)" : ""}\n\n${table(["field", "type", "default"], rows)}`;
  });
  return [`## ${spec.names.kind} of ${spec.group}`, `${spec.scope}. \`kubectl\` knows it as ${names}.`, ...versions].join("\n\n");
}

/** The page of the custom resources, from the definitions that the chart installs. */
export function resources(): string {
  const text = readFileSync(join(ROOT, "deploy/helm/shoal/files/definitions.yaml"), "utf8");
  const definitions = parseAllDocuments(text).map((document): Definition => document.toJS());
  return [
    "# Custom resources",
    "The fields of all custom resources. `shoal crds` prints the definitions whole, with the rules of validation.",
    ...definitions.map(resource),
  ].join("\n\n");
}
