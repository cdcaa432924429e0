/** The part of JSON Schema that the documents use. */
export interface Schema {
  $ref?: string;
  type?: string | string[];
  format?: string;
  description?: string;
  enum?: unknown[];
  const?: unknown;
  default?: unknown;
  minimum?: number;
  maximum?: number;
  required?: string[];
  properties?: Record<string, Schema>;
  additionalProperties?: boolean | Schema;
  items?: Schema;
  oneOf?: Schema[];
  anyOf?: Schema[];
  allOf?: Schema[];
}

/** Objects without a name and with so few fields are written in one line. */
const SHORT = 3;

export function code(text: string): string {
  return `\`${text}\``;
}

/** The name of a type in one line. A named type is a link to its section. */
export function typeName(schema: Schema, nested = false): string {
  const name = schema.$ref?.split("/").at(-1);
  if (name !== undefined) return `[${name}](#${name.toLowerCase()})`;
  const several = schema.oneOf ?? schema.anyOf ?? schema.allOf;
  if (several !== undefined) return several.map((one) => typeName(one, nested)).join(" or ");
  if (schema.const !== undefined) return code(String(schema.const));
  if (schema.enum !== undefined) return schema.enum.map((value) => code(String(value))).join(" or ");
  if (schema.items !== undefined) return `array of ${typeName(schema.items, true)}`;
  if (typeof schema.additionalProperties === "object") return `map of ${typeName(schema.additionalProperties, true)}`;
  const inner = Object.entries(schema.properties ?? {});
  if (!nested && inner.length > 0 && inner.length <= SHORT) return `{ ${inner.map(([name, of]) => `${name}: ${typeName(of, true)}`).join(", ")} }`;
  const types = [schema.type ?? []].flat().filter((type) => type !== "null");
  const range = schema.maximum === undefined ? "" : `, ${schema.minimum ?? 0} to ${schema.maximum}`;
  return (types.join(" or ") || "any") + (schema.format === undefined ? "" : ` (${schema.format})`) + range;
}

/** A table in Markdown. */
export function table(head: string[], rows: string[][]): string {
  const line = (cells: string[]) => `| ${cells.map((cell) => cell.replace(/\s*\n\s*/g, " ").replace(/\|/g, "\\|")).join(" | ")} |`;
  return [line(head), line(head.map(() => "---")), ...rows.map(line)].join("\n");
}
