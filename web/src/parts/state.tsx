import type { Sandbox } from "../api";
import { duration } from "../format";
import { now } from "./clock";

const KINDS: Record<string, string> = { running: "ok", paused: "idle", failed: "bad" };

export function State({ of }: { of: string }) {
  return <span class={`state ${KINDS[of] ?? "warn"}`}>{of}</span>;
}

/** Less than this, in seconds, is shown as urgent. */
const SOON = 60;
/** More than ten years counts as no end. */
const FOREVER = 10 * 365 * 86_400;

export function Countdown({ one }: { one: Pick<Sandbox, "status" | "expires_at"> }) {
  if (one.status === "paused") return <span class="dim">—</span>;
  const seconds = (Date.parse(one.expires_at) - now.value) / 1000;
  if (seconds > FOREVER) return <span>never</span>;
  return <span class={seconds < SOON ? "soon" : ""}>{duration(seconds)}</span>;
}
