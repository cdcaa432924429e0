/** What commands in a sandbox print, as tables. */

export interface Process {
  pid: number;
  user: string;
  cpu: number;
  memory: number;
  command: string;
}

/** Works without `ps`: images have it or not. */
export const LIST_PROCESSES =
  "if command -v ps >/dev/null 2>&1; then ps -eo pid=,user=,pcpu=,rss=,args=; else " +
  'for p in /proc/[0-9]*; do echo "${p#/proc/} - 0 0 $(tr "\\0" " " <$p/cmdline 2>/dev/null)"; done; fi';

export function processes(output: string): Process[] {
  const found: Process[] = [];
  for (const line of output.split("\n")) {
    const parts = /^\s*(\d+)\s+(\S+)\s+([\d.]+)\s+(\d+)\s+(.*\S)\s*$/.exec(line);
    if (!parts) continue;
    const [, pid, user, cpu, kib, command] = parts;
    found.push({ pid: Number(pid), user: user!, cpu: Number(cpu), memory: Number(kib) * 1024, command: command! });
  }
  return found;
}

export const LIST_SOCKETS = "cat /proc/net/tcp /proc/net/tcp6 2>/dev/null || true";

const LISTENING = "0A";

/** Ports on which something listens, from `/proc/net/tcp`. */
export function listeningPorts(output: string): number[] {
  const found = new Set<number>();
  for (const line of output.split("\n")) {
    const [, local, , state] = line.trim().split(/\s+/);
    const port = parseInt(local?.split(":").at(-1) ?? "", 16);
    if (state === LISTENING && port > 0) found.add(port);
  }
  return [...found].sort((a, b) => a - b);
}
