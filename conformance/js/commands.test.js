import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { AuthenticationError, CommandExitError, InvalidArgumentError, NotFoundError, TimeoutError } from 'e2b'
import { RUNTIMES, sharedSandbox, until } from './helpers.js'

for (const runtime of RUNTIMES) {
  describe(`commands in ${runtime}`, () => {
    const shared = sharedSandbox({ metadata: { 'shoal/runtime': runtime } })
    const run = (...args) => shared.sandbox.commands.run(...args)

    test('output and errors come apart', async () => {
      const result = await run('echo out; echo err >&2')
      assert.deepEqual([result.stdout, result.stderr, result.exitCode], ['out\n', 'err\n', 0])
    })

    test('a failure is raised with its code', async () => {
      await assert.rejects(run('echo err >&2; exit 42'), (error) => {
        assert.ok(error instanceof CommandExitError)
        assert.deepEqual([error.exitCode, error.stderr], [42, 'err\n'])
        return true
      })
    })

    test('a user, a place and variables are taken', async () => {
      const result = await run('id -un; pwd; echo $ONE', { user: 'root', cwd: '/tmp', envs: { ONE: '1' } })
      assert.equal(result.stdout, 'root\n/tmp\n1\n')
    })

    test('callbacks get each stream', async () => {
      const out = []
      const err = []
      await run('echo out; echo err >&2', {
        onStdout: (text) => out.push(text),
        onStderr: (text) => err.push(text),
      })
      assert.deepEqual([out.join(''), err.join('')], ['out\n', 'err\n'])
    })

    test('letters of many bytes survive any cut', async () => {
      const result = await run(`python3 -c "print('grüße 世界 🐟 ' * 20000, end='')"`)
      assert.equal(result.stdout, 'grüße 世界 🐟 '.repeat(20_000))
    })

    test('a background command takes input and is awaited', async () => {
      const handle = await run('cat; echo closed', { background: true, stdin: true })
      await shared.sandbox.commands.sendStdin(handle.pid, 'text ')
      await shared.sandbox.commands.closeStdin(handle.pid)
      assert.equal((await handle.wait()).stdout, 'text closed\n')
    })

    test('a command is listed, found again and killed', async () => {
      const first = await run('sleep 1000', { background: true })
      const listed = await shared.sandbox.commands.list()
      assert.ok(listed.some((process) => process.pid === first.pid))
      const second = await shared.sandbox.commands.connect(first.pid)
      assert.equal(await first.kill(), true)
      await assert.rejects(second.wait(), (error) => error.exitCode === -1)
      assert.equal(await shared.sandbox.commands.kill(first.pid), false)
    })

    test('leaving does not end a command', async () => {
      const handle = await run('sleep 1001', { background: true })
      await handle.disconnect()
      assert.equal(await shared.sandbox.commands.kill(handle.pid), true)
    })

    test('a timeout ends a command', async () => {
      await assert.rejects(run('sleep 1002', { timeoutMs: 500 }), TimeoutError)
    })

    test('mistakes have their classes', async () => {
      await assert.rejects(run('true', { cwd: '/nowhere' }), InvalidArgumentError)
      await assert.rejects(run('true', { user: 'ghost' }), AuthenticationError)
      await assert.rejects(shared.sandbox.commands.connect(999_999), NotFoundError)
      await assert.rejects(shared.sandbox.commands.sendStdin(999_999, 'x'), NotFoundError)
    })

    test('a flood of output arrives whole', async () => {
      let total = 0
      await run('head -c 8388608 /dev/zero | tr "\\0" x', { onStdout: (text) => (total += text.length) })
      assert.equal(total, 8_388_608)
    })

    test('many run at once', async () => {
      const results = await Promise.all(Array.from({ length: 30 }, (_, n) => run(`echo ${n}`)))
      assert.deepEqual(results.map((result) => result.stdout), Array.from({ length: 30 }, (_, n) => `${n}\n`))
    })

    test('a terminal has a size, takes input and is resized', async () => {
      let seen = ''
      const decoder = new TextDecoder()
      const pty = shared.sandbox.pty
      const handle = await pty.create({ cols: 99, rows: 44, onData: (data) => (seen += decoder.decode(data)) })
      const say = (text) => pty.sendInput(handle.pid, new TextEncoder().encode(text))
      await say('stty size\n')
      await until(() => seen.includes('44 99'), 'the size')
      await pty.resize(handle.pid, { cols: 77, rows: 33 })
      await say('stty size\n')
      await until(() => seen.includes('33 77'), 'the new size')
      await say('exit 3\n')
      await assert.rejects(handle.wait(), (error) => error.exitCode === 3)
    })

    test('a terminal is killed', async () => {
      const handle = await shared.sandbox.pty.create({ cols: 80, rows: 24, onData() {} })
      assert.equal(await shared.sandbox.pty.kill(handle.pid), true)
      assert.equal(await shared.sandbox.pty.kill(999_999), false)
      await assert.rejects(handle.wait())
    })
  })
}
