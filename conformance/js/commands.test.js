import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  AuthenticationError, CommandExitError, InvalidArgumentError, NotFoundError, Sandbox, SandboxError,
  SandboxNotFoundError, TimeoutError,
} from 'e2b'
import { own, promised, sharedSandbox, soon, until } from './harness.js'

const shared = sharedSandbox()
const run = (command, options) => shared.sandbox.commands.run(command, options)
const start = (command, options) => run(command, { background: true, ...options })

test('output and exit code of a command', async () => {
  const result = await run('echo out; echo err >&2')
  assert.deepEqual([result.exitCode, result.stdout, result.stderr], [0, 'out\n', 'err\n'])
})

test('a command that fails throws what it said', async () => {
  await assert.rejects(run('echo before; echo bad >&2; exit 7'), (error) => {
    assert.ok(error instanceof CommandExitError && error instanceof SandboxError)
    assert.deepEqual([error.exitCode, error.stdout, error.stderr], [7, 'before\n', 'bad\n'])
    assert.match(error.error, /exit status 7/)
    return true
  })
})

test('a command that no shell knows ends with 127', async () => {
  await assert.rejects(run('no-such-program'), { exitCode: 127 })
})

test('a command that a signal ends', async () => {
  await assert.rejects(run('kill -TERM $$'), (error) => {
    assert.equal(error.exitCode, -1)
    assert.match(error.error, /terminated/)
    return true
  })
})

test('text of other scripts, whole and in order', async () => {
  const text = 'žluťoučký 猫 🐈 '.repeat(4000)
  await shared.sandbox.files.write('text.txt', text)
  assert.equal((await run('cat text.txt')).stdout, text)
})

test('much output arrives complete', async () => {
  const { stdout } = await run('head -c 4000000 /dev/zero | tr "\\0" x')
  assert.equal(stdout.length, 4_000_000)
})

test('bytes that are no text are replaced', async () => {
  assert.equal((await run("printf 'a\\377b'")).stdout, 'a\ufffdb')
})

test('output is told while the command runs', async () => {
  const first = promised()
  const handle = await start('echo first; read line; echo second', {
    stdin: true, onStdout: first.resolve,
  })
  assert.equal(await soon(first.promise, 'the first line'), 'first\n')
  await handle.sendStdin('go\n')
  assert.equal((await handle.wait()).stdout, 'first\nsecond\n')
})

test('errors are told apart from output', async () => {
  const seen = { out: '', err: '' }
  await run('echo a; echo b >&2', {
    onStdout: (data) => void (seen.out += data), onStderr: (data) => void (seen.err += data),
  })
  assert.deepEqual(seen, { out: 'a\n', err: 'b\n' })
})

test('user, directory and environment of a command', async () => {
  const { stdout } = await run('whoami; pwd; echo $COLOUR', {
    user: 'root', cwd: '/tmp', envs: { COLOUR: 'red' },
  })
  assert.equal(stdout, 'root\n/tmp\nred\n')
})

test('user may become root', async () => {
  assert.equal((await run('sudo whoami')).stdout, 'root\n')
})

test('an unknown user and a missing directory are refused', async () => {
  await assert.rejects(run('true', { user: 'nobody-here' }), AuthenticationError)
  await assert.rejects(run('true', { cwd: '/no/such' }), (error) => {
    assert.ok(error instanceof InvalidArgumentError)
    assert.match(error.message, /'\/no\/such' does not exist/)
    return true
  })
})

test('without stdin a command reads nothing', async () => {
  assert.equal((await run('cat; echo end')).stdout, 'end\n')
})

test('stdin, given in parts and closed', async () => {
  const handle = await start('cat', { stdin: true })
  await handle.sendStdin('one ')
  await shared.sandbox.commands.sendStdin(handle.pid, new TextEncoder().encode('two'))
  await handle.closeStdin()
  assert.equal((await handle.wait()).stdout, 'one two')
})

test('much stdin', async () => {
  const handle = await start('wc -c', { stdin: true })
  for (let part = 0; part < 16; part++) await handle.sendStdin('x'.repeat(65_536))
  await shared.sandbox.commands.closeStdin(handle.pid)
  assert.equal((await handle.wait()).stdout.trim(), String(16 * 65_536))
})

test('stdin of a command that has ended', async () => {
  const handle = await start('true', { stdin: true })
  await handle.wait()
  await assert.rejects(shared.sandbox.commands.sendStdin(9_999_999, 'x'), NotFoundError)
})

test('the list holds what runs', async () => {
  const handle = await start('sleep 300', { envs: { A: 'b' }, cwd: '/tmp' })
  const found = (await shared.sandbox.commands.list()).find(({ pid }) => pid === handle.pid)
  assert.equal(found.cmd, '/bin/bash')
  assert.deepEqual(found.args, ['-l', '-c', 'sleep 300'])
  assert.equal(found.cwd, '/tmp')
  assert.equal(found.envs.A, 'b')
  assert.equal(await handle.kill(), true)
  await until(
    async () => (await shared.sandbox.commands.list()).every(({ pid }) => pid !== handle.pid),
    'the list without it',
  )
})

test('kill ends a command, once', async () => {
  const handle = await start('sleep 300')
  assert.equal(await shared.sandbox.commands.kill(handle.pid), true)
  await assert.rejects(handle.wait(), (error) => {
    assert.equal(error.exitCode, -1)
    assert.match(error.error, /killed/)
    return true
  })
  assert.equal(await shared.sandbox.commands.kill(9_999_999), false)
})

test('a second client joins a command', async () => {
  const handle = await start('read a; echo got $a', { stdin: true })
  const joined = await shared.sandbox.commands.connect(handle.pid)
  assert.equal(joined.pid, handle.pid)
  await joined.sendStdin('this\n')
  const [one, two] = await Promise.all([handle.wait(), joined.wait()])
  assert.deepEqual([one.stdout, two.stdout], ['got this\n', 'got this\n'])
  await assert.rejects(shared.sandbox.commands.connect(9_999_999), NotFoundError)
})

test('who leaves does not end the command', async () => {
  const handle = await start('read a; echo $a > left.txt', { stdin: true })
  await handle.disconnect()
  await shared.sandbox.commands.sendStdin(handle.pid, 'alone\n')
  await until(() => shared.sandbox.files.exists('left.txt'), 'the file')
  await until(
    async () => (await shared.sandbox.files.read('left.txt')) === 'alone\n', 'what is in it',
  )
})

test('a command that takes too long is ended', async () => {
  await assert.rejects(run('sleep 301', { timeoutMs: 1000 }), TimeoutError)
  await until(
    async () => (await shared.sandbox.commands.list()).every(({ args }) => !args.includes('sleep 301')),
    'the end of the command',
  )
})

test('a signal of the caller gives a command up', async () => {
  const controller = new AbortController()
  const first = promised()
  const running = run('echo started; sleep 302', {
    signal: controller.signal, onStdout: first.resolve, timeoutMs: 30_000,
  })
  const refused = assert.rejects(running)
  await soon(first.promise, 'its start')
  controller.abort()
  await refused
  await assert.rejects(run('true', { signal: AbortSignal.abort() }))
  assert.equal((await run('echo after')).stdout, 'after\n')
})

test('twenty commands at once', async () => {
  const all = await Promise.all(Array.from({ length: 20 }, (_, n) => run(`echo ${n}`)))
  assert.deepEqual(all.map(({ stdout }) => stdout), Array.from({ length: 20 }, (_, n) => `${n}\n`))
})

test('a command of a sandbox that is killed', async (t) => {
  const sandbox = await own(t)
  const first = promised()
  const handle = await sandbox.commands.run('echo on; sleep 300', {
    background: true, onStdout: first.resolve,
  })
  await soon(first.promise, 'its start')
  const refused = assert.rejects(handle.wait(), (error) => {
    assert.ok(error instanceof TimeoutError, String(error))
    assert.match(error.message, /killed|end of life/)
    return true
  })
  await sandbox.kill()
  await soon(refused, 'word of the end')
})

test('a command in a sandbox that is gone', async () => {
  const sandbox = await Sandbox.create()
  await sandbox.kill()
  await assert.rejects(sandbox.commands.run('true'), (error) => {
    assert.ok(error instanceof SandboxNotFoundError, String(error))
    return true
  })
})

test('git works through commands', async () => {
  const { git } = shared.sandbox
  await git.init('/home/user/tree')
  await shared.sandbox.files.write('tree/a.txt', 'a')
  await git.add('/home/user/tree')
  await git.commit('/home/user/tree', 'first', { authorName: 'A', authorEmail: 'a@example.com' })
  const { stdout } = await run('git log --format=%s', { cwd: '/home/user/tree' })
  assert.equal(stdout, 'first\n')
  assert.equal((await git.status('/home/user/tree')).isClean, true)
})
