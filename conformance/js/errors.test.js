import assert from 'node:assert/strict'
import { test } from 'node:test'
import { AuthenticationError, Sandbox, SandboxError, Template, Volume } from 'e2b'
import { server, sharedSandbox } from './harness.js'

const shared = sharedSandbox()

test('a wrong key', async () => {
  for (const apiKey of [`e2b_${'0'.repeat(40)}`, 'e2b_nonsense', 'nonsense']) {
    await assert.rejects(Sandbox.create({ apiKey }), AuthenticationError)
    await assert.rejects(Sandbox.getInfo(shared.sandbox.sandboxId, { apiKey }), AuthenticationError)
    await assert.rejects(Sandbox.list({ apiKey }).nextItems(), AuthenticationError)
    await assert.rejects(Sandbox.kill(shared.sandbox.sandboxId, { apiKey }), AuthenticationError)
  }
  assert.equal(await shared.sandbox.isRunning(), true)
})

test('the code in an error is that of its answer', async () => {
  const headers = { 'x-api-key': process.env.E2B_API_KEY }
  const answer = await fetch(`${server.origin}/sandboxes/i0000000000000000000z`, { headers })
  assert.equal(answer.status, 404)
  const { code, message } = await answer.json()
  assert.equal(code, 404)
  assert.ok(message)
})

test('a time that is none', async () => {
  await assert.rejects(Sandbox.create({ timeoutMs: 0 }), SandboxError)
  await assert.rejects(Sandbox.create({ timeoutMs: 1000 * 3600 * 1000 }), (error) => {
    assert.match(error.message, /^400: Timeout cannot be greater than \d+ hours/)
    return true
  })
})

test('a request that takes longer than the caller waits', async () => {
  await assert.rejects(Sandbox.create({ requestTimeoutMs: 1 }))
})

test('a signal of the caller gives up a call', async () => {
  await assert.rejects(Sandbox.getInfo(shared.sandbox.sandboxId, { signal: AbortSignal.abort() }))
  assert.equal((await Sandbox.getInfo(shared.sandbox.sandboxId)).state, 'running')
})

test('the daemon is closed to who has no token', async () => {
  const headers = {
    'e2b-sandbox-id': shared.sandbox.sandboxId,
    'e2b-sandbox-port': '49983',
    'content-type': 'application/json',
  }
  const ask = (more) =>
    fetch(`${server.origin}/process.Process/List`, { method: 'POST', headers: { ...headers, ...more }, body: '{}' })
  assert.equal((await ask({})).status, 401)
  assert.equal((await ask({ 'x-access-token': 'wrong' })).status, 401)
  const files = await fetch(`${server.origin}/files?path=/etc/passwd`, { headers })
  assert.equal(files.status, 401)
})

test('volumes are said not to be there', async () => {
  await assert.rejects(Volume.create('mine'), /404: there is no such route|501/)
})

test('exists of templates', async () => {
  assert.equal(await Template.exists('base'), true)
  assert.equal(await Template.exists('no-such-template'), false)
})
