// The code interpreter, as the released package for JavaScript uses it.
import assert from 'node:assert/strict'
import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { Sandbox } from '@e2b/code-interpreter'

/** A sandbox of one case. */
async function own(t, options = {}) {
  const sandbox = await Sandbox.create({ timeoutMs: 300_000, ...options })
  t.after(() => sandbox.kill())
  return sandbox
}

test('code is run and its state is kept', async (t) => {
  const sandbox = await own(t)
  await sandbox.runCode('x = 41')
  const execution = await sandbox.runCode('x += 1; x')
  assert.equal(execution.text, '42')
  assert.equal(execution.error, undefined)
  assert.equal(execution.executionCount, 2)
})

test('every language answers', async (t) => {
  const sandbox = await own(t)
  const says = {
    python: 'print(6 * 7)',
    javascript: 'console.log(6 * 7)',
    js: 'console.log(await Promise.resolve(6 * 7))',
    ts: 'const n: number = 42; console.log(n)',
    bash: 'echo $((6 * 7))',
    r: 'cat(6 * 7)',
    java: 'System.out.println(6 * 7);',
  }
  for (const [language, code] of Object.entries(says)) {
    const execution = await sandbox.runCode(code, { language })
    assert.equal(execution.error, undefined, `${language}: ${execution.error?.value}`)
    assert.equal(execution.logs.stdout.join('').trim(), '42', language)
  }
})

test('lines, results and errors are told while the code runs', async (t) => {
  const sandbox = await own(t)
  const told = []
  await sandbox.runCode('import sys\nprint("o")\nprint("e", file=sys.stderr)\ndisplay(1)\n1 / 0', {
    onStdout: (message) => told.push(['out', message.line]),
    onStderr: (message) => told.push(['err', message.line]),
    onResult: (result) => told.push(['result', result.text]),
    onError: (error) => told.push(['error', error.name]),
  })
  const sorted = (kind) => told.filter(([which]) => which === kind).map(([, what]) => what)
  assert.deepEqual(sorted('out'), ['o\n'])
  assert.deepEqual(sorted('err'), ['e\n'])
  assert.deepEqual(sorted('result'), ['1'])
  assert.deepEqual(sorted('error'), ['ZeroDivisionError'])
})

test('a figure has its picture and its chart', async (t) => {
  const sandbox = await own(t)
  const code = 'import matplotlib.pyplot as plt\nplt.plot([1, 2], [3, 4], label="l")\nplt.title("T")\nplt.show()'
  const { results } = await sandbox.runCode(code)
  assert.equal(results.length, 1)
  assert.ok(Buffer.from(results[0].png, 'base64').subarray(1, 4).equals(Buffer.from('PNG')))
  assert.equal(results[0].chart.type, 'line')
  assert.deepEqual(results[0].chart.elements, [{ label: 'l', points: [[1, 3], [2, 4]] }])
})

test('a table has its data', async (t) => {
  const sandbox = await own(t)
  const { results } = await sandbox.runCode('import pandas as pd; pd.DataFrame({"a": [1, None]})')
  assert.deepEqual(results[0].data, { a: [1, null] })
})

test('variables are of the sandbox or of one call', async (t) => {
  const sandbox = await own(t, { envs: { WHO: 'all' } })
  const ask = (envs) => sandbox.runCode('import os; os.environ.get("WHO")', { envs })
  assert.equal((await ask()).text, 'all')
  assert.equal((await ask({ WHO: 'one' })).text, 'one')
  assert.equal((await ask()).text, 'all')
})

test('contexts are apart', async (t) => {
  const sandbox = await own(t)
  const context = await sandbox.createCodeContext({ cwd: '/tmp' })
  assert.equal(context.cwd, '/tmp')
  await sandbox.runCode('x = 1', { context })
  assert.equal((await sandbox.runCode('x')).error.name, 'NameError')
  assert.equal((await sandbox.runCode('import os; os.getcwd()', { context })).text, '/tmp')
  await sandbox.restartCodeContext(context)
  assert.equal((await sandbox.runCode('x', { context })).error.name, 'NameError')
  await sandbox.removeCodeContext(context)
  const known = await sandbox.listCodeContexts()
  assert.ok(!known.some(({ id }) => id === context.id))
})

test('code that takes too long is interrupted', async (t) => {
  const sandbox = await own(t)
  await sandbox.runCode('x = 1')
  await assert.rejects(sandbox.runCode('while True: pass', { timeoutMs: 2_000 }))
  const { error, text } = await sandbox.runCode('x', { timeoutMs: 120_000 })
  assert.equal(error, undefined)
  assert.equal(text, '1')
})

test('pictures are results', async (t) => {
  const sandbox = await own(t)
  const make = 'from PIL import Image\nImage.new("RGB", (3, 2), "red")'
  const { results } = await sandbox.runCode(make)
  assert.equal(results.length, 1)
  assert.ok(Buffer.from(results[0].png, 'base64').subarray(1, 4).equals(Buffer.from('PNG')))
})

test('a sandbox that is killed ends the call', async (t) => {
  const sandbox = await own(t)
  let begun
  const printed = new Promise((resolve) => (begun = resolve))
  const code = 'print("begun", flush=True)\nimport time\ntime.sleep(60)'
  const call = sandbox.runCode(code, { onStdout: begun })
  const failed = assert.rejects(call)
  await printed
  await sandbox.kill()
  await failed
})

test('state goes through a pause', async (t) => {
  const sandbox = await own(t)
  await sandbox.runCode('x = 41')
  await sandbox.runCode('let y = 5', { language: 'js' })
  await sandbox.pause()
  const again = await Sandbox.connect(sandbox.sandboxId)
  assert.equal((await again.runCode('x + 1')).text, '42')
  assert.equal((await again.runCode('y', { language: 'js' })).text, '5')
})

test('a clone resumes from the same state, on its own', async (t) => {
  const sandbox = await own(t)
  await sandbox.runCode('x = 1')
  const { snapshotId } = await sandbox.createSnapshot()
  t.after(() => Sandbox.deleteSnapshot(snapshotId))
  const clone = await Sandbox.create(snapshotId, { timeoutMs: 300_000 })
  t.after(() => clone.kill())
  for (const one of [sandbox, clone]) {
    assert.equal((await one.runCode('x += 1; x')).text, '2')
  }
})

test('every chart is the one that was drawn', async (t) => {
  const sandbox = await own(t)
  const charts = process.env.CHARTS
  const names = readdirSync(charts).filter((name) => name.endsWith('.py'))
  assert.ok(names.length > 6)
  for (const name of names) {
    const code = readFileSync(join(charts, name), 'utf8')
    const { results, error } = await sandbox.runCode(code)
    assert.equal(error, undefined, name)
    const drawn = JSON.parse(readFileSync(join(charts, name.replace('.py', '.json')), 'utf8'))
    assert.equal(results[0].chart.type, drawn.type, name)
    assert.deepEqual(near(results[0].chart), near(drawn), name)
  }
})

/** A chart in which numbers that are as good as the same are the same. */
function near(chart) {
  const round = (key, value) => (typeof value === 'number' ? Number(value.toFixed(6)) : value)
  return JSON.parse(JSON.stringify(chart, round))
}
