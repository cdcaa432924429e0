import { signal } from "@preact/signals";
import type { Status } from "./api";

/** The server's status for the key; none before it answers. */
export const status = signal<Status | null>(null);
