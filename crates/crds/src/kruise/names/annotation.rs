//! Annotations.

/// The claim that holds the sandbox, or a controller that is about to delete it.
pub const LOCK: &str = "agents.kruise.io/lock";
/// The owner: the ID of an API key, or the UID of a SandboxClaim.
pub const OWNER: &str = "agents.kruise.io/owner";
/// `"true"` on a sandbox whose SandboxClaim has counted it.
pub const DELIVERED: &str = "agents.kruise.io/delivered";
/// When the sandbox was claimed, in RFC 3339.
pub const CLAIM_TIMESTAMP: &str = "agents.kruise.io/claim-timestamp";
/// The ID of the checkpoint that the sandbox is a clone of.
pub const RESTORE_FROM: &str = "agents.kruise.io/restore-from";
/// When an executor began with a checkpoint, in RFC 3339.
pub const CHECKPOINT_BEGUN: &str = "shoal.dev/begun";
/// The pod of a checkpoint: a sandbox that a ReplicaSet keeps has one with another name.
pub const CHECKPOINT_POD: &str = "shoal.dev/pod";
/// When an executor began to end the pod of a complete checkpoint, in RFC 3339. The pod's memory is in the
/// checkpoint alone from then on.
pub const CHECKPOINT_ENDING: &str = "shoal.dev/ending";
/// The properties that a clone must share with the pod of a checkpoint, as JSON.
pub const CHECKPOINT_SOURCE: &str = "shoal.dev/source";
/// When an executor copied the checkpoint to the object store, in RFC 3339: pods on any node can start from it.
pub const CHECKPOINT_STORED: &str = "shoal.dev/stored";
/// `"true"` while the executor gives the checkpoint to other nodes: pods on any node can start from it as long as its own is
/// there.
pub const CHECKPOINT_SERVED: &str = "shoal.dev/served";
/// On the pod of an executor: its certificate, in Base64, by which the executors of other nodes know it.
pub const AGENT_CERTIFICATE: &str = "shoal.dev/certificate";
/// On the checkpoint of a pause: the UID of the pod that is saved. Its Sandbox ends the pod, and resumes from it.
pub const PAUSED_POD: &str = "shoal.dev/paused-pod";
/// The contents that the next pause of a sandbox keeps, instead of those of its spec: a list like
/// `memory,filesystem`. On a Sandbox of `agents.x-k8s.io`, or on its pod template: what each suspension keeps.
pub const PAUSE_CONTENTS: &str = "shoal.dev/pause-contents";
/// On a suspended Sandbox of `agents.x-k8s.io`: the checkpoint that keeps it, which its next pod starts from.
pub const SAVED_BY: &str = "shoal.dev/saved-by";
/// On a sandbox of a pool of clones: the token that the daemon in its memory requires until a claim gives it another.
pub const FORMER_TOKEN: &str = "shoal.dev/former-token";
/// The name of a snapshot, on its checkpoint.
pub const SNAPSHOT_NAME: &str = "shoal.dev/snapshot-name";
/// The tags of a named snapshot, on its checkpoint: JSON, each with the time in RFC 3339 at which it was given. Of the
/// checkpoints of one name, the last that was given a tag has it.
pub const SNAPSHOT_TAGS: &str = "shoal.dev/snapshot-tags";
/// `"true"` on the copy of a fork, a checkpoint that is not listed.
pub const COPY_OF_FORK: &str = "shoal.dev/fork";
/// The variables and token of the runtime's initialization, as JSON.
pub const INIT_RUNTIME_REQUEST: &str = "agents.kruise.io/init-runtime-request";
/// The ID of the sandbox, on its checkpoints and traffic policies.
pub const SANDBOX_ID: &str = "agents.kruise.io/sandbox-id";
/// The address of the member list of API replicas.
pub const MEMBERLIST_URL: &str = "agents.kruise.io/memberlist-url";
/// `"true"` allows the sandbox to return to its pool.
pub const CLEANUP_ENABLED: &str = "agents.kruise.io/cleanup-enabled";
/// `"true"` returns the sandbox to its pool.
pub const CLEANUP: &str = "agents.kruise.io/cleanup";
/// How long a sandbox stays whose return to the pool failed.
pub const CLEANUP_RETAIN_ON_FAILURE: &str = "agents.kruise.io/cleanup-retain-on-failure";
/// The labels and annotations that the claim changed, as JSON.
pub const UPDATED_METADATA_IN_CLAIM: &str = "agents.kruise.io/updated-metadata-in-claim";
/// The URL of the runtime.
pub const RUNTIME_URL: &str = "agents.kruise.io/runtime-url";
/// The access token of the runtime.
pub const RUNTIME_ACCESS_TOKEN: &str = "agents.kruise.io/runtime-access-token";
/// The TLS port of the runtime.
pub const RUNTIME_TLS_PORT: &str = "agents.kruise.io/runtime-tls-port";
/// How long a paused sandbox is kept: a duration, or `forever`.
pub const RESERVE_PAUSED_SANDBOX_DURATION: &str =
    "agents.kruise.io/reserve-paused-sandbox-duration";
/// Marks an old materialized SandboxTemplate.
pub const CLEANUP_CANDIDATE: &str = "agents.kruise.io/cleanup-candidate";
/// A number above zero puts the sandbox's pod before others.
pub const SANDBOX_PRIORITY: &str = "agents.kruise.io/sandbox-priority";
/// `"true"` resumes a paused sandbox to upgrade it.
pub const UPGRADE_RESUME_TRIGGER: &str = "agents.kruise.io/upgrade-resume-trigger";
/// The in-place update of a pod, as JSON.
pub const INPLACE_UPDATE_STATE: &str = "agents.kruise.io/inplace-update-state";
/// The W3C `traceparent`.
pub const TRACE_CONTEXT: &str = "agents.kruise.io/trace-context";
/// The hash of what an in-place update cannot change.
pub const HASH_IMMUTABLE_PART: &str = "sandbox.agents.kruise.io/hash-immutable-part";
/// The older name of [`HASH_IMMUTABLE_PART`].
pub const HASH_WITHOUT_IMAGE_RESOURCES: &str =
    "sandbox.agents.kruise.io/hash-without-image-resources";
/// The older name of [`RUNTIME_ACCESS_TOKEN`].
pub const ENVD_ACCESS_TOKEN: &str = "e2b.agents.kruise.io/envd-access-token";
/// The older name of [`RUNTIME_URL`].
pub const ENVD_URL: &str = "e2b.agents.kruise.io/envd-url";
/// The token that requests to the sandbox's ports need at the gateway. Ports of a sandbox without it are public.
pub const TRAFFIC_ACCESS_TOKEN: &str = "e2b.agents.kruise.io/traffic-access-token";
/// The CSI mounts of the sandbox, as a JSON array.
pub const CSI_VOLUME_CONFIG: &str = "e2b.agents.kruise.io/csi-volume-config";
/// The digest of the request that made the sandbox, if it had an idempotency key.
pub const IDEMPOTENT_REQUEST: &str = "e2b.agents.kruise.io/idempotent-request";
/// The metadata of the E2B API whose keys cannot be those of annotations, as a JSON object.
pub const OTHER_METADATA: &str = "e2b.agents.kruise.io/metadata";
/// Whether the E2B API returns the pod's address.
pub const RETURN_SANDBOX_IP: &str = "e2b.agents.kruise.io/return-sandbox-ip";
/// The state of the security token, as JSON.
pub const TOKEN_STATUS: &str = "security.agents.kruise.io/token-status";
/// The creator of the sandbox's pod, if not the operator: [`super::REPLICA_SET`]. Also on a
/// SandboxSet, which hands it on to its sandboxes.
pub const KEPT_BY: &str = "agents.kruise.io/kept-by";
/// The command that runs in a claimed sandbox, and again in each new container of it, as a JSON list of words.
/// Also on a SandboxSet.
pub const STARTUP_COMMAND: &str = "agents.kruise.io/startup-command";
/// The entry of the template catalogue that the sandbox, or the SandboxSet, was made from.
pub const TEMPLATE_ENTRY: &str = "agents.kruise.io/template-entry";
/// The version of the catalogue that a SandboxSet was written from.
pub const CATALOGUE_VERSION: &str = "agents.kruise.io/catalogue-version";
/// The size of its entry's pool that a SandboxSet was written with. Other writers may change its replicas.
pub const POOL_SIZE: &str = "agents.kruise.io/pool-size";
/// In the pod information of a status: the name of the pod, where it is not that of the sandbox.
pub const POD_NAME: &str = "agents.kruise.io/pod-name";
/// The agent that a security token is for.
pub const AGENT_NAME: &str = "security.agents.kruise.io/agent-name";
/// `"true"` requires a JWT at the gateway.
pub const ENABLE_JWT_AUTH: &str = "security.agents.kruise.io/enable-jwt-auth";
/// Whether health probes are rewritten for the traffic proxy.
pub const HEALTH_PROBE_REWRITE: &str = "networking.agents.kruise.io/health-probe-rewrite";
/// Whether the pod has a traffic proxy.
pub const SIDECAR_PROXY: &str = "networking.agents.kruise.io/sidecar-proxy";
