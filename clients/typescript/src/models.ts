/**
 * The bodies of sessions.
 *
 * Generated from crates/api/openapi.json by scripts/clients.py. Do not edit.
 */

/** Changes of a session. Absent fields stay as they are. */
export interface ChangeSession {
  /** Your labels, in place of the former. */
  metadata?: Record<string, string> | null
  /** Whether its machine is kept for a day after its last command, instead of an hour. */
  persist?: boolean | null
  /** Whether requests to its preview start its machine. */
  wakeOnRequest?: boolean | null
}

/** A file or a directory to move. */
export interface MoveSessionFile {
  /** Where it is. */
  from: string
  /** Where it goes. Nothing may be there. */
  to: string
}

/** A session to make. */
export interface NewSession {
  /** The machine that it gets. */
  machine?: SessionMachine
  /** Your labels. */
  metadata?: Record<string, string>
  /** Whether its machine is kept for a day after its last command, instead of an hour. */
  persist?: boolean
  /** Whether requests to its preview start its machine. */
  wakeOnRequest?: boolean
}

/** The text of a memory. */
export interface PutMemory {
  /** The text: at most 65536 bytes. */
  text: string
}

/** A reset of a session. */
export interface ResetSession {
  /** The token of the answer to a request without one. It confirms the reset. */
  token?: string | null
}

/** A session. */
export interface Session {
  /** When it was made. */
  createdAt: string
  /** When its machine ends unless it is used; absent while a command runs, and without a machine. */
  endsAt?: string | null
  /** Its id. */
  id: string
  /** The isolation of its present machine: `gvisor`, `namespaces` (runc), or `microvm`, which needs KVM. */
  isolation?: string | null
  /** When its last command ended, or its machine started, or it was made. */
  lastExecution: string
  /** The machine that it gets. */
  machine: SessionMachine
  /** Your labels. */
  metadata: Record<string, string>
  /** Whether its machine is kept for a day after its last command, instead of an hour. */
  persist: boolean
  /** Where everybody who knows this URL reaches port 8080 of its machine. */
  previewUrl: string
  /** The host name of its preview, for its whole life. */
  publicHostname: string
  /** Its present sandbox; absent when it has none, and for an external machine. */
  sandboxId?: string | null
  /** The fingerprint of its external machine's host key, once it was connected. */
  sshHostKey?: string | null
  /** The system of its present machine, and, in brackets, why it is not what the session is to have. */
  system?: string | null
  /** Whether requests to its preview start its machine. */
  wakeOnRequest: boolean
  /** Its open windows. */
  windows: Array<SessionWindow>
}

/** A command for a window of a session. */
export interface SessionCommand {
  /** The command line. */
  command: string
  /** The window, by default `main`. It opens when it is not open. A command that runs in it is cancelled. */
  window?: string | null
}

/** A file of a session. */
export interface SessionFile {
  /** Both sides had changed the file at this path, and this is the machine's. */
  conflictOf?: string | null
  /** Whether its owner may execute it. */
  executable: boolean
  /** When its contents last changed. */
  modifiedAt: string
  /** Where it is, below the home directory of the machine. */
  path: string
  /** The SHA-256 digest of its contents, in hexadecimal digits. */
  sha256: string
  /** Its size, in bytes. */
  size: number
}

/** How many files were concerned. */
export interface SessionFileCount {
  /** The number of files. */
  files: number
}

/** Files of a session that changed, from either side. */
export interface SessionFilesNotice {
  /** When they changed. */
  at: string
  /** Paths of files that were written. */
  changed: Array<string>
  /** Paths of files that are gone. */
  removed: Array<string>
}

/** The machine of a session. Values that are absent are those of its template. */
export interface SessionMachine {
  /** Processors: 1 to 16. */
  cpu_count?: number | null
  /** The image of the container in which commands run. Needs `privileged`. */
  docker_image?: string | null
  /** The number of its GPUs: 1 to 8. */
  gpu_count?: number | null
  /** The model of its GPUs: A10G, A100, T4, L4 or H100. */
  gpu_type?: string | null
  /** Memory in GiB: 1 to 64. */
  memory_gb?: number | null
  /** Whether containers run inside. */
  privileged?: boolean
  /** An external machine: `username@host:port`. Needs `ssh_private_key`, and excludes all others. */
  ssh_connection?: string | null
  /** The private key of the external machine: Ed25519 or ECDSA, without a passphrase. It is in no answer. */
  ssh_private_key?: string | null
}

/** A memory of a session. */
export interface SessionMemory {
  /** Its name. */
  name: string
  /** Its text. */
  text: string
  /** When it was written. */
  updatedAt: string
}

/** A memory of a session in a list. */
export interface SessionMemoryEntry {
  /** The length of its text. */
  bytes: number
  /** Its name. */
  name: string
  /** When it was written. */
  updatedAt: string
}

/** Its labels or settings changed. */
export interface SessionNoticeChanged {
  /** When it happened. */
  at: string
  type: 'changed'
}

/** It is deleted. The stream ends. */
export interface SessionNoticeDeleted {
  /** When it happened. */
  at: string
  type: 'deleted'
}

/** A machine started. */
export interface SessionNoticeMachineStarted {
  /** When it happened. */
  at: string
  /** The sandbox. */
  sandboxId: string
  type: 'machine_started'
}

/** The machine ended. */
export interface SessionNoticeMachineEnded {
  /** When it happened. */
  at: string
  /** The sandbox. */
  sandboxId: string
  type: 'machine_ended'
}

/** A reset was confirmed: the machine is being ended. */
export interface SessionNoticeReset {
  /** When it happened. */
  at: string
  type: 'reset'
}

/** A window opened. */
export interface SessionNoticeWindowOpened {
  /** When it happened. */
  at: string
  type: 'window_opened'
  /** Its name. */
  window: string
}

/** A window closed. */
export interface SessionNoticeWindowClosed {
  /** When it happened. */
  at: string
  type: 'window_closed'
  /** Its name. */
  window: string
}

/** A command started. */
export interface SessionNoticeCommandStarted {
  /** When it happened. */
  at: string
  /** The command line, with `***` in place of secrets. */
  command: string
  type: 'command_started'
  /** Its window. */
  window: string
}

/** A command ended. */
export interface SessionNoticeCommandEnded {
  /** When it happened. */
  at: string
  /** The exit code, if it exited. */
  exitCode?: number | null
  /** `exited`, `cancelled`, or `lost` with its window or machine. */
  outcome: string
  /** Why it is lost. */
  reason?: string | null
  type: 'command_ended'
  /** Its window. */
  window: string
}

/** The files of both sides stand in another way. */
export interface SessionNoticeSync {
  /** When it happened. */
  at: string
  /** How many files wait for the machine, or cannot get there. */
  behind: number
  /** Whether there is a machine that is kept equal. */
  connected: boolean
  /** `synced`, `behind` or `conflict`. */
  state: string
  type: 'sync'
}

/** Files changed, from either side. Many files become several events. */
export interface SessionNoticeFiles {
  /** When it happened. */
  at: string
  /** Paths of files that were written. */
  changed: Array<string>
  /** Paths of files that are gone. */
  removed: Array<string>
  type: 'files'
}

/** A secret became a variable of the windows. */
export interface SessionNoticeSecretActivated {
  /** When it happened. */
  at: string
  /** Its name. */
  name: string
  type: 'secret_activated'
}

/** A secret was taken from the windows. */
export interface SessionNoticeSecretDeactivated {
  /** When it happened. */
  at: string
  /** Its name. */
  name: string
  type: 'secret_deactivated'
}

/** Something that happened in a session, as the stream of events tells it. */
export type SessionNotice =
  | SessionNoticeChanged
  | SessionNoticeDeleted
  | SessionNoticeMachineStarted
  | SessionNoticeMachineEnded
  | SessionNoticeReset
  | SessionNoticeWindowOpened
  | SessionNoticeWindowClosed
  | SessionNoticeCommandStarted
  | SessionNoticeCommandEnded
  | SessionNoticeSync
  | SessionNoticeFiles
  | SessionNoticeSecretActivated
  | SessionNoticeSecretDeactivated

/** A warning about its machine, which has just started: that it differs from the session's machine type. Comes first. */
export interface SessionOutputNotice {
  /** A sentence for people. */
  message: string
  type: 'notice'
}

/** Text on its terminal. */
export interface SessionOutputOutput {
  /** The text. */
  data: string
  type: 'output'
}

/** It has exited. */
export interface SessionOutputExit {
  /** Its exit code. */
  code: number
  type: 'exit'
}

/** A later command, or a request, has cancelled it. */
export interface SessionOutputCancelled {
  type: 'cancelled'
}

/** Its window or its machine has ended. */
export interface SessionOutputLost {
  /** Why. */
  reason: string
  type: 'lost'
}

/** A line of the answer to a command: perhaps a notice, then output, and at last one of the others. */
export type SessionOutput =
  | SessionOutputNotice
  | SessionOutputOutput
  | SessionOutputExit
  | SessionOutputCancelled
  | SessionOutputLost

/** The result of a request for a reset. */
export interface SessionReset {
  /** Whether the machine has ended. Otherwise, send the token to confirm it. */
  done: boolean
  /** The token that confirms the reset. */
  token?: string | null
  /** Until when it does. */
  until?: string | null
}

/** A secret of a session, without its value. */
export interface SessionSecret {
  /** Whether windows have it as a variable. That ends with the machine; activated without a machine, it is for the next one. */
  active: boolean
  /** Its name, and that of its variable. */
  name: string
  /** When its value was set. */
  setAt: string
}

/** How the files of a session and of its machine stand. */
export interface SessionSync {
  /** How many files wait for the machine, or cannot get there. */
  behind: number
  /** The machine's versions of files that both sides had changed. Remove or move them to settle the conflict. */
  conflicts: Array<string>
  /** Whether there is a machine that is kept equal. */
  connected: boolean
  /** Files that are not synced, each with the reason. */
  notes: Array<string>
  /** `synced`, also without a machine; `behind`, while files of the session wait for the machine, or while the synchronization is interrupted; or `conflict`. */
  state: string
}

/** An open window of a session. */
export interface SessionWindow {
  /** When it was last used. */
  activeAt: string
  /** Its name. */
  name: string
  /** The command that runs in it. */
  running?: string | null
}

/** The value of a secret. It is in no answer. */
export interface SetSecret {
  /** The value: 1 to 32768 bytes of text, without NUL. */
  value: string
}
