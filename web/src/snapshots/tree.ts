/** What the tree needs of a snapshot. */
export interface Taken {
  snapshotID: string;
  names: string[];
  shoal: { source: string };
}

/** What the tree needs of a sandbox. */
export interface Origin {
  id: string;
  template: string;
}

export interface Branch<T> {
  snapshot: T;
  /** How many snapshots are between it and a template. */
  depth: number;
  /** Sandboxes that were created from it, or from another tag of its name. */
  sandboxes: string[];
}

/** Sandboxes know the name or id of what they were created from, without its tag. */
function isOf(snapshot: Taken, template: string): boolean {
  return [snapshot.snapshotID, ...snapshot.names].some((name) => name.replace(/:[^:/]*$/, "") === template);
}

/**
 * Snapshots in the order of their origin: below each those that were taken of sandboxes which were created from it. What a sandbox
 * that is gone was created from is not known, so its snapshots are at the top.
 */
export function branches<T extends Taken>(snapshots: T[], sandboxes: Iterable<Origin>): Branch<T>[] {
  const origins = [...sandboxes];
  const parent = (snapshot: T) => {
    const source = origins.find(({ id }) => id === snapshot.shoal.source);
    return source && snapshots.find((other) => other !== snapshot && isOf(other, source.template));
  };
  const parents = new Map(snapshots.map((snapshot) => [snapshot, parent(snapshot)]));
  const seen = new Set<T>();
  const below = (snapshot: T, depth: number): Branch<T>[] => {
    if (seen.has(snapshot)) return [];
    seen.add(snapshot);
    const own = origins.filter(({ template }) => isOf(snapshot, template)).map(({ id }) => id);
    const children = snapshots.filter((child) => parents.get(child) === snapshot);
    return [{ snapshot, depth, sandboxes: own }, ...children.flatMap((child) => below(child, depth + 1))];
  };
  const tops = snapshots.filter((snapshot) => !parents.get(snapshot));
  // A name can be taken again from what it was used for: whatever a cycle leaves is at the top.
  return [...tops, ...snapshots].flatMap((snapshot) => below(snapshot, 0));
}
