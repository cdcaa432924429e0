// Templates built with the JavaScript SDK.
import assert from 'node:assert/strict'
import { mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'

import { BuildError, Sandbox, Template, waitForPort } from 'e2b'
import './harness.js'

const made = []

after(async () => {
  for (const name of made) {
    await fetch(`${process.env.E2B_API_URL}/templates/${name}`, {
      method: 'DELETE', headers: { 'X-API-Key': process.env.E2B_API_KEY },
    })
  }
})

function building(name) {
  made.push(name)
  const logs = []
  return { logs, options: { cpuCount: 1, memoryMB: 256, onBuildLogs: (entry) => logs.push(entry.message) } }
}

test('a template starts with what was built and started', async () => {
  const context = mkdtempSync(join(tmpdir(), 'context-'))
  writeFileSync(join(context, 'a.txt'), 'a\n')
  const template = Template({ fileContextPath: context })
    .fromTemplate('base')
    .copy('a.txt', '/opt/a.txt')
    .setEnvs({ COLOUR: 'blue' })
    .runCmd('echo $COLOUR > /tmp/colour')
    .setWorkdir('/srv')
    .setStartCmd('python3 -m http.server 8080', waitForPort(8080))
  const { options } = building('js-served')
  await Template.build(template, 'js-served:one', { ...options, tags: ['two'] })
  const sandbox = await Sandbox.create('js-served:two', { timeoutMs: 60_000 })
  const said = await sandbox.commands.run("pwd; cat /opt/a.txt /tmp/colour; curl -s -o /dev/null -w '%{http_code}' localhost:8080")
  assert.equal(said.stdout, '/srv\na\nblue\n200')
  await sandbox.kill()
  const again = building('js-served')
  await Template.build(template, 'js-served', again.options)
  assert.ok(again.logs.includes('CACHED [finalize]'), again.logs.join('\n'))
  assert.equal(await Template.exists('js-served'), true)
  assert.equal(await Template.exists('js-never'), false)
  await Template.assignTags('js-served:one', ['three'])
  const tags = (await Template.getTags('js-served')).map((tag) => tag.tag)
  assert.deepEqual(tags.sort(), ['default', 'one', 'three', 'two'])
  await Template.removeTags('js-served', ['three', 'two'])
  await assert.rejects(Sandbox.create('js-served:two'))
})

test('a step that fails is the line that it stands in', async () => {
  const template = Template().fromTemplate('base').runCmd('echo fine').runCmd('exit 7')
  const { options } = building('js-failed')
  await assert.rejects(Template.build(template, 'js-failed', options), (error) => {
    assert.ok(error instanceof BuildError, error)
    assert.match(error.message, /exit status 7/)
    assert.match(error.stack, /template\.test\.js/)
    return true
  })
})

test('a build in the background says how far it is', async () => {
  const template = Template().fromTemplate('base').runCmd('sleep 0.5')
  const { options } = building('js-behind')
  const begun = await Template.buildInBackground(template, 'js-behind', options)
  let status
  do {
    status = await Template.getBuildStatus(begun)
    assert.notEqual(status.status, 'error', JSON.stringify(status))
  } while (status.status !== 'ready')
})
