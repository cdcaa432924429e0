import { signal } from "@preact/signals";
import type { Status } from "./api";

/** What the server says of the key; none before it answers. */
export const status = signal<Status | null>(null);
