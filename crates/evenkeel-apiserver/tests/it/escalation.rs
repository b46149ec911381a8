//! No user can grant permissions that the user does not hold.

use evenkeel_apiserver::{Server, User};
use http::StatusCode;
use serde_json::{Value, json};

use crate::Client;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const GROUP: &str = "rbac.authorization.k8s.io";

/// A server, and its users.
struct World {
    server: Server,
    admin: Client,
}

impl World {
    async fn start() -> Self {
        let server = Server::builder().build().await.expect("a server in memory");
        let admin = Client(server.service());
        Self { server, admin }
    }

    /// Returns a client of a user without further groups.
    fn user(&self, name: &str) -> Client {
        Client(self.server.service_as(User::authenticated(name, [])))
    }

    /// Returns a client of a user with these rules in all namespaces.
    async fn granted(&self, name: &str, rules: Value) -> Client {
        self.admin.make(&format!("{RBAC}/clusterroles"), role(name, rules)).await;
        let binding = binding(name, "ClusterRole", name, name);
        self.admin.make(&format!("{RBAC}/clusterrolebindings"), binding).await;
        self.user(name)
    }

    /// Returns a client of a user who may write every role and every binding.
    async fn writer(&self, name: &str) -> Client {
        self.granted(name, json!([writes()])).await
    }
}

/// Returns a rule for all verbs on roles and bindings, except for the verbs that the escalation check requires.
fn writes() -> Value {
    rule(
        GROUP,
        &["clusterroles", "roles", "clusterrolebindings", "rolebindings"],
        &["create", "get", "list", "update", "patch", "delete"],
    )
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
}

fn role(name: &str, rules: Value) -> Value {
    let mut role = json!({"metadata": {"name": name}});
    role["rules"] = rules;
    role
}

fn binding(name: &str, kind: &str, role: &str, user: &str) -> Value {
    json!({"metadata": {"name": name}, "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role},
        "subjects": [{"apiGroup": GROUP, "kind": "User", "name": user}]})
}

fn applied(kind: &str, mut object: Value) -> Value {
    object["apiVersion"] = json!(format!("{GROUP}/v1"));
    object["kind"] = json!(kind);
    object
}

fn in_default(plural: &str) -> String {
    format!("{RBAC}/namespaces/default/{plural}")
}

fn is_escalation(answer: &(StatusCode, Value)) -> bool {
    let words = "is attempting to grant RBAC permissions not currently held:\n";
    answer.0 == StatusCode::FORBIDDEN
        && answer.1["message"].as_str().is_some_and(|message| message.contains(words))
}

#[tokio::test(start_paused = true)]
async fn a_refused_escalation_names_what_is_missing() {
    let world = World::start().await;
    let mallory = world.writer("mallory").await;
    let dangling = binding("dangling", "ClusterRole", "gone", "mallory");
    world.admin.make(&format!("{RBAC}/clusterrolebindings"), dangling).await;
    let path = format!("{RBAC}/clusterrolebindings");
    let (code, status) = mallory
        .ask("POST", &path, binding("mine", "ClusterRole", "cluster-admin", "mallory"))
        .await;
    assert_eq!(code, StatusCode::FORBIDDEN);
    assert_eq!(
        status,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Forbidden", "code": 403,
            "details": {"name": "mine", "group": GROUP, "kind": "clusterrolebindings"},
            "message": "clusterrolebindings.rbac.authorization.k8s.io \"mine\" is forbidden: user \"mallory\" \
                (groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n\
                {APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}\n{NonResourceURLs:[\"*\"], Verbs:[\"*\"]}; \
                resolution errors: [clusterroles.rbac.authorization.k8s.io \"gone\" not found]"})
    );
    let review = json!({"spec": {"namespace": "default"}});
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let rules = mallory.make(reviews, review).await;
    // The authorizer reads a cache, whose error names the resource in the singular.
    let gone = "clusterrole.rbac.authorization.k8s.io \"gone\" not found";
    assert_eq!(rules["status"]["evaluationError"], gone);
    let rules = json!([rule("", &["pods", "secrets"], &["get", "list"])]);
    let (_, status) = mallory.ask("POST", &in_default("roles"), role("mine", rules)).await;
    let message = status["message"].as_str().unwrap_or_default();
    assert!(
        message.contains(
            "not currently held:\n{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"get\" \"list\"]}\n\
             {APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"list\"]};"
        ),
        "{message}"
    );
}

#[tokio::test(start_paused = true)]
async fn bindings_give_what_the_writer_holds_or_may_bind() {
    let world = World::start().await;
    let mallory = world.writer("mallory").await;
    let rules = json!([rule("", &["secrets"], &["get"])]);
    world.admin.make(&format!("{RBAC}/clusterroles"), role("secrets", rules.clone())).await;
    world.admin.make(&in_default("roles"), role("secrets", rules)).await;
    let cluster = format!("{RBAC}/clusterrolebindings");
    let local = in_default("rolebindings");
    for (path, kind, held) in
        [(&cluster, "ClusterRole", "mallory"), (&local, "ClusterRole", "mallory")]
    {
        assert!(is_escalation(
            &mallory.ask("POST", path, binding("b", kind, "secrets", "eve")).await
        ));
        // The counterpart: a role that the writer holds.
        mallory.make(path, binding("held", kind, held, "eve")).await;
    }
    assert!(is_escalation(
        &mallory.ask("POST", &local, binding("b", "Role", "secrets", "eve")).await
    ));
    // A role that does not exist could get any rules later.
    // As upstream, the error names the resource of the request.
    for (path, kind, plural) in
        [(&cluster, "ClusterRole", "clusterrolebindings"), (&local, "Role", "rolebindings")]
    {
        let (code, status) = mallory.ask("POST", path, binding("b", kind, "gone", "eve")).await;
        let message = format!("{plural}.{GROUP} \"gone\" not found");
        assert_eq!((code.as_u16(), &status["message"]), (404, &json!(message)));
    }
    let mut by_name = rule(GROUP, &["clusterroles", "roles"], &["bind"]);
    by_name["resourceNames"] = json!(["secrets", "gone"]);
    let binder = world.granted("binder", json!([writes(), by_name])).await;
    binder.make(&cluster, binding("c", "ClusterRole", "secrets", "eve")).await;
    binder.make(&local, binding("c", "ClusterRole", "secrets", "eve")).await;
    binder.make(&local, binding("r", "Role", "secrets", "eve")).await;
    binder.make(&local, binding("g", "Role", "gone", "eve")).await;
    let all = binding("d", "ClusterRole", "cluster-admin", "eve");
    let refused = binder.ask("POST", &cluster, all).await;
    assert!(is_escalation(&refused));
}

#[tokio::test(start_paused = true)]
async fn every_way_to_write_a_binding_is_checked() {
    let world = World::start().await;
    let mallory = world.writer("mallory").await;
    let path = format!("{RBAC}/clusterrolebindings");
    let whole = |name: &str| binding(name, "ClusterRole", "cluster-admin", "mallory");
    world.admin.make(&path, binding("root", "ClusterRole", "cluster-admin", "root")).await;
    let root = format!("{path}/root");
    let new = format!("{path}/new");
    let refused = [
        mallory.ask("POST", &format!("{path}?dryRun=All"), whole("new")).await,
        mallory.ask("PUT", &new, whole("new")).await,
        mallory.apply(&new, applied("ClusterRoleBinding", whole("new"))).await,
        mallory.ask("PUT", &root, whole("root")).await,
        mallory.apply(&root, applied("ClusterRoleBinding", whole("root"))).await,
        mallory
            .patch(&root, "merge-patch+json", json!({"subjects": whole("root")["subjects"]}))
            .await,
        mallory
            .patch(
                &root,
                "strategic-merge-patch+json",
                json!({"subjects": whole("root")["subjects"]}),
            )
            .await,
        mallory
            .patch(
                &root,
                "json-patch+json",
                json!([{"op": "replace", "path": "/subjects/0/name", "value": "mallory"}]),
            )
            .await,
        mallory.patch(&root, "merge-patch+json", json!({"metadata": {"labels": {"a": "b"}}})).await,
    ];
    for answer in &refused {
        assert!(is_escalation(answer), "{answer:?}");
    }
    // Changes of the garbage collector, and updates without changes, are always allowed.
    for part in [json!({"finalizers": ["a.b/c"]}), json!({"finalizers": null}), json!({})] {
        let (code, answer) =
            mallory.patch(&root, "merge-patch+json", json!({"metadata": part})).await;
        assert_eq!(code, StatusCode::OK, "{answer}");
    }
    let unchanged = world.admin.get(&root).await;
    assert_eq!(unchanged["subjects"][0]["name"], "root");
    assert_eq!(world.admin.ask("GET", &new, Value::Null).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test(start_paused = true)]
async fn every_way_to_write_a_role_is_checked() {
    let world = World::start().await;
    let mallory = world.writer("mallory").await;
    let escalator = world
        .granted(
            "escalator",
            json!([writes(), rule(GROUP, &["roles", "clusterroles"], &["escalate"])]),
        )
        .await;
    let all = json!([rule("*", &["*"], &["*"])]);
    for (kind, path) in
        [("ClusterRole", format!("{RBAC}/clusterroles")), ("Role", in_default("roles"))]
    {
        world.admin.make(&path, role("empty", json!([]))).await;
        let (empty, new) = (format!("{path}/empty"), format!("{path}/new"));
        let refused = [
            mallory.ask("POST", &path, role("new", all.clone())).await,
            mallory.ask("PUT", &new, role("new", all.clone())).await,
            mallory.apply(&new, applied(kind, role("new", all.clone()))).await,
            mallory.ask("PUT", &empty, role("empty", all.clone())).await,
            mallory.apply(&empty, applied(kind, role("empty", all.clone()))).await,
            mallory.patch(&empty, "merge-patch+json", json!({"rules": all})).await,
            mallory.patch(&empty, "strategic-merge-patch+json", json!({"rules": all})).await,
            mallory
                .patch(
                    &empty,
                    "json-patch+json",
                    json!([{"op": "add", "path": "/rules", "value": all}]),
                )
                .await,
            mallory
                .ask("POST", &path, json!({"metadata": {"generateName": "x"}, "rules": all}))
                .await,
        ];
        for answer in &refused {
            assert!(is_escalation(answer), "{answer:?}");
        }
        assert!(world.admin.get(&empty).await["rules"].as_array().is_none_or(Vec::is_empty));
        // The counterparts: a role whose rules the user holds, and a user with the verb `escalate`.
        mallory.make(&path, role("held", json!([writes()]))).await;
        let (code, _) = mallory.apply(&new, applied(kind, role("new", json!([writes()])))).await;
        assert_eq!(code, StatusCode::CREATED);
        let (code, _) = mallory.ask("PUT", &empty, role("empty", json!([writes()]))).await;
        assert_eq!(code, StatusCode::OK);
        escalator.make(&path, role("all", all.clone())).await;
        let (code, _) = escalator.patch(&empty, "merge-patch+json", json!({"rules": all})).await;
        assert_eq!(code, StatusCode::OK);
    }
}

#[tokio::test(start_paused = true)]
async fn permissions_in_a_namespace_are_given_there_only() {
    let world = World::start().await;
    let (local, other) = (in_default("roles"), format!("{RBAC}/namespaces/kube-system/roles"));
    let rules = json!([writes(), rule("", &["secrets"], &["get"])]);
    world.admin.make(&local, role("owner", rules.clone())).await;
    world.admin.make(&in_default("rolebindings"), binding("o", "Role", "owner", "owner")).await;
    let owner = world.writer("owner").await;
    owner.make(&local, role("mine", rules.clone())).await;
    for path in [other, format!("{RBAC}/clusterroles")] {
        assert!(is_escalation(&owner.ask("POST", &path, role("mine", rules.clone())).await));
    }
}

#[tokio::test(start_paused = true)]
async fn aggregation_rules_are_the_administrators() {
    const MUST: &str = "must have cluster-admin privileges to use the aggregationRule";
    let world = World::start().await;
    let mallory = world.writer("mallory").await;
    let path = format!("{RBAC}/clusterroles");
    let aggregating = |name: &str| {
        let mut role = role(name, json!([]));
        role["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]});
        role
    };
    let made = world.admin.make(&path, aggregating("old")).await;
    world.admin.make(&path, role("plain", json!([]))).await;
    let (old, plain) = (format!("{path}/old"), format!("{path}/plain"));
    let mut without = made.clone();
    without.as_object_mut().expect("an object").remove("aggregationRule");
    let rule = aggregating("plain")["aggregationRule"].clone();
    let refused = [
        mallory.ask("POST", &path, aggregating("new")).await,
        mallory.apply(&format!("{path}/new"), applied("ClusterRole", aggregating("new"))).await,
        mallory.ask("PUT", &old, without).await,
        mallory.patch(&old, "merge-patch+json", json!({"metadata": {"labels": {"x": "y"}}})).await,
        mallory.patch(&plain, "merge-patch+json", json!({"aggregationRule": rule})).await,
    ];
    for (code, answer) in &refused {
        let message = answer["message"].as_str().unwrap_or_default();
        assert!(*code == StatusCode::FORBIDDEN && message.ends_with(MUST), "{answer}");
    }
    // A user with all permissions by a binding is equivalent to a member of system:masters.
    let boss = binding("boss", "ClusterRole", "cluster-admin", "boss");
    world.admin.make(&format!("{RBAC}/clusterrolebindings"), boss).await;
    let boss = world.user("boss");
    boss.make(&path, aggregating("new")).await;
    let binding = binding("more", "ClusterRole", "cluster-admin", "more");
    boss.make(&format!("{RBAC}/clusterrolebindings"), binding).await;
}

#[tokio::test(start_paused = true)]
async fn controllers_keep_writing_roles() {
    let world = World::start().await;
    let account = |name: &str| {
        let user = format!("system:serviceaccount:kube-system:{name}");
        let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system"];
        Client(world.server.service_as(User::authenticated(&user, groups)))
    };
    let path = format!("{RBAC}/clusterroles/admin");
    let rules = json!({"rules": [rule("x.example.com", &["things"], &["*"])]});
    let (code, answer) =
        account("clusterrole-aggregation-controller").patch(&path, "merge-patch+json", rules).await;
    assert_eq!(code, StatusCode::OK, "{answer}");
    let owners = json!({"metadata": {"ownerReferences": null, "finalizers": ["a.b/c"]}});
    let collector = account("generic-garbage-collector");
    let (code, answer) = collector.patch(&path, "merge-patch+json", owners).await;
    assert_eq!(code, StatusCode::OK, "{answer}");
    let rules = json!({"rules": [rule("*", &["*"], &["*"])]});
    assert!(is_escalation(&collector.patch(&path, "merge-patch+json", rules).await));
}

#[tokio::test(start_paused = true)]
async fn a_patch_that_makes_an_object_needs_the_right_to_create_it() {
    let world = World::start().await;
    let rules = json!([rule("", &["configmaps", "endpoints"], &["get", "update", "patch"])]);
    let patcher = world.granted("patcher", rules).await;
    let path = "/api/v1/namespaces/default/configmaps/new";
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}, "data": {"a": "1"}});
    let endpoints = json!({"metadata": {"name": "new"}});
    for (code, answer) in [
        patcher.apply(path, map.clone()).await,
        patcher.ask("PUT", "/api/v1/namespaces/default/endpoints/new", endpoints).await,
    ] {
        let message = answer["message"].as_str().unwrap_or_default();
        assert!(
            code == StatusCode::FORBIDDEN && message.contains("cannot create resource"),
            "{answer}"
        );
    }
    world.admin.make("/api/v1/namespaces/default/configmaps", map.clone()).await;
    assert_eq!(patcher.apply(path, map).await.0, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_name_within_another_value_opens_no_list() {
    let world = World::start().await;
    for name in ["a", "b"] {
        let secret = json!({"metadata": {"name": name}, "type": "Opaque"});
        world.admin.make("/api/v1/namespaces/default/secrets", secret).await;
    }
    let mut one = rule("", &["secrets"], &["list"]);
    one["resourceNames"] = json!(["a"]);
    let reader = world.granted("reader", json!([one])).await;
    let list = async |fields: &str| {
        let path = format!("/api/v1/namespaces/default/secrets?fieldSelector={fields}");
        let (code, answer) = reader.ask("GET", &path, Value::Null).await;
        (code.as_u16(), answer["items"].as_array().map_or(0, Vec::len))
    };
    assert_eq!(list("metadata.name%3Da").await, (200, 1));
    assert_eq!(list("metadata.name%3Db").await, (403, 0));
    assert_eq!(list(r"type!%3Dx%5C,metadata.name%3Da").await, (403, 0));
    assert_eq!(list(r"type!%3Dx%5C,metadata.name%5C%3Da").await, (403, 0));
}

#[tokio::test(start_paused = true)]
async fn signers_are_spoken_for_by_who_may() {
    let world = World::start().await;
    let certificates = "certificates.k8s.io";
    let resources = ["clustertrustbundles", "podcertificaterequests/status"];
    let writes = rule(certificates, &resources, &["create", "update", "patch"]);
    let mut signs = rule(certificates, &["signers"], &["attest", "sign"]);
    signs["resourceNames"] = json!(["a.x/*"]);
    let signer = world.granted("signer", json!([writes, signs])).await;
    let path = format!("/apis/{certificates}/v1/clustertrustbundles");
    let bundle = |signer: &str, name: &str| json!({"metadata": {"name": name}, "spec": {"signerName": signer, "trustBundle": "x"}});
    signer.make(&path, bundle("a.x/y", "a.x:y:1")).await;
    let (code, answer) = signer.ask("POST", &path, bundle("b.x/y", "b.x:y:1")).await;
    let message = answer["message"].as_str().unwrap_or_default();
    let words = "user not permitted to attest for signerName \"b.x/y\"";
    assert!(code == StatusCode::FORBIDDEN && message.ends_with(words), "{answer}");
    let path = format!("/apis/{certificates}/v1/namespaces/default/podcertificaterequests");
    for (name, signed, expected) in [("a", "a.x/y", 200), ("b", "b.x/y", 403)] {
        let spec = json!({"signerName": signed, "podName": "p", "podUID": "u", "serviceAccountName": "s", "serviceAccountUID": "u",
            "nodeName": "n", "nodeUID": "u", "maxExpirationSeconds": 86400, "stubPKCS10Request": "eA=="});
        world.admin.make(&path, json!({"metadata": {"name": name}, "spec": spec})).await;
        let status = json!({"status": {"conditions": [{"type": "Denied", "status": "True", "reason": "No", "message": "no",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
        let path = format!("{path}/{name}/status");
        let (code, answer) = signer.patch(&path, "merge-patch+json", status).await;
        assert_eq!(code.as_u16(), expected, "{answer}");
    }
}
