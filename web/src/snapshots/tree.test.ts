import { expect, test } from "vitest";
import { branches } from "./tree";

const taken = (snapshotID: string, source: string) => ({ snapshotID: `${snapshotID}:default`, names: [`team/${snapshotID}:default`], shoal: { source } });

test("snapshots are below what their sandbox was created from", () => {
  const snapshots = [taken("c", "s3"), taken("a", "s1"), taken("b", "s2"), taken("d", "gone")];
  const sandboxes = [
    { id: "s1", template: "base" },
    { id: "s2", template: "a" },
    { id: "s3", template: "team/b" },
  ];
  const rows = branches(snapshots, sandboxes).map(({ snapshot, depth, sandboxes }) => [snapshot.snapshotID, depth, sandboxes]);
  expect(rows).toEqual([
    ["a:default", 0, ["s2"]],
    ["b:default", 1, ["s3"]],
    ["c:default", 2, []],
    ["d:default", 0, []],
  ]);
});

test("a cycle of names loses no snapshot", () => {
  const snapshots = [taken("a", "s1"), taken("b", "s2")];
  const sandboxes = [
    { id: "s1", template: "b" },
    { id: "s2", template: "a" },
  ];
  const rows = branches(snapshots, sandboxes);
  expect(rows.map(({ snapshot }) => snapshot.snapshotID).sort()).toEqual(["a:default", "b:default"]);
});
