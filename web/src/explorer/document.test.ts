import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { address, curl, type Document, example, fields, grouped, headers, operations } from "./document";

const served = JSON.parse(readFileSync("../crates/api/openapi.json", "utf8")) as Document;

const small: Document = {
  tags: [{ name: "Boxes" }],
  paths: {
    "/boxes/{id}": {
      servers: [],
      parameters: [{ name: "id", in: "path", required: true }],
      post: {
        operationId: "changeBox",
        summary: "Change a box",
        tags: ["Boxes"],
        parameters: [{ $ref: "#/components/parameters/Deep" }, { name: "If-Match", in: "header" }],
        requestBody: { content: { "application/json": { schema: { $ref: "#/components/schemas/Box" } } } },
      },
      get: { operationId: "getBox" },
    },
  },
  components: {
    parameters: { Deep: { name: "deep", in: "query", schema: { type: "boolean" } } },
    schemas: {
      Box: {
        type: "object",
        required: ["name", "kind", "inner", "sizes"],
        properties: {
          name: { type: "string", description: "Its name." },
          kind: { anyOf: [{ type: "null" }, { enum: ["a", "b"] }] },
          inner: { $ref: "#/components/schemas/Box" },
          sizes: { type: ["array", "null"], items: { type: "integer" } },
          note: { type: ["string", "null"] },
        },
      },
    },
  },
};
const [change, get] = operations(small) as [ReturnType<typeof operations>[0], ReturnType<typeof operations>[0]];

test("each operation is found, with the parameters of its path", () => {
  expect([get.id, change.id]).toEqual(["getBox", "changeBox"]);
  expect(get.group).toBe("Others");
  expect(change.parameters.map((one) => one.name)).toEqual(["id", "deep", "If-Match"]);
});

test("an example has the required fields, and ends when a schema contains itself", () => {
  const found = example(small, change.body!.schema) as Record<string, unknown>;
  expect(found).toMatchObject({ name: "", kind: "a", sizes: [] });
  expect(found).not.toHaveProperty("note");
  expect(JSON.stringify(found).length).toBeLessThan(1000);
});

test("fields have types for people", () => {
  expect(fields(small, change.body!.schema).map((one) => `${one.name}: ${one.type}`)).toEqual([
    "name: string", "kind: a | b", "inner: object", "sizes: integer[]", "note: string",
  ]);
});

test("a request is an address, headers and a command line", () => {
  const values = { "path:id": " a/b ", "query:deep": "true", "header:If-Match": '"3"' };
  expect(address(change, values)).toBe("/boxes/a%2Fb?deep=true");
  expect(headers(change, values, "{}")).toEqual({ "If-Match": '"3"', "Content-Type": "application/json" });
  expect(curl("http://h", change, values, `{"it's": 1}`)).toBe(
    `curl -sS -X POST -H "X-API-Key: $E2B_API_KEY" -H 'If-Match: "3"' -H 'Content-Type: application/json' ` +
      `--data-raw '{"it'\\''s": 1}' 'http://h/boxes/a%2Fb?deep=true'`,
  );
  expect(() => address(change, {})).toThrow("“id” is missing");
});

test("words filter by method, path, name and summary", () => {
  expect([...grouped([change, get], "POST box").values()].flat()).toEqual([change]);
  expect(grouped([change, get], "nothing").size).toBe(0);
});

test("every operation of the server has a name, a summary and an example", () => {
  const all = operations(served);
  expect(all.length).toBeGreaterThan(100);
  expect(new Set(all.map((one) => one.id)).size).toBe(all.length);
  for (const one of all) {
    expect(one.summary, one.id).not.toBe("");
    expect(one.path.match(/\{/g)?.length ?? 0, one.id).toBe(one.parameters.filter((each) => each.in === "path").length);
    if (one.body?.type === "application/json") expect(example(served, one.body.schema), one.id).toBeDefined();
  }
});
