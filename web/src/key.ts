import { signal } from "@preact/signals";

const STORED = "shoal.key";

/** The key of this tab, or none. It is kept for the tab only, and sent in a header: never a cookie. */
export const key = signal(sessionStorage.getItem(STORED) ?? "");

export function signIn(value: string): void {
  sessionStorage.setItem(STORED, value);
  key.value = value;
}

/** Why the user has to sign in again; empty after a wanted sign-out. */
export const signedOutBecause = signal("");

export function signOut(why = ""): void {
  sessionStorage.removeItem(STORED);
  signedOutBecause.value = why;
  key.value = "";
}
