// The generated client of sessions. Node runs its TypeScript as it is.
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { Sessions, ShoalError } from './shoal-sessions/index.ts'
import { soon, until } from './harness.js'

const client = new Sessions({ url: process.env.E2B_API_URL, apiKey: process.env.E2B_API_KEY })
let session

before(async () => {
  session = (await client.createSession({ metadata: { purpose: 'test' } })).id
})
after(() => client.deleteSession(session))

/** The items of a stream, to its end. */
async function all(stream) {
  const items = []
  for await (const item of stream) items.push(item)
  return items
}

test('output comes line by line, and the end is last', async () => {
  const lines = await soon(all(client.runInSession(session, { command: 'echo here; (exit 3)' })), 'the command')
  const output = lines.filter((line) => line.type === 'output').map((line) => line.data)
  assert.equal(output.join(''), 'here\n')
  assert.deepEqual(lines.at(-1), { type: 'exit', code: 3 })
})

test('a command is cancelled', async () => {
  const lines = client.runInSession(session, { command: 'echo begun; sleep 1000', window: 'other' })
  for await (const line of lines) {
    if (line.type === 'output') await client.cancelInSession(session, 'other')
    else if (line.type !== 'notice') assert.deepEqual(line, { type: 'cancelled' })
  }
  const { windows } = await client.getSession(session)
  assert.deepEqual(windows.map((window) => window.name).sort(), ['main', 'other'])
})

test('events are told while they happen, until the reader stops', async () => {
  const stop = new AbortController()
  const events = client.followSession(session, { signal: stop.signal })
  assert.equal((await soon(events.next(), 'ready')).value.name, 'ready')
  await client.writeSessionFile(session, 'text', { path: 'src/a b.txt' })
  for (;;) {
    const { value } = await soon(events.next(), 'the file')
    if (value.data?.type === 'files' && value.data.changed.includes('src/a b.txt')) break
  }
  stop.abort()
  await assert.rejects(soon(all(events), 'the end'), { name: 'AbortError' })
  const watched = client.watchSessionFiles(session, { path: 'src' })
  assert.equal((await soon(watched.next(), 'ready')).value.name, 'ready')
  await client.removeSessionFiles(session, { path: 'src' })
  assert.deepEqual((await soon(watched.next(), 'the end of the file')).value.data.removed, ['src/a b.txt'])
  await watched.return()
})

test('files, secrets and memories', async () => {
  const written = await client.writeSessionFile(session, new Uint8Array([0x61]), { path: 'é.txt', ifNoneMatch: '*' })
  assert.equal(written.size, 1)
  await assert.rejects(client.writeSessionFile(session, '', { path: 'é.txt', ifNoneMatch: '*' }), (error) => {
    return error instanceof ShoalError && error.status === 412
  })
  assert.equal(new TextDecoder().decode(await client.readSessionFile(session, { path: 'é.txt' })), 'a')
  assert.deepEqual(await client.moveSessionFiles(session, { from: 'é.txt', to: 'b.txt' }), { files: 1 })
  assert.deepEqual((await client.listSessionFiles(session, { path: 'b.txt' })).map((file) => file.path), ['b.txt'])
  await until(async () => (await client.getSessionSync(session)).state === 'synced', 'both sides are equal')
  await client.setSessionSecret(session, 'TOKEN', { value: 'a long token' })
  assert.equal((await client.activateSessionSecret(session, 'TOKEN')).active, true)
  assert.equal((await client.deactivateSessionSecret(session, 'TOKEN')).active, false)
  await client.deleteSessionSecret(session, 'TOKEN')
  assert.deepEqual(await client.listSessionSecrets(session), [])
  await client.putSessionMemory(session, 'plan', { text: 'build' })
  assert.equal((await client.getSessionMemory(session, 'plan')).text, 'build')
  assert.equal((await client.listSessionMemories(session)).length, 1)
  await client.deleteSessionMemory(session, 'plan')
})

test('a terminal is attached', async () => {
  const socket = client.attachToSession(session, 'main')
  let shown = ''
  const seen = new Promise((resolve, reject) => {
    socket.onerror = () => reject(new Error('the socket failed'))
    socket.onopen = () => {
      socket.send(JSON.stringify({ type: 'init', cols: 80, rows: 24 }))
      socket.send(JSON.stringify({ type: 'input', data: 'echo $((6 * 7))\n' }))
    }
    socket.onmessage = ({ data }) => {
      shown += JSON.parse(data).data ?? ''
      if (shown.includes('42')) resolve()
    }
  })
  await soon(seen, 'the output')
  socket.close()
})

test('a reset needs its token', async () => {
  const asked = await client.resetSession(session)
  assert.equal(asked.done, false)
  assert.equal((await client.resetSession(session, { token: asked.token })).done, true)
  assert.equal((await client.getSession(session)).sandboxId, undefined)
  assert.equal((await client.changeSession(session, { persist: true })).persist, true)
  assert.ok((await client.listSessions()).some((one) => one.id === session))
})
