"""Random sequences of what users, nodes and failures do to templates, pools and claims.

After each round, a model of what users asked for and the invariants must agree with the API server.
`SHOAL_MODEL_ROUNDS` is the number of rounds, `SHOAL_MODEL_SEED` repeats a run.
"""

from __future__ import annotations

import os
import random
import time

import pytest

from .api import Api, Refused
from .invariants import controller, hold
from .operator import Operator
from .proxy import CALM, Faults, Proxy
from .storm import Users, claim, pool, template, volumes

ROUNDS = int(os.environ.get("SHOAL_MODEL_ROUNDS", "4"))
SEED = int(os.environ.get("SHOAL_MODEL_SEED") or random.SystemRandom().randrange(10**6))

#: Steps of a round.
STEPS = 14
#: The most seconds that a round takes to settle.
SETTLE_SECONDS = 120

#: Faults of the API server during a round.
WEATHER = [
    CALM,
    Faults(refused=0.15, codes=(409, 429, 500), reads=True),
    Faults(lost=0.2),
    Faults(watch=0.7, expired=0.3),
    Faults(delay=0.3, watch=2),
]


class Model:
    """Requests of users, and the means to make more."""

    def __init__(self, cluster, operator: Operator, proxy: Proxy, seed: int) -> None:
        self.random = random.Random(seed)
        self.api = Api(cluster, namespace=f"model-{seed}")
        self.users = Users(self.api, seed)
        self.operator = operator
        self.proxy = proxy
        self.claims: set[str] = set()
        self.pools: dict[str, int] = {}
        self.created = 0
        self.steps: list[str] = []

    def begin(self) -> None:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.api.namespace}}
        self.api.create("/api/v1/namespaces", namespace)
        policies = {"envVarsInjectionPolicy": "Allowed", "volumeClaimTemplatesPolicy": "Allowed"}
        for name, strategy in (("blue", "Recreate"), ("green", "OnReplenish")):
            spec = {"service": True} if name == "blue" else {"volumeClaimTemplates": volumes()}
            self.api.create(self.api.path("sandboxtemplates"), template(name, **policies, **spec))
            self.pools[name] = 2
            made = pool(name, name, 2, updateStrategy={"type": strategy})
            self.api.create(self.api.path("sandboxwarmpools"), made)

    def step(self) -> None:
        steps = [
            (self.claim, 30), (self.release, 18), (self.scale, 10), (self.change_template, 6), (self.replace_pool, 4),
            (self.delete_sandbox, 8), (self.delete_pod, 8), (self.delete_service, 4), (self.suspend, 6),
            (self.kill, 6),
        ]
        (chosen,) = self.random.choices([step for step, _ in steps], [weight for _, weight in steps])
        self.steps.append(chosen.__name__)
        chosen()

    # --- users ------------------------------------------------------------------------------

    def claim(self) -> None:
        name = f"claim-{self.created}"
        self.created += 1
        # A running pod cannot get variables: such a claim needs a sandbox of its own.
        spec = {"env": [{"name": "A", "value": "b"}]} if self.random.random() < 0.2 else {}
        wanted = claim(name, self.random.choice(sorted(self.pools)), **spec)
        self.api.create(self.api.path("sandboxclaims"), wanted)
        self.claims.add(name)

    def release(self) -> None:
        if self.claims:
            name = self.random.choice(sorted(self.claims))
            self.claims.remove(name)
            self.api.delete(self.api.path("sandboxclaims", name))

    def scale(self) -> None:
        name = self.random.choice(sorted(self.pools))
        self.pools[name] = self.random.randrange(5)
        self.api.patch(self.api.path("sandboxwarmpools", name), {"spec": {"replicas": self.pools[name]}})

    def change_template(self) -> None:
        name = self.random.choice(sorted(self.pools))
        changed = {"metadata": {"annotations": {"example.com/change": str(self.random.random())}}}
        self.api.patch(self.api.path("sandboxtemplates", name), {"spec": {"podTemplate": changed}})

    def replace_pool(self) -> None:
        """Claims of the pool wait in the meantime."""
        name = self.random.choice(sorted(self.pools))
        self.api.delete(self.api.path("sandboxwarmpools", name))
        time.sleep(self.random.uniform(0, 0.5))
        self.api.create(self.api.path("sandboxwarmpools"), pool(name, name, self.pools[name]))

    def suspend(self) -> None:
        """Suspends a claimed sandbox, and resumes it."""
        owned = [one for one in self.api.items("sandboxes") if controller(one).get("kind") == "SandboxClaim"]
        if owned:
            at = self.api.path("sandboxes", self.random.choice(owned)["metadata"]["name"])
            self.change_if_there(at, {"spec": {"operatingMode": "Suspended"}})
            time.sleep(self.random.uniform(0, 0.3))
            self.change_if_there(at, {"spec": {"operatingMode": "Running"}})

    def change_if_there(self, at: str, change: dict) -> None:
        try:
            self.api.patch(at, change)
        except Refused as refused:
            # A claim may have ended in the meantime.
            if refused.status != 404:
                raise

    # --- accidents --------------------------------------------------------------------------

    def delete_any(self, kind: str) -> None:
        if found := self.api.items(kind):
            self.api.delete(self.api.path(kind, self.random.choice(found)["metadata"]["name"]))

    def delete_sandbox(self) -> None:
        self.delete_any("sandboxes")

    def delete_pod(self) -> None:
        self.delete_any("pods")

    def delete_service(self) -> None:
        self.delete_any("services")

    def kill(self) -> None:
        self.operator.kill()
        time.sleep(self.random.uniform(0, 0.5))
        self.start()

    def start(self) -> None:
        self.operator.start("--enable-webhook=false", "--leader-elect=false")

    # --- rounds -----------------------------------------------------------------------------

    def round(self) -> None:
        self.steps = []
        self.proxy.inject(self.random.choice(WEATHER))
        for _ in range(STEPS):
            self.step()
            time.sleep(self.random.choice([0, 0, 0.05, 0.3]))
        self.proxy.inject(CALM)
        hold(self.api, SETTLE_SECONDS)
        seen = {one["metadata"]["name"] for one in self.api.items("sandboxclaims")}
        assert seen == self.claims
        sizes = {one["metadata"]["name"]: one["spec"].get("replicas", 0) for one in self.api.items("sandboxwarmpools")}
        assert sizes == self.pools

    def end(self) -> None:
        for name in self.pools:
            self.api.delete(self.api.path("sandboxwarmpools", name))
        self.api.delete(f"/api/v1/namespaces/{self.api.namespace}")


@pytest.fixture
def model(cluster):
    proxy = Proxy(cluster, SEED)
    operator = Operator(cluster, "model", proxy.configuration)
    operator.install()
    model = Model(cluster, operator, proxy, SEED)
    model.start()
    try:
        model.begin()
        yield model
    finally:
        model.end()
        operator.kill()
        proxy.close()


@pytest.mark.timeout(180 + 150 * ROUNDS)
def test_any_sequence_ends_as_users_asked(model):
    for number in range(ROUNDS):
        try:
            model.round()
        except AssertionError as mistake:
            told = f"SHOAL_MODEL_SEED={SEED}, round {number}: {' '.join(model.steps)}\n{model.proxy.faults}\n{mistake}"
            raise AssertionError(told) from None
