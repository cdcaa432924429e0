// A server with a domain and TLS of its own, as E2B_DOMAIN names it: names go to it as they would
// with a resolver that knows the domain (Node asks the system's, which may not know *.localhost).
import assert from 'node:assert/strict'
import dns from 'node:dns'
import { test } from 'node:test'
import { Sandbox } from 'e2b'
import { GUEST, sharedSandbox, soon, promised, until } from './harness.js'

const domain = process.env.E2B_DOMAIN
const [name] = domain.split(':')
const asked = new Set()
const { lookup } = dns
dns.lookup = (host, options, callback) => {
  const [how, done] = typeof options === 'function' ? [{}, options] : [options, callback]
  if (!host.endsWith(`.${name}`)) return lookup(host, how, done)
  asked.add(host)
  const address = { address: '127.0.0.1', family: 4 }
  process.nextTick(() => (how.all ? done(null, [address]) : done(null, address.address, 4)))
}

const PORT = 8000
const shared = sharedSandbox({}, async (sandbox) => {
  await sandbox.files.write('/tmp/guest.py', GUEST)
  await sandbox.commands.run(`exec python3 /tmp/guest.py ${PORT}`, { background: true, timeoutMs: 0 })
  await until(async () => (await fetch(url(sandbox, '/'))).ok, 'an answer')
})
const url = (sandbox, path, scheme = 'https') => `${scheme}://${sandbox.getHost(PORT)}${path}`

test('nothing but the domain is told', () => {
  assert.equal(process.env.E2B_API_URL, undefined)
  assert.equal(process.env.E2B_SANDBOX_URL, undefined)
})

test('the API and the sandboxes are found by their names', async () => {
  assert.equal((await shared.sandbox.commands.run('echo found')).stdout, 'found\n')
  assert.ok(asked.has(`api.${name}`))
  assert.ok([...asked].some((host) => host.includes(shared.sandbox.sandboxId)))
})

test('getHost is a name that answers', async () => {
  assert.equal(shared.sandbox.getHost(PORT), `${PORT}-${shared.sandbox.sandboxId}.${domain}`)
  const answer = await fetch(url(shared.sandbox, '/by/name'))
  assert.equal((await answer.json()).path, '/by/name')
})

test('files, in both directions', async () => {
  await shared.sandbox.files.write('a.txt', 'over TLS')
  assert.equal(await shared.sandbox.files.read('a.txt'), 'over TLS')
})

test('signed URLs name their sandbox', async () => {
  await shared.sandbox.files.write('signed.txt', 'signed')
  const signed = await shared.sandbox.downloadUrl('signed.txt')
  assert.ok(signed.startsWith(`https://49983-${shared.sandbox.sandboxId}.${domain}/files?`), signed)
  assert.equal(await (await fetch(signed)).text(), 'signed')
})

test('a WebSocket over TLS', async (t) => {
  const socket = new WebSocket(url(shared.sandbox, '/socket', 'wss'))
  t.after(() => socket.close())
  const told = promised()
  socket.onopen = () => socket.send('hello')
  socket.onmessage = ({ data }) => told.resolve(data)
  socket.onerror = (event) => told.reject(event.error ?? new Error('refused'))
  assert.equal(await soon(told.promise, 'an echo'), 'hello')
})

test('list, connect and kill', async () => {
  const made = await Sandbox.create()
  const again = await Sandbox.connect(made.sandboxId)
  assert.equal(await again.isRunning(), true)
  assert.equal(await again.kill(), true)
  assert.equal(await made.isRunning(), false)
})
