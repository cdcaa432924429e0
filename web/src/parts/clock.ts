import { signal } from "@preact/signals";

/** The time, each second. */
export const now = signal(Date.now());
setInterval(() => (now.value = Date.now()), 1000);
