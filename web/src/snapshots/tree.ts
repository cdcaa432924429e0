/** A snapshot, as far as the tree reads it. */
export interface Taken {
  snapshotID: string;
  names: string[];
  shoal: { source: string };
}

/** A sandbox and its template, which may be a snapshot. */
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

/** A sandbox has the name or id of its template or snapshot, without a tag. */
function isOf(snapshot: Taken, template: string): boolean {
  return [snapshot.snapshotID, ...snapshot.names].some((name) => name.replace(/:[^:/]*$/, "") === template);
}

/**
 * Snapshots as a tree: the children of a snapshot were taken of sandboxes that were created from it. The origin of a sandbox that is
 * gone is unknown, so its snapshots are at the top.
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
  // Names can form a cycle: its first snapshot is at the top.
  return [...tops, ...snapshots].flatMap((snapshot) => below(snapshot, 0));
}
