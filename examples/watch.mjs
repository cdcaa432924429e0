// Follows the files of a sandbox while a command in it writes them.
//
//     npm install e2b
//     node watch.mjs

import { Sandbox } from 'e2b'

const sandbox = await Sandbox.create({ timeoutMs: 300_000 })
try {
  await sandbox.files.makeDir('out')
  const created = new Set()
  let all
  const finished = new Promise((resolve) => (all = resolve))
  const watch = await sandbox.files.watchDir('out', (event) => {
    if (event.type === 'create') {
      created.add(event.name)
    }
    if (created.size === 3) {
      all()
    }
  })
  await sandbox.commands.run('for n in 1 2 3; do echo page $n; touch out/$n.html; sleep 0.2; done', {
    onStdout: (text) => process.stdout.write(text),
  })
  await finished
  await watch.stop()
  console.log('created:', [...created].sort().join(' '))
} finally {
  await sandbox.kill()
}
