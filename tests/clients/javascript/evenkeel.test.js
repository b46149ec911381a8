// Tests with Kubernetes' JavaScript client. $EVENKEEL names the program; by default it is on the PATH.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, test } from 'node:test';

import * as k8s from '@kubernetes/client-node';

let folder, cluster, config;

// A cluster of its own.
before(async () => {
    folder = await mkdtemp(path.join(tmpdir(), 'evenkeel-'));
    const program = process.env.EVENKEEL ?? 'evenkeel';
    const command = ['up', '--port=0', `--data-dir=${folder}`, '--output=json'];
    cluster = spawn(program, command, { stdio: ['ignore', 'pipe', 'inherit'] });
    let event;
    for await (const line of createInterface({ input: cluster.stdout })) {
        event = JSON.parse(line);
        if (event.event === 'ready') break;
    }
    assert.equal(event?.event, 'ready', `${program} ended`);
    config = new k8s.KubeConfig();
    config.loadFromFile(event.kubeconfig);
});

after(async () => {
    if (cluster.exitCode === null) {
        cluster.kill('SIGKILL');
        await once(cluster, 'exit');
    }
    await rm(folder, { recursive: true });
});

// Returns the first object of a watch that satisfies the condition.
async function until(url, condition, parameters = {}) {
    let watch;
    const found = new Promise((resolve, reject) => {
        const seen = (_, object) => condition(object) && resolve(object);
        const ended = (error) => reject(error ?? new Error('the condition did not hold within a minute'));
        watch = new k8s.Watch(config).watch(url, { timeoutSeconds: 60, ...parameters }, seen, ended);
    });
    try {
        return await found;
    } finally {
        (await watch).abort();
    }
}

test('custom resources are validated and watched', async () => {
    const manifest = await readFile(new URL('../crds/widgets.yaml', import.meta.url), 'utf8');
    const definitions = config.makeApiClient(k8s.ApiextensionsV1Api);
    await definitions.createCustomResourceDefinition({ body: k8s.loadYaml(manifest) });
    await until('/apis/apiextensions.k8s.io/v1/customresourcedefinitions', (crd) =>
        crd.status?.conditions?.some((at) => at.type === 'Established' && at.status === 'True'),
    );

    const widgets = config.makeApiClient(k8s.CustomObjectsApi);
    const kind = { group: 'example.com', version: 'v1', namespace: 'default', plural: 'widgets' };
    const widget = (name, size) => ({
        ...kind,
        body: { apiVersion: 'example.com/v1', kind: 'Widget', metadata: { name }, spec: { size } },
    });
    const created = await widgets.createNamespacedCustomObject(widget('small', 1));
    assert.deepEqual(created.spec, { size: 1, color: 'blue' });
    await assert.rejects(widgets.createNamespacedCustomObject(widget('none', 0)), (error) => {
        assert.equal(error.code, 422);
        assert.match(error.message, /should be greater than or equal to 1/);
        return true;
    });

    const listed = await widgets.listNamespacedCustomObject(kind);
    const grow = [{ op: 'replace', path: '/spec/size', value: 2 }];
    await widgets.patchNamespacedCustomObject({ ...kind, name: 'small', body: grow });
    const resourceVersion = listed.metadata.resourceVersion;
    const grown = await until(
        '/apis/example.com/v1/namespaces/default/widgets',
        (object) => object.spec.size === 2,
        { resourceVersion },
    );
    assert.equal(grown.metadata.generation, 2);
});

test('a new user has no permissions', async () => {
    const hers = new k8s.KubeConfig();
    hers.loadFromOptions({
        clusters: config.clusters,
        contexts: config.contexts,
        users: config.users.map((user) => ({ ...user, impersonateUser: 'alice' })),
        currentContext: config.currentContext,
    });
    const pods = hers.makeApiClient(k8s.CoreV1Api).listNamespacedPod({ namespace: 'default' });
    await assert.rejects(pods, (error) => {
        assert.equal(error.code, 403);
        assert.match(error.message, /alice.* cannot list resource/);
        return true;
    });
});

test('a Deployment becomes ready', async () => {
    const labels = { app: 'web' };
    const body = {
        metadata: { name: 'web' },
        spec: {
            replicas: 3,
            selector: { matchLabels: labels },
            template: {
                metadata: { labels },
                spec: { containers: [{ name: 'web', image: 'nginx' }] },
            },
        },
    };
    await config.makeApiClient(k8s.AppsV1Api).createNamespacedDeployment({ namespace: 'default', body });
    await until('/apis/apps/v1/namespaces/default/deployments', (web) => web.status?.readyReplicas === 3);
    const core = config.makeApiClient(k8s.CoreV1Api);
    const pods = await core.listNamespacedPod({ namespace: 'default', labelSelector: 'app=web' });
    assert.deepEqual(pods.items.map((pod) => pod.status.phase), ['Running', 'Running', 'Running']);
    assert.ok(pods.items.every((pod) => pod.spec.nodeName));
});
