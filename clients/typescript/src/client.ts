/**
 * The operations of sessions.
 *
 * Generated from crates/api/openapi.json by scripts/clients.py. Do not edit.
 */

import type {
  ChangeSession,
  MoveSessionFile,
  NewSession,
  PutMemory,
  ResetSession,
  Session,
  SessionCommand,
  SessionFile,
  SessionFileCount,
  SessionFilesNotice,
  SessionMemory,
  SessionMemoryEntry,
  SessionNotice,
  SessionOutput,
  SessionReset,
  SessionSecret,
  SessionSync,
  SetSecret,
} from './models.ts'
import { part, Transport } from './transport.ts'
import type { CallOptions, Event } from './transport.ts'

/** The sessions of a team. */
export class Sessions extends Transport {
  /**
   * List sessions, newest first.
   *
   * Sessions of the key's team.
   */
  listSessions(options: CallOptions = {}): Promise<Array<Session>> {
    return this.data<Array<Session>>('GET', '/api/v1/sessions', { signal: options.signal })
  }

  /**
   * Make a session.
   *
   * It has no machine until its first command.
   */
  createSession(body: NewSession = {}, options: CallOptions = {}): Promise<Session> {
    return this.data<Session>('POST', '/api/v1/sessions', { signal: options.signal, body })
  }

  /** Delete a session with everything in it. */
  deleteSession(id: string, options: CallOptions = {}): Promise<void> {
    return this.data<void>('DELETE', `/api/v1/sessions/${part(id)}`, { signal: options.signal })
  }

  /** Show a session. */
  getSession(id: string, options: CallOptions = {}): Promise<Session> {
    return this.data<Session>('GET', `/api/v1/sessions/${part(id)}`, { signal: options.signal })
  }

  /**
   * Change a session.
   *
   * Absent fields keep their values.
   */
  changeSession(id: string, body: ChangeSession = {}, options: CallOptions = {}): Promise<Session> {
    return this.data<Session>('PATCH', `/api/v1/sessions/${part(id)}`, { signal: options.signal, body })
  }

  /**
   * Follow what happens in a session.
   *
   * Server-sent events: `ready` once the subscription stands, then `session` for each event, with this
   * data. After `lagged`, and after `ready`, read the session: nothing is repeated. Comments and the end
   * are those of `/sandboxes/events`; the stream ends with the session, too.
   */
  followSession(
    id: string,
    options: CallOptions & { lastEventId?: string } = {},
  ): AsyncGenerator<Event<SessionNotice>, void, undefined> {
    return this.events<SessionNotice>('GET', `/api/v1/sessions/${part(id)}/events`, {
      signal: options.signal,
      headers: { 'Last-Event-ID': options.lastEventId },
    })
  }

  /**
   * Run a command in a window.
   *
   * In place of the command that runs there. Starts the machine and opens the window when there is none.
   * Answers with a line of JSON for each piece of output, and a last one for the end. The command
   * continues when its client goes.
   */
  runInSession(
    id: string,
    body: SessionCommand,
    options: CallOptions = {},
  ): AsyncGenerator<SessionOutput, void, undefined> {
    return this.lines<SessionOutput>('POST', `/api/v1/sessions/${part(id)}/exec`, {
      signal: options.signal,
      body,
    })
  }

  /** Remove a file, or a directory with its files. */
  removeSessionFiles(
    id: string,
    options: CallOptions & { path: string },
  ): Promise<SessionFileCount> {
    return this.data<SessionFileCount>('DELETE', `/api/v1/sessions/${part(id)}/files`, {
      signal: options.signal,
      query: { 'path': options.path },
    })
  }

  /**
   * List the files of a session.
   *
   * They are there with and without a machine. By path.
   */
  listSessionFiles(
    id: string,
    options: CallOptions & { path?: string } = {},
  ): Promise<Array<SessionFile>> {
    return this.data<Array<SessionFile>>('GET', `/api/v1/sessions/${part(id)}/files`, {
      signal: options.signal,
      query: { 'path': options.path },
    })
  }

  /** Read a file of a session. */
  readSessionFile(id: string, options: CallOptions & { path: string }): Promise<Uint8Array> {
    return this.bytes('GET', `/api/v1/sessions/${part(id)}/files/content`, {
      signal: options.signal,
      query: { 'path': options.path },
    })
  }

  /**
   * Write a file of a session.
   *
   * At most 64 MiB. The machine gets it at once, unless a `.gitignore` of the session ignores it.
   */
  writeSessionFile(
    id: string,
    content: BodyInit,
    options: CallOptions & { executable?: boolean; path: string; ifMatch?: string; ifNoneMatch?: string },
  ): Promise<SessionFile> {
    return this.data<SessionFile>('PUT', `/api/v1/sessions/${part(id)}/files/content`, {
      signal: options.signal,
      query: { 'executable': options.executable, 'path': options.path },
      headers: { 'If-Match': options.ifMatch, 'If-None-Match': options.ifNoneMatch },
      content,
    })
  }

  /** Move a file, or a directory with its files. */
  moveSessionFiles(
    id: string,
    body: MoveSessionFile,
    options: CallOptions = {},
  ): Promise<SessionFileCount> {
    return this.data<SessionFileCount>('POST', `/api/v1/sessions/${part(id)}/files/move`, {
      signal: options.signal,
      body,
    })
  }

  /**
   * Follow changes of the files of a session.
   *
   * As `/sessions/{id}/events`, with the events of files alone, named `files`. After `lagged` list the
   * files again.
   */
  watchSessionFiles(
    id: string,
    options: CallOptions & { path?: string; lastEventId?: string } = {},
  ): AsyncGenerator<Event<SessionFilesNotice>, void, undefined> {
    return this.events<SessionFilesNotice>('GET', `/api/v1/sessions/${part(id)}/files/watch`, {
      signal: options.signal,
      query: { 'path': options.path },
      headers: { 'Last-Event-ID': options.lastEventId },
    })
  }

  /** List the memories of a session by name. */
  listSessionMemories(id: string, options: CallOptions = {}): Promise<Array<SessionMemoryEntry>> {
    return this.data<Array<SessionMemoryEntry>>('GET', `/api/v1/sessions/${part(id)}/memories`, {
      signal: options.signal,
    })
  }

  /** Delete a memory. */
  deleteSessionMemory(id: string, memory: string, options: CallOptions = {}): Promise<void> {
    return this.data<void>('DELETE', `/api/v1/sessions/${part(id)}/memories/${part(memory)}`, {
      signal: options.signal,
    })
  }

  /** Read a memory. */
  getSessionMemory(id: string, memory: string, options: CallOptions = {}): Promise<SessionMemory> {
    return this.data<SessionMemory>('GET', `/api/v1/sessions/${part(id)}/memories/${part(memory)}`, {
      signal: options.signal,
    })
  }

  /**
   * Write a memory.
   *
   * Memories are kept outside of the machine, until they or their session are deleted.
   */
  putSessionMemory(
    id: string,
    memory: string,
    body: PutMemory,
    options: CallOptions = {},
  ): Promise<SessionMemory> {
    return this.data<SessionMemory>('PUT', `/api/v1/sessions/${part(id)}/memories/${part(memory)}`, {
      signal: options.signal,
      body,
    })
  }

  /**
   * End the machine of a session.
   *
   * Without a token, nothing ends: the answer has the status 202 and the token that confirms it. With
   * the token, the machine ends at once. The session stays.
   */
  resetSession(
    id: string,
    body: ResetSession = {},
    options: CallOptions = {},
  ): Promise<SessionReset> {
    return this.data<SessionReset>('POST', `/api/v1/sessions/${part(id)}/reset`, {
      signal: options.signal,
      body,
    })
  }

  /**
   * List the secrets of a session by name.
   *
   * Without their values, which no answer contains.
   */
  listSessionSecrets(id: string, options: CallOptions = {}): Promise<Array<SessionSecret>> {
    return this.data<Array<SessionSecret>>('GET', `/api/v1/sessions/${part(id)}/secrets`, {
      signal: options.signal,
    })
  }

  /**
   * Delete a secret.
   *
   * Windows lose the variable before their next command.
   */
  deleteSessionSecret(id: string, secret: string, options: CallOptions = {}): Promise<void> {
    return this.data<void>('DELETE', `/api/v1/sessions/${part(id)}/secrets/${part(secret)}`, {
      signal: options.signal,
    })
  }

  /**
   * Set the value of a secret.
   *
   * It is stored encrypted. An active secret stays active, with the new value. Names that the machine
   * needs (`PATH`, `HOME`, `LD_PRELOAD` and the like) are refused.
   */
  setSessionSecret(
    id: string,
    secret: string,
    body: SetSecret,
    options: CallOptions = {},
  ): Promise<SessionSecret> {
    return this.data<SessionSecret>('PUT', `/api/v1/sessions/${part(id)}/secrets/${part(secret)}`, {
      signal: options.signal,
      body,
    })
  }

  /**
   * Make a secret a variable of all windows.
   *
   * Open windows get it before their next command. It ends with the machine: another needs another
   * activation. Without a machine, the next one has it. Output shows `***` in place of the value.
   */
  activateSessionSecret(
    id: string,
    secret: string,
    options: CallOptions = {},
  ): Promise<SessionSecret> {
    return this.data<SessionSecret>('POST', `/api/v1/sessions/${part(id)}/secrets/${part(secret)}/activate`, {
      signal: options.signal,
    })
  }

  /**
   * Take a secret from all windows.
   *
   * Before their next command. Programs that run keep what they have.
   */
  deactivateSessionSecret(
    id: string,
    secret: string,
    options: CallOptions = {},
  ): Promise<SessionSecret> {
    return this.data<SessionSecret>('POST', `/api/v1/sessions/${part(id)}/secrets/${part(secret)}/deactivate`, {
      signal: options.signal,
    })
  }

  /** Show how the files of a session and of its machine stand. */
  getSessionSync(id: string, options: CallOptions = {}): Promise<SessionSync> {
    return this.data<SessionSync>('GET', `/api/v1/sessions/${part(id)}/sync`, { signal: options.signal })
  }

  /** Cancel the command of a window. */
  cancelInSession(id: string, window: string, options: CallOptions = {}): Promise<void> {
    return this.data<void>('POST', `/api/v1/sessions/${part(id)}/windows/${part(window)}/cancel`, {
      signal: options.signal,
    })
  }

  /**
   * Attach a terminal to a window over a WebSocket.
   *
   * Starts the machine and opens the window when there is none, and repeats what is kept of the window's
   * output. The messages are those of `/terminal/sandbox/{id}/ws`. Closing it detaches: the window
   * stays.
   */
  attachToSession(id: string, window: string): WebSocket {
    return this.socket(`/api/v1/sessions/${part(id)}/windows/${part(window)}/ws`)
  }
}
