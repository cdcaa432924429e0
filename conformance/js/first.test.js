import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Sandbox } from 'e2b'

test('a sandbox runs commands', async () => {
  const sandbox = await Sandbox.create()
  const result = await sandbox.commands.run('whoami; pwd')
  assert.equal(result.stdout, 'user\n/home/user\n')
  assert.equal(await sandbox.kill(), true)
})
