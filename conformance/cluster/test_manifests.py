"""The chart, and the file for `kubectl apply` that is made of it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from ..installation import program
from . import binaries, manifests, schemas
from .objects import SERVER_SIDE

#: Kinds that the API server does not know.
UNKNOWN = ("ServiceMonitor", "HTTPRoute")

#: Values that enable disabled parts, and disable enabled ones.
OTHERWISE = """
createNamespace: true
replicas: 1
image: {digest: "sha256:%s"}
imagePullSecrets: [{name: registry}]
operator: {extensions: false, kruise: false, claimEvents: false, extraArgs: [--kube-api-qps=5]}
definitions: {keep: false}
router:
  autoscaling: {enabled: true, maxReplicas: 5}
  port: 18080
  service: {name: routes, type: LoadBalancer, annotations: {example.org/internal: "true"}}
  tokenSecret: router-tokens
  logLevel: debug
  serviceAccount: {name: another}
  podLabels: {team: agents}
  nodeSelector: {kubernetes.io/os: linux}
api:
  autoscaling: {enabled: true, maxReplicas: 5}
  team: agents
  domain: sandboxes.example.org
  maxTimeout: 30m
  trustedProxies: [10.0.0.0/8, "fd00::/8"]
  port: 13000
  service: {name: e2b, port: 8443, type: LoadBalancer}
  tls: {secretName: certificate}
  ingress: {enabled: true, className: nginx, annotations: {example.org/note: text}, tlsSecretName: wildcard}
  httpRoute: {enabled: true, parentRefs: [{name: gateway}]}
  logLevel: debug
  extraArgs: [--set=gateway.connections=100]
  serviceAccount: {name: another-api}
sessions: {enabled: true, template: code, contents: "s3://sessions/here", storage: {size: 5Gi, className: fast}}
node:
  enabled: true
  parallel: 4
  logLevel: debug
  prepare: {enabled: true, runsc: /opt/runsc, shim: /opt/shim, config: /etc/other.toml, unit: other-containerd}
  peers: {enabled: true, port: 20360}
  objects: {url: "file:///var/lib/shoal/objects", secret: bucket, volume: {persistentVolumeClaim: {claimName: checkpoints}}}
  nodeSelector: {kubernetes.io/os: linux}
  tolerations: [{operator: Exists}]
serviceAccount: {name: other, annotations: {example.org/role: shoal}}
metrics: {serviceMonitor: {enabled: true, labels: {release: prometheus}}}
networkPolicy: {metricsFrom: [{namespaceSelector: {}}], routerFrom: [{podSelector: {}}], apiFrom: [{podSelector: {}}], apiServerPorts: [16443]}
podDisruptionBudget: {maxUnavailable: 50%%}
podLabels: {team: agents}
podAnnotations: {example.org/note: text}
priorityClassName: system-cluster-critical
runtimeClassName: gvisor
nodeSelector: {kubernetes.io/os: linux}
tolerations: [{operator: Exists}]
""" % ("0" * 64)


@pytest.fixture
def otherwise(tmp_path):
    path = tmp_path / "values.yaml"
    path.write_text(OTHERWISE)
    return path


def objects(text: str) -> list[dict]:
    return [one for one in yaml.load_all(text, yaml.CSafeLoader) if one]


def certificate(directory: Path) -> Path:
    """A directory with a self-signed certificate, as a Secret of kubernetes.io/tls has it."""
    made = directory / "tls"
    made.mkdir()
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
         "-subj", "/CN=localhost", "-keyout", made / "tls.key", "-out", made / "tls.crt"],
        capture_output=True, check=True, timeout=60,
    )
    return made


def of_kind(text: str, kind: str) -> list[dict]:
    return [one for one in objects(text) if one["kind"] == kind]


def test_the_definitions_of_the_chart_are_the_programs():
    assert manifests.DEFINITIONS.read_text() == manifests.definitions(), "run `make manifests`"


def test_the_file_for_kubectl_is_the_chart():
    assert manifests.RENDERED.read_text() == manifests.for_kubectl(), "run `make manifests`"


def test_helm_finds_no_fault_with_the_chart(otherwise):
    for options in ([], ["--values", otherwise]):
        done = manifests.helm("lint", "--strict", manifests.CHART, *options)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("value, told", [
    ("replica=3", "replica"), ("replicas=-1", "replicas"), ("operator.logLevel=loud", "logLevel"),
    ("webhook.port=70000", "port"), ("image.digest=latest", "digest"), ("router.replica=3", "replica"),
    ("router.service.type=ExternalName", "type"), ("router.autoscaling.minReplicas=0", "minReplicas"),
    ("router.tokenSecret=some,router.allowUnauthenticated=true", "exclude each other"),
    ("api.team=Agents", "team"), ("api.maxTimeout=forever", "maxTimeout"), ("api.domain=-.org", "domain"),
    ("api.ingress.enabled=true", "api.domain is required"), ("api.replica=3", "replica"),
    ("node.storeSize=much", "storeSize"), ("node.namespaceShare=101", "namespaceShare"), ("node.paths.state=run", "state"),
    ("node.prepare.shim=shim", "shim"), ("node.prepare.unit=a b", "unit"), ("node.objects.url=bucket", "url"), ("node.peers.port=0", "port"), ("sessions.storage.size=much", "size"),
    ("api.httpRoute.enabled=true,api.domain=example.org", "parentRefs is required"),
])
def test_wrong_values_are_refused(value, told):
    done = manifests.template("shoal", "--set", value)
    assert done.returncode != 0
    assert told in done.stderr


def test_definitions_differ_from_the_programs_by_labels_only():
    """The webhook is in the namespace of the release."""
    made = of_kind(manifests.rendered("--namespace", "other"), "CustomResourceDefinition")
    printed = objects(manifests.definitions("--webhook-namespace", "other"))
    assert len(made) == len(printed) == 16
    by_name = {one["metadata"]["name"]: one for one in printed}
    for one in made:
        assert one["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
        assert one["spec"] == by_name[one["metadata"]["name"]]["spec"]


def test_the_program_knows_the_flags(otherwise, tmp_path):
    """It gets as far as to look for a cluster. On the way, router and API listen: on other ports than a pod's."""
    tls = certificate(tmp_path)
    environment = {"KUBECONFIG": str(tmp_path / "missing"), "PATH": os.environ["PATH"]}
    for options in ([], ["--values", otherwise]):
        deployments = of_kind(manifests.rendered(*options), "Deployment")
        programs = {"shoal", "shoal-api", "shoal-router"} | ({"shoal-sessions"} if options else set())
        assert {one["metadata"]["name"] for one in deployments} == programs
        for deployment in deployments:
            arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
            elsewhere = [re.sub(r"(-address=|listen=)[\d.]*:\d+$", r"\g<1>127.0.0.1:0", one) for one in arguments]
            elsewhere = [one.replace("/etc/shoal/api", str(tls)).replace("/tmp/shoal", str(tmp_path)) for one in elsewhere]
            ran = subprocess.run([program(), *elsewhere], env=environment, capture_output=True, text=True, timeout=60)
            assert re.match("shoal: (no cluster is configured|cannot find the cluster)", ran.stderr), ran.stderr


def test_the_program_knows_the_flags_of_the_node(otherwise, tmp_path):
    daemons = of_kind(manifests.rendered("--values", otherwise), "DaemonSet")
    assert len(daemons) == 1 and not of_kind(manifests.rendered(), "DaemonSet")
    pod = daemons[0]["spec"]["template"]["spec"]
    container, = pod["containers"]
    environment = {"KUBECONFIG": str(tmp_path / "missing"), "PATH": os.environ["PATH"], "NODE_NAME": "node"}
    environment |= {"POD_NAME": "agent", "POD_NAMESPACE": "shoal-node"}
    ran = subprocess.run([program(), *container["args"]], env=environment, capture_output=True, text=True, timeout=60)
    assert ran.stderr.startswith("shoal: no cluster is configured"), ran.stderr
    # It sees three directories of the node, and nothing else of it.
    of_node = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume}
    assert of_node.pop("host") == "/"
    assert len(of_node) == 3 and of_node.keys() < {mount["name"] for mount in container["volumeMounts"]}
    assert "host" not in {mount["name"] for mount in container["volumeMounts"]}
    assert not {"hostPID", "hostNetwork", "hostIPC"} & pod.keys()
    assert {"name": "objects", "persistentVolumeClaim": {"claimName": "checkpoints"}} in pod["volumes"]
    assert container["envFrom"] == [{"secretRef": {"name": "bucket"}}]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert not container["securityContext"].get("privileged")


def test_the_program_knows_the_flags_that_prepare_a_node(otherwise, tmp_path):
    (tmp_path / "opt").mkdir()
    for name in ("opt/runsc", "opt/shim", "shoal-runsc"):
        (tmp_path / name).write_text("")
    daemon, = of_kind(manifests.rendered("--values", otherwise), "DaemonSet")
    container, = daemon["spec"]["template"]["spec"]["initContainers"]
    arguments = [re.sub("=/(host|(?=shoal-runsc))", f"={tmp_path}/", one) for one in container["args"]]
    ran = subprocess.run([program(), *arguments, "--dry-run"], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0 and "would write  /etc/other.toml\n" in ran.stdout, ran.stdout + ran.stderr
    assert "--restart=other-containerd" in arguments
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["SYS_CHROOT"]}
    assert not container["securityContext"].get("privileged")


def test_selectors_find_the_pods_of_one_program(otherwise):
    for options in ([], ["--values", otherwise]):
        text = manifests.rendered(*options)
        programs = of_kind(text, "Deployment") + of_kind(text, "DaemonSet")
        pods = {one["metadata"]["name"]: one["spec"]["template"]["metadata"]["labels"] for one in programs}
        assert pods["shoal-router"]["app"] == "sandbox-router"
        for kind in ("Deployment", "Service", "NetworkPolicy", "PodDisruptionBudget"):
            for one in of_kind(text, kind):
                selector = one["spec"].get("selector") or one["spec"]["podSelector"]
                wanted = selector.get("matchLabels", selector).items()
                found = [name for name, labels in pods.items() if wanted <= labels.items()]
                name = one["metadata"]["name"]
                if "router" in name or name == "routes":
                    of = "shoal-router"
                elif name in ("shoal-sessions", "shoal-node"):
                    of = name
                else:
                    of = "shoal-api" if "shoal-api" in name or name == "e2b" else "shoal"
                assert found == [of], f"{kind} {name}"


def test_the_release_can_be_without_a_router():
    made = manifests.rendered("--set", "router.enabled=false,metrics.serviceMonitor.enabled=true,definitions.install=false")
    assert "router" not in str(objects(made))
    assert "sandboxes/proxy" not in made


def test_the_release_can_be_without_the_api():
    made = manifests.rendered("--set", "api.enabled=false,metrics.serviceMonitor.enabled=true,definitions.install=false")
    assert "shoal-api" not in str(objects(made))
    assert {one["metadata"]["name"] for one in of_kind(made, "Deployment")} == {"shoal", "shoal-router"}


def api_container(text: str) -> dict:
    api, = (one for one in of_kind(text, "Deployment") if one["metadata"]["name"] == "shoal-api")
    return api["spec"]["template"]["spec"]["containers"][0]


def test_probes_of_the_api_follow_its_protocol(otherwise):
    for options, scheme in (([], "HTTP"), (["--values", otherwise], "HTTPS")):
        container = api_container(manifests.rendered(*options))
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert container[probe]["httpGet"] == {"path": "/health", "port": "http", "scheme": scheme}
        assert "health" not in [port["name"] for port in container["ports"]]


def test_the_api_gets_its_certificate_and_its_settings(otherwise):
    container = api_container(manifests.rendered("--values", otherwise))
    given = {
        "--tls=/etc/shoal/api/tls.crt,/etc/shoal/api/tls.key", "--domain=sandboxes.example.org", "--listen=0.0.0.0:13000",
        "--set=kubernetes.namespace=agent-sandbox-system", "--set=kubernetes.team=agents", "--set=limits.max_timeout=30m",
        "--set=gateway.trusted_proxies=10.0.0.0/8,fd00::/8", "--set=gateway.connections=100",
    }
    assert given <= set(container["args"])
    assert {one["mountPath"] for one in container["volumeMounts"]} == {"/tmp", "/etc/shoal/api"}
    plain = api_container(manifests.rendered())
    assert not [one for one in plain["args"] if one.startswith(("--tls", "--domain", "--set=gateway"))]
    assert [one["mountPath"] for one in plain["volumeMounts"]] == ["/tmp"]


def test_sessions_have_one_replica_with_a_disk(otherwise):
    made = manifests.rendered("--values", otherwise)
    sessions, = (one for one in of_kind(made, "Deployment") if one["metadata"]["name"] == "shoal-sessions")
    assert sessions["spec"]["replicas"] == 1 and sessions["spec"]["strategy"] == {"type": "Recreate"}
    pod = sessions["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "another-api" and pod["securityContext"]["fsGroup"] == 65532
    container, = pod["containers"]
    given = {"--data=/var/lib/shoal/data", "--set=kubernetes.sessions=true", "--set=sessions.template=code"}
    assert given | {"--set=sessions.contents=s3://sessions/here"} <= set(container["args"])
    assert len([one for one in container["args"] if one.startswith("--data=")]) == 1
    claim, = of_kind(made, "PersistentVolumeClaim")
    assert {"name": "data", "persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}} in pod["volumes"]
    assert claim["spec"]["storageClassName"] == "fast" and claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert "sessions" not in str([one["metadata"]["name"] for one in objects(manifests.rendered())])


def test_the_ways_from_outside_lead_to_the_api_and_all_sandboxes(otherwise):
    made = manifests.rendered("--values", otherwise)
    hosts, previews = ["api.sandboxes.example.org", "*.sandboxes.example.org"], "*.preview.sandboxes.example.org"
    ingress, = of_kind(made, "Ingress")
    assert [rule["host"] for rule in ingress["spec"]["rules"]] == ingress["spec"]["tls"][0]["hosts"] == [*hosts, previews]
    ways = [
        (path["path"], path["backend"]["service"]["name"]) for rule in ingress["spec"]["rules"] for path in rule["http"]["paths"]
    ]
    assert ways == [("/api/v1/sessions", "shoal-sessions"), ("/", "e2b"), ("/", "e2b"), ("/", "shoal-sessions")]
    of_api, of_previews = of_kind(made, "HTTPRoute")
    assert of_api["spec"]["hostnames"] == hosts and of_previews["spec"]["hostnames"] == [previews]
    named = [[(one["name"], one["port"]) for one in rule["backendRefs"]] for rule in of_api["spec"]["rules"]]
    assert named == [[("shoal-sessions", 8443)], [("e2b", 8443)]]
    assert of_previews["spec"]["rules"] == [{"backendRefs": [{"name": "shoal-sessions", "port": 8443}]}]
    assert not {"Ingress", "HTTPRoute"} & {one["kind"] for one in objects(manifests.rendered())}


def test_a_router_that_does_not_ask_the_cluster_has_no_right_to():
    for how in ("router.tokenSecret=some", "router.allowUnauthenticated=true"):
        roles = of_kind(manifests.rendered("--set", how), "ClusterRole")
        role, = (one for one in roles if one["metadata"]["name"] == "shoal-router")
        assert [rule["resources"] for rule in role["rules"]] == [["sandboxes"]]


def test_an_autoscaler_keeps_its_number_of_replicas(otherwise):
    made = manifests.rendered("--values", otherwise)
    scalers = of_kind(made, "HorizontalPodAutoscaler")
    assert [one["spec"]["scaleTargetRef"]["name"] for one in scalers] == ["shoal-api", "shoal-router"]
    replicas = {one["metadata"]["name"]: one["spec"].get("replicas") for one in of_kind(made, "Deployment")}
    assert replicas == {"shoal": 1, "shoal-router": None, "shoal-api": None, "shoal-sessions": 1}
    assert not of_kind(manifests.rendered(), "HorizontalPodAutoscaler")


def test_names_of_long_releases_fit():
    made = manifests.template("r" * 53)
    assert made.returncode == 0, made.stderr
    assert max(len(one["metadata"]["name"]) for one in of_kind(made.stdout, "Service")) <= 63


def test_the_api_server_accepts_everything(cluster):
    """It refuses unknown fields. Nothing is stored but the namespace."""
    text = manifests.RENDERED.read_text()
    cluster.apply(*of_kind(text, "Namespace"))
    cluster.kubectl(*SERVER_SIDE, "--dry-run=server", "--validate=strict", "-f", "-", input=text)


def test_kubeconform_accepts_everything(cluster, otherwise, tmp_path):
    """Its schemas are those of the API server, but for kinds that the server does not know."""
    known = tmp_path / "schemas"
    known.mkdir()
    for name, options in (("default", []), ("otherwise", ["--values", otherwise])):
        text = manifests.rendered(*options)
        kinds = {(one["apiVersion"], one["kind"]) for one in objects(text)}
        schemas.write(cluster, known, {kind for kind in kinds if kind[1] not in UNKNOWN})
        file = tmp_path / f"{name}.yaml"
        file.write_text(text)
        done = kubeconform(known, file)
        assert done.returncode == 0, done.stdout + done.stderr
    file.write_text(text.replace("containerPort:", "containerPorts:"))
    assert "containerPorts" in kubeconform(known, file).stdout


def kubeconform(known, file) -> subprocess.CompletedProcess:
    return subprocess.run(
        [binaries.kubeconform() / "kubeconform", "-strict", "-summary", "-skip", ",".join(UNKNOWN),
         "-schema-location", f"{known}/{schemas.LOCATION}", file],
        capture_output=True, text=True, timeout=120,
    )
