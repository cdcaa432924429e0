// Prepares a sandbox once, and starts others from a snapshot of it, with its processes and their memory.
//
//     npm install e2b
//     node snapshot.mjs

import { Sandbox } from 'e2b'

// A server that loads its data for a second, and answers from memory.
const SERVER = `
import http.server, time
time.sleep(1)
data = {"/seven": "7", "/eight": "8"}
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = data.get(self.path, "?").encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.HTTPServer(("127.0.0.1", 9000), Answer).serve_forever()
`

const ask = async (sandbox, name) => (await sandbox.commands.run(`curl -sf localhost:9000/${name}`)).stdout

const prepared = await Sandbox.create({ timeoutMs: 300_000 })
await prepared.files.write('server.py', SERVER)
await prepared.commands.run('python3 server.py 2>/dev/null', { background: true, timeoutMs: 0 })
await prepared.commands.run('until curl -sf localhost:9000/seven; do sleep 0.1; done')
const { snapshotId } = await prepared.createSnapshot()
await prepared.kill()

const clones = []
try {
  for (const name of ['seven', 'eight']) {
    const clone = await Sandbox.create(snapshotId, { timeoutMs: 300_000 })
    clones.push(clone)
    console.log(`${name}: ${await ask(clone, name)}`)
  }
} finally {
  await Promise.all(clones.map((clone) => clone.kill()))
  await Sandbox.deleteSnapshot(snapshotId)
}
