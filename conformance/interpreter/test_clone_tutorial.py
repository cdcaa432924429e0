"""Alibaba Cloud ACS, "Clone an Agent Sandbox with Checkpoint": its scripts run unchanged, except for
template names and placeholder ids."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CREATE = '''
# Import the E2B SDK
from e2b_code_interpreter import Sandbox

# Create a sandbox with memory retention enabled.
sbx_with_mem = Sandbox.create("code-interpreter-v1")
print(f"mem-sandbox id: {sbx_with_mem.sandbox_id}")
# Create a sandbox that retains only the filesystem.
sbx_no_mem = Sandbox.create("code-interpreter-v1")
print(f"fs-sandbox id: {sbx_no_mem.sandbox_id}")
'''

INITIALIZE = '''
def init_mem_fs(sbx):
  sbx.run_code("a = 1") # Write a variable to memory.
  sbx.files.write("/my-file", "hello") # Write data to a file.
  
  # Verify that the data was written successfully.
  print(sbx.run_code("print(a)"))
  print(sbx.files.read("/my-file"))

init_mem_fs(sbx_with_mem)
init_mem_fs(sbx_no_mem)
'''

CHECKPOINT = '''
sbx_with_mem = Sandbox.connect("<YOUR_SANDBOX_WITH_MEMORY_ID>")
sbx_no_mem = Sandbox.connect("<YOUR_SANDBOX_WITHOUT_MEMORY_ID>")

snapshot_with_mem = sbx_with_mem.create_snapshot()
snapshot_no_mem = sbx_no_mem.create_snapshot(headers={
  "x-e2b-kruise-snapshot-keep-running": "true",                 # Specifies whether the sandbox continues to run after the Checkpoint is created. If set to false, the Pod's status changes to Succeeded. The default value is true.
  "x-e2b-kruise-snapshot-ttl": "30m",                           # The time-to-live (TTL) for the created Checkpoint. It is automatically deleted after this period. If not set, the Checkpoint persists until manually deleted.
  "x-e2b-kruise-snapshot-persistent-contents": "filesystem",    # The content to retain in the Checkpoint. By default, it inherits the retention settings of the sandbox. Currently, only `filesystem` and the combination of `memory` and `filesystem` are supported.
  "x-e2b-kruise-snapshot-wait-success-seconds": "60",           # The timeout in seconds for Checkpoint creation to complete. The default value is 60.
})

print(f"Snapshot ID with memory: {snapshot_with_mem.snapshot_id}")
print(f"Snapshot ID without memory: {snapshot_no_mem.snapshot_id}")

# After the Checkpoint is created, you can safely kill the original sandbox.
sbx_with_mem.kill()
sbx_no_mem.kill()
'''

CLONE = '''
# Use the snapshot ID as a template to create a new sandbox.
clone_with_mem = Sandbox.create("<YOUR_SNAPSHOT_WITH_MEMORY_ID>")
clone_no_mem = Sandbox.create("<YOUR_SNAPSHOT_WITHOUT_MEMORY_ID>")

# Verify the clone that has memory retention enabled.
print(clone_with_mem.run_code("print(a)"))     
print(clone_with_mem.files.read("/my-file"))    
print(clone_no_mem.run_code("print(a)")) 
print(clone_no_mem.files.read("/my-file"))
'''

ONE = "Execution(Results: [], Logs: Logs(stdout: ['1\\n'], stderr: []), Error: None)"


def said(server, script: str) -> list[str]:
    variables = {
        "E2B_API_KEY": server.key, "E2B_API_URL": server.url, "E2B_SANDBOX_URL": server.url,
    }
    ran = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | variables, capture_output=True, text=True,
        timeout=240, check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


@pytest.mark.timeout(800)
def test_the_tutorials_scripts_run(server):
    first = said(server, CREATE + INITIALIZE)
    ids = [line.split(": ")[1] for line in first[:2]]
    assert first[2:] == [ONE, "hello", ONE, "hello"]
    script = CHECKPOINT.replace("<YOUR_SANDBOX_WITH_MEMORY_ID>", ids[0])
    script = script.replace("<YOUR_SANDBOX_WITHOUT_MEMORY_ID>", ids[1])
    second = said(server, "from e2b_code_interpreter import Sandbox\n" + script)
    taken = [line.split(": ")[1] for line in second]
    script = CLONE.replace("<YOUR_SNAPSHOT_WITH_MEMORY_ID>", taken[0])
    script = script.replace("<YOUR_SNAPSHOT_WITHOUT_MEMORY_ID>", taken[1])
    third = said(server, "from e2b_code_interpreter import Sandbox\n" + script)
    assert third[:2] == [ONE, "hello"] and third[-1] == "hello"
    lost = "\n".join(third[2:-1])
    assert lost.startswith("Execution(Results: [], Logs: Logs(stdout: [], stderr: []), Error: ExecutionError(")
    assert "name='NameError', value=\"name 'a' is not defined\"" in lost
