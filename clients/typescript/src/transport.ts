/** Requests and answers: the basis of the generated client. */

/** A server, and the key for it. */
export interface Options {
  /** The URL of the server. */
  url: string
  /** The API key. */
  apiKey: string
}

/** What every call takes. */
export interface CallOptions {
  /** Stops the call, or the reading of its answer. The server continues its work. */
  signal?: AbortSignal | undefined
}

/** The server refused a call. */
export class ShoalError extends Error {
  /** The HTTP status. */
  readonly status: number

  constructor(status: number, message: string) {
    super(message)
    this.name = 'ShoalError'
    this.status = status
  }
}

/** A server-sent event. */
export interface Event<T> {
  /** `ready`, `lagged`, or the name of the stream's events. */
  name: string
  /** What happened; absent with `ready` and `lagged`. */
  data?: T
}

/** A request. */
interface Asked extends CallOptions {
  query?: Record<string, string | number | boolean | undefined>
  headers?: Record<string, string | undefined>
  body?: unknown
  content?: BodyInit
}

/** A part of a path. */
export function part(text: string): string {
  return encodeURIComponent(text)
}

export class Transport {
  readonly #url: string
  readonly #apiKey: string

  constructor(options: Options) {
    this.#url = options.url.replace(/\/+$/, '')
    this.#apiKey = options.apiKey
  }

  async #open(method: string, path: string, asked: Asked): Promise<Response> {
    const url = new URL(this.#url + path)
    for (const [name, value] of Object.entries(asked.query ?? {})) {
      if (value !== undefined) url.searchParams.set(name, String(value))
    }
    const headers = new Headers({ 'X-API-Key': this.#apiKey })
    for (const [name, value] of Object.entries(asked.headers ?? {})) {
      if (value !== undefined) headers.set(name, value)
    }
    const init: RequestInit = { method, headers }
    if (asked.signal) init.signal = asked.signal
    if (asked.content !== undefined) {
      headers.set('Content-Type', 'application/octet-stream')
      init.body = asked.content
    } else if (asked.body !== undefined) {
      headers.set('Content-Type', 'application/json')
      init.body = JSON.stringify(asked.body)
    }
    const response = await fetch(url, init)
    if (response.ok) return response
    const text = await response.text()
    throw new ShoalError(response.status, message(text))
  }

  /** The data of an answer in the envelope. */
  protected async data<T>(method: string, path: string, asked: Asked = {}): Promise<T> {
    const response = await this.#open(method, path, asked)
    const envelope = (await response.json()) as { data: T }
    return envelope.data
  }

  protected async bytes(method: string, path: string, asked: Asked = {}): Promise<Uint8Array> {
    const response = await this.#open(method, path, asked)
    return new Uint8Array(await response.arrayBuffer())
  }

  /** An answer with a line of JSON for each item. */
  protected async *lines<T>(method: string, path: string, asked: Asked = {}): AsyncGenerator<T, void, undefined> {
    for await (const line of lines(await this.#open(method, path, asked))) yield JSON.parse(line) as T
  }

  /** Server-sent events. */
  protected async *events<T>(method: string, path: string, asked: Asked = {}): AsyncGenerator<Event<T>, void, undefined> {
    let name = ''
    let data = '{}'
    for await (const line of lines(await this.#open(method, path, asked))) {
      if (line.startsWith('event: ')) name = line.slice(7)
      else if (line.startsWith('data: ')) data = line.slice(6)
      else if (line === '' && name !== '') {
        yield data === '{}' ? { name } : { name, data: JSON.parse(data) as T }
        name = ''
        data = '{}'
      }
    }
  }

  /** A terminal. The key is in a subprotocol, because a web page can set no header. */
  protected socket(path: string): WebSocket {
    const url = new URL(this.#url + path)
    url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:'
    return new WebSocket(url, ['shoal-terminal', `shoal-key.${this.#apiKey}`])
  }
}

function message(text: string): string {
  try {
    const body = JSON.parse(text) as { message?: unknown }
    return typeof body.message === 'string' ? body.message : text
  } catch {
    return text
  }
}

/** The lines of an answer, as they come. Ends the answer when its reader stops. */
async function* lines(response: Response): AsyncGenerator<string, void, undefined> {
  if (!response.body) return
  const reader = response.body.getReader()
  const decoder = new TextDecoder()
  let rest = ''
  try {
    for (;;) {
      const { done, value } = await reader.read()
      if (done) return
      const parts = (rest + decoder.decode(value, { stream: true })).split('\n')
      rest = parts.pop() ?? ''
      yield* parts
    }
  } finally {
    await reader.cancel().catch(() => undefined)
  }
}
