"""The daemon in pods of `agents.kruise.io`, by an operator with an image of it."""

from __future__ import annotations

from .test_kruise_sandbox import sandbox, wait_until_ready


def test_the_runtime_is_injected_where_it_is_requested(operators, cluster):
    operators("injects", "--runtime-image=example.org/shoal:1")
    cluster.apply(sandbox("injected", runtimes=[{"name": "agent-runtime"}]), sandbox("untouched"))
    wait_until_ready(cluster, "injected")
    wait_until_ready(cluster, "untouched")
    spec = cluster.get("pod", "injected")["spec"]
    init, = spec["initContainers"]
    assert init["name"] == "runtime" and init["image"] == "example.org/shoal:1"
    assert init["command"] == ["/shoal-envd", "install", "/shoal-runtime/shoal-envd"]
    main, = spec["containers"]
    assert main["lifecycle"]["postStart"]["exec"]["command"] == ["/shoal-runtime/shoal-envd", "start"]
    assert {"name": "shoal-runtime", "mountPath": "/shoal-runtime", "readOnly": True} in main["volumeMounts"]
    assert cluster.get("pod", "injected")["status"]["qosClass"] == "Guaranteed"
    assert "initContainers" not in cluster.get("pod", "untouched")["spec"]
