import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ALL_TRAFFIC, InvalidArgumentError, Sandbox, SandboxError, SandboxNotFoundError } from 'e2b'
import { ask, own, serve } from './harness.js'

const PORT = 8000

test('egress rules are kept and told', async (t) => {
  const sandbox = await own(t, { network: { allowOut: ['192.0.2.0/24'], denyOut: [ALL_TRAFFIC] } })
  const { network } = await sandbox.getInfo()
  assert.deepEqual([network.allowOut, network.denyOut], [['192.0.2.0/24'], ['0.0.0.0/0']])
})

test('no internet is asked for', async (t) => {
  const sandbox = await own(t, { allowInternetAccess: false })
  assert.equal((await sandbox.getInfo()).allowInternetAccess, false)
  const { exitCode } = await sandbox.commands
    .run('curl -s --max-time 3 http://198.51.100.1/').catch((error) => error)
  assert.notEqual(exitCode, 0)
})

test('private networks are never reached', async (t) => {
  const sandbox = await own(t, { network: { allowOut: ['10.0.0.0/8', '169.254.169.254'] } })
  for (const address of ['169.254.169.254', '10.255.0.1', '192.168.0.1']) {
    const { exitCode } = await sandbox.commands
      .run(`curl -s --max-time 3 http://${address}/`).catch((error) => error)
    assert.notEqual(exitCode, 0, address)
  }
})

test('updateNetwork replaces every rule', async (t) => {
  const sandbox = await own(t, { network: { denyOut: ['192.0.2.0/24'] } })
  await sandbox.updateNetwork({ denyOut: ['198.51.100.0/24'] })
  assert.deepEqual((await sandbox.getInfo()).network.denyOut, ['198.51.100.0/24'])
  await Sandbox.updateNetwork(sandbox.sandboxId, {})
  const { network } = await sandbox.getInfo()
  assert.equal(network?.denyOut?.length ?? 0, 0)
  await assert.rejects(Sandbox.updateNetwork('i0000000000000000000z', {}), SandboxNotFoundError)
})

test('rules that make no sense are refused', async () => {
  const refused = [
    { denyOut: ['not an address'] },
    { allowOut: ['example.com'] },
    { denyOut: ['example.com'] },
    { maskRequestHost: '-https://abcd' },
  ]
  for (const network of refused) {
    await assert.rejects(Sandbox.create({ network }), (error) => {
      assert.ok(error instanceof SandboxError || error instanceof InvalidArgumentError)
      assert.match(error.message, /400/)
      return true
    }, JSON.stringify(network))
  }
})

test('public traffic is closed to who has no token', async (t) => {
  const sandbox = await own(t, { network: { allowPublicTraffic: false } })
  const token = sandbox.trafficAccessToken
  assert.ok(token)
  await serve(sandbox, PORT, { headers: { 'e2b-traffic-access-token': token } })
  const host = sandbox.getHost(PORT)
  const status = async (headers) => (await ask(host, '/', { headers })).status
  assert.equal(await status({}), 403)
  assert.equal(await status({ 'e2b-traffic-access-token': `${token}0` }), 403)
  assert.equal(await status({ 'e2b-traffic-access-token': token }), 200)
  const again = await Sandbox.connect(sandbox.sandboxId)
  assert.equal(again.trafficAccessToken, token)
  assert.equal((await sandbox.commands.run('echo in')).stdout, 'in\n')
})

test('the sandbox is told another host', async (t) => {
  const sandbox = await own(t, { network: { maskRequestHost: 'localhost:${PORT}' } })
  await serve(sandbox, PORT)
  const { headers } = JSON.parse((await ask(sandbox.getHost(PORT), '/')).text)
  assert.equal(headers.host, `localhost:${PORT}`)
})
