import assert from 'node:assert/strict'
import { test } from 'node:test'
import { NotFoundError, TimeoutError } from 'e2b'
import { own, promised, sharedSandbox, soon, until } from './harness.js'

const shared = sharedSandbox()
const bytes = (text) => new TextEncoder().encode(text)

/** A terminal, and what has been shown in it. */
async function terminal(t, options = {}) {
  const { pty } = shared.sandbox
  const screen = { text: '' }
  const onData = (data) => void (screen.text += Buffer.from(data).toString())
  const handle = await pty.create({ cols: 80, rows: 24, onData, timeoutMs: 0, ...options })
  t.after(() => pty.kill(handle.pid))
  return {
    pty,
    handle,
    screen,
    type: (text) => pty.sendInput(handle.pid, bytes(text)),
    shows: (what) => until(() => screen.text.match(what), `${what} on the screen`),
  }
}

test('a terminal runs a shell', async (t) => {
  const { type, shows, handle } = await terminal(t)
  await type('echo a$((40+2))b; tty\n')
  await shows(/a42b/)
  await shows(/\/dev\/pts\/\d+/)
  await type('exit 0\n')
  assert.equal((await handle.wait()).exitCode, 0)
})

test('the exit code of its shell', async (t) => {
  const { type, handle } = await terminal(t)
  await type('exit 5\n')
  await assert.rejects(handle.wait(), { exitCode: 5 })
})

test('its size, at first and after', async (t) => {
  const { pty, type, shows, handle } = await terminal(t, { cols: 91, rows: 33 })
  await type('stty size\n')
  await shows(/33 91/)
  await pty.resize(handle.pid, { cols: 123, rows: 45 })
  await type('stty size\n')
  await shows(/45 123/)
})

test('its user, directory and environment', async (t) => {
  const { type, shows } = await terminal(t, { user: 'root', cwd: '/tmp', envs: { COLOUR: 'green' } })
  await type('echo "<$(whoami):$PWD:$COLOUR:$TERM>"\n')
  await shows(/<root:\/tmp:green:xterm-256color>/)
})

test('a signal key ends what runs in it, not the shell', async (t) => {
  const { type, shows } = await terminal(t)
  // Only output of a separate program shows that it has the terminal, and not the shell.
  await type(`sh -c 'echo be"gun"; exec sleep 300'\n`)
  await shows(/begun/)
  await type('\u0003')
  await type('echo st"ill" here\n')
  await shows(/still here/)
})

test('a second client sees the same terminal', async (t) => {
  const { pty, type, handle, shows } = await terminal(t)
  await type('echo rea"dy"\n')
  await shows(/ready/)
  let seen = ''
  const joined = await pty.connect(handle.pid, { onData: (data) => void (seen += Buffer.from(data)) })
  await type('echo bo"th"\n')
  await shows(/both/)
  await until(() => seen.includes('both'), 'the same on the other screen')
  await joined.disconnect()
  await assert.rejects(pty.connect(9_999_999, { onData: () => {} }), NotFoundError)
})

test('kill ends a terminal', async (t) => {
  const { pty, handle } = await terminal(t)
  assert.equal(await pty.kill(handle.pid), true)
  await assert.rejects(handle.wait(), { exitCode: -1 })
  assert.equal(await pty.kill(9_999_999), false)
})

test('much is shown whole', async (t) => {
  const { type, screen, shows } = await terminal(t)
  await type('seq 1 20000; echo do"ne"\n')
  await shows(/done/)
  assert.ok(screen.text.includes('\r\n19999\r\n20000\r\n'))
})

test('a terminal ends with its time', async (t) => {
  const { handle } = await terminal(t, { timeoutMs: 1000 })
  await assert.rejects(handle.wait(), TimeoutError)
})

test('a terminal of a sandbox that is killed', async (t) => {
  const sandbox = await own(t)
  const shown = promised()
  const handle = await sandbox.pty.create({ cols: 80, rows: 24, onData: shown.resolve, timeoutMs: 0 })
  await soon(shown.promise, 'a prompt')
  const refused = assert.rejects(handle.wait(), TimeoutError)
  await sandbox.kill()
  await soon(refused, 'word of the end')
})
