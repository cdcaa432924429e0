// Helpers of the cases: a sandbox for each file, bounded waiting, and requests that the SDK
// has no method for.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import http from 'node:http'
import { after, before } from 'node:test'
import { Sandbox } from 'e2b'

/** What any case may wait for an event, in milliseconds. */
export const PATIENCE = 60_000

/**
 * A sandbox that the cases of a file share: none of them may harm it. `furnish` puts into it what
 * they need; a hook of its own would not wait for the sandbox.
 */
export function sharedSandbox(options = {}, furnish = () => {}) {
  const shared = {}
  before(async () => {
    shared.sandbox = await Sandbox.create({ timeoutMs: 600_000, ...options })
    await furnish(shared.sandbox)
  })
  after(() => shared.sandbox?.kill())
  return shared
}

/** A sandbox of one case, which may end it. */
export async function own(t, options = {}) {
  const sandbox = await Sandbox.create({ timeoutMs: 120_000, ...options })
  t.after(() => sandbox.kill())
  return sandbox
}

/** A promise and the two ends of it. */
export function promised() {
  let resolve, reject
  const promise = new Promise((a, b) => ([resolve, reject] = [a, b]))
  return { promise, resolve, reject }
}

/** The value of a promise, which must not take longer than the patience of a case. */
export async function soon(promise, what) {
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what}: not within ${PATIENCE} ms`)), PATIENCE)
  })
  try {
    return await Promise.race([promise, late])
  } finally {
    clearTimeout(timer)
  }
}

/** The first true value of a condition that is asked again and again. */
export async function until(condition, what, patience = PATIENCE) {
  const end = Date.now() + patience
  for (;;) {
    const value = await condition()
    if (value) return value
    assert.ok(Date.now() < end, `${what}: not within ${patience} ms`)
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}

/** Everything that a stream of bytes holds. */
export async function drained(stream) {
  const parts = []
  for await (const part of stream) parts.push(part)
  return Buffer.concat(parts)
}

/** All pages of a list. */
export async function pages(paginator) {
  const found = []
  while (paginator.hasNext) found.push(...(await paginator.nextItems()))
  return found
}

/** The server's own address: API, gateway and all sandboxes are behind it. */
export const server = new URL(process.env.E2B_API_URL ?? 'http://127.0.0.1:3000')

/** Opens a request to a sandbox by the name of its host, as a resolver for its domain would. */
export function open(host, path, { headers = {}, ...options } = {}) {
  return http.request({
    host: server.hostname,
    port: server.port,
    path,
    agent: false,
    headers: { host, ...headers },
    ...options,
  })
}

/** An answer with its body, from a sandbox named by its host. */
export async function ask(host, path, { body, ...options } = {}) {
  const request = open(host, path, options)
  const { promise, resolve, reject } = promised()
  request.on('response', resolve).on('error', reject)
  request.end(body)
  const response = await soon(promise, `an answer of ${host}${path}`)
  return {
    status: response.statusCode,
    headers: response.headers,
    text: (await drained(response)).toString(),
  }
}

/** The source of a program that listens. */
export const GUEST = readFileSync(new URL('guest.py', import.meta.url), 'utf8')

/** Starts `guest.py` in a sandbox on a port, and waits until it answers there. */
export async function serve(sandbox, port, { address = '0.0.0.0', headers = {} } = {}) {
  await sandbox.files.write('/tmp/guest.py', GUEST)
  await sandbox.commands.run(`exec python3 /tmp/guest.py ${port} ${address}`, {
    background: true, timeoutMs: 0,
  })
  const answers = async () => (await ask(sandbox.getHost(port), '/', { headers })).status === 200
  await until(answers, `an answer from port ${port}`)
}
