"""Tests with Kubernetes' Python client. $EVENKEEL names the program; by default it is on the PATH."""

import contextlib
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from kubernetes import client, config, utils, watch

CRDS = pathlib.Path(__file__).parent.parent / "crds"


@contextlib.contextmanager
def evenkeel():
    """Runs a cluster of its own, and yields the path of its kubeconfig."""
    with tempfile.TemporaryDirectory() as folder:
        program = os.environ.get("EVENKEEL", "evenkeel")
        command = [program, "up", "--port=0", f"--data-dir={folder}", "--output=json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as cluster:
            try:
                events = map(json.loads, cluster.stdout)
                ready = next((event for event in events if event["event"] == "ready"), None)
                if ready is None:
                    raise RuntimeError(f"{command} ended with code {cluster.wait()}")
                yield ready["kubeconfig"]
            finally:
                cluster.kill()


def until(condition, listing, *arguments, **options):
    """Returns the first object of a watch that satisfies the condition."""
    for event in watch.Watch().stream(listing, *arguments, timeout_seconds=60, **options):
        if condition(event["object"]):
            return event["object"]
    raise AssertionError("the condition did not hold within a minute")


class Evenkeel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.api = config.new_client_from_config(cls.enterClassContext(evenkeel()))

    def test_custom_resources_are_validated_and_watched(self):
        utils.create_from_directory(self.api, str(CRDS))
        definitions = client.ApiextensionsV1Api(self.api)
        established = lambda crd: any(
            at.type == "Established" and at.status == "True" for at in crd.status.conditions or []
        )
        until(established, definitions.list_custom_resource_definition)

        widgets = client.CustomObjectsApi(self.api)
        kind = ("example.com", "v1", "default", "widgets")
        widget = lambda name, size: {
            "apiVersion": "example.com/v1",
            "kind": "Widget",
            "metadata": {"name": name},
            "spec": {"size": size},
        }
        created = widgets.create_namespaced_custom_object(*kind, widget("small", 1))
        self.assertEqual(created["spec"], {"size": 1, "color": "blue"})
        with self.assertRaises(client.ApiException) as refused:
            widgets.create_namespaced_custom_object(*kind, widget("none", 0))
        self.assertEqual(refused.exception.status, 422)
        self.assertIn("should be greater than or equal to 1", refused.exception.body)

        listed = widgets.list_namespaced_custom_object(*kind)
        widgets.patch_namespaced_custom_object(*kind, "small", {"spec": {"size": 2}})
        version = listed["metadata"]["resourceVersion"]
        grown = until(
            lambda object: object["spec"]["size"] == 2,
            widgets.list_namespaced_custom_object,
            *kind,
            resource_version=version,
        )
        self.assertEqual(grown["metadata"]["generation"], 2)

    def test_a_new_user_has_no_permissions(self):
        alice = client.ApiClient(self.api.configuration)
        alice.set_default_header("Impersonate-User", "alice")
        with self.assertRaises(client.ApiException) as refused:
            client.CoreV1Api(alice).list_namespaced_pod("default")
        self.assertEqual(refused.exception.status, 403)
        self.assertIn('User \\"alice\\" cannot list resource \\"pods\\"', refused.exception.body)

    def test_a_deployment_becomes_ready(self):
        apps = client.AppsV1Api(self.api)
        labels = {"app": "web"}
        container = client.V1Container(name="web", image="nginx")
        template = client.V1PodTemplateSpec(
            metadata=client.V1ObjectMeta(labels=labels),
            spec=client.V1PodSpec(containers=[container]),
        )
        web = client.V1Deployment(
            metadata=client.V1ObjectMeta(name="web"),
            spec=client.V1DeploymentSpec(
                replicas=3,
                selector=client.V1LabelSelector(match_labels=labels),
                template=template,
            ),
        )
        apps.create_namespaced_deployment("default", web)
        until(
            lambda web: web.status.ready_replicas == 3,
            apps.list_namespaced_deployment,
            "default",
            field_selector="metadata.name=web",
        )
        pods = client.CoreV1Api(self.api).list_namespaced_pod("default", label_selector="app=web")
        self.assertEqual([pod.status.phase for pod in pods.items], ["Running"] * 3)
        self.assertTrue(all(pod.spec.node_name for pod in pods.items))


if __name__ == "__main__":
    unittest.main()
