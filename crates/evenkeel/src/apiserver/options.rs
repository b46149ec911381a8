//! Options of the embedded API server, from kube-apiserver's flags.

use super::aggregation::{self, AggregationFlags};
use super::audit::{self, AuditFlags};
use super::storage::{self, EtcdFlags};
use crate::server::{SHARDED_LIST_AND_WATCH, ServerArgs, certificate_and_key};
use evenkeel_apiserver::AuthorizationWebhookOptions;
use evenkeel_component::{
    command_line,
    features::FeatureGates,
    flags::{Flags, InvalidFlags, ParsedFlags, Reader},
    options::LoggingOptions,
};
use std::{
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

/// Flags that this server rejects, each with the reason. Ignoring them would be dangerous, because users rely on their
/// effect.
const REFUSED: [(&str, &str); 5] = [
    ("authorization-policy-file", "there is no ABAC"),
    ("admission-control-config-file", "admission plug-ins have no configuration"),
    ("egress-selector-config-file", "there is no konnectivity"),
    ("oidc-issuer-url", "issuers are set by --authentication-config"),
    ("tls-cipher-suites", "the cipher suites cannot be chosen"),
];

/// Flags that are ignored without a warning, because they have no visible effect here: the storage backend, kubelet
/// credentials, diagnosis, and routing to endpoints, which this server always does.
const IGNORED_WITHOUT_WARNING: [&str; 7] = [
    "enable-aggregator-routing",
    "storage-backend",
    "kubelet-client-certificate",
    "kubelet-client-key",
    "kubelet-certificate-authority",
    "kubelet-preferred-address-types",
    "profiling",
];

/// Feature gates with an effect in this server.
const EFFECTIVE_GATES: [&str; 4] =
    ["LoggingAlphaOptions", "LoggingBetaOptions", "RemoteRequestHeaderUID", SHARDED_LIST_AND_WATCH];

/// Returns the flags of upstream's kube-apiserver v1.37, and this program's `--data-dir` and `--write-kubeconfig`.
pub(super) fn flags() -> Flags {
    let words = include_str!("../../data/kube-apiserver.words.tsv");
    Flags::from_table(include_str!("../../data/kube-apiserver.own.tsv"), words)
        .with_own(include_str!("../../data/kube-apiserver.flags.tsv"), words)
}

/// Validated options, including defaults.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) listen: SocketAddr,
    pub(super) advertise: Option<IpAddr>,
    pub(super) data_dir: Option<PathBuf>,
    pub(super) kubeconfig: Option<PathBuf>,
    /// Files of the certificate chain and of its key.
    pub(super) certificate: Option<[PathBuf; 2]>,
    pub(super) server: ServerArgs,
    /// `--max-requests-inflight`: limit on concurrent read requests.
    pub(super) max_reads_in_flight: usize,
    /// `--max-mutating-requests-inflight`: limit on concurrent write requests.
    pub(super) max_writes_in_flight: usize,
    pub(super) priority_and_fairness: bool,
    pub(super) event_ttl: Duration,
    /// Whether `shardSelector` has an effect.
    pub(super) sharded_list_and_watch: bool,
    pub(super) audit: Option<AuditFlags>,
    /// Store in etcd; `None` if the server keeps the objects itself.
    pub(super) etcd: Option<EtcdFlags>,
    pub(super) aggregation: AggregationFlags,
    pub(super) logging: LoggingOptions,
    pub(super) parsed_flags: ParsedFlags,
    /// Warnings to log at the start.
    pub(super) warnings: Vec<String>,
}

impl Options {
    /// Validates the flags. `exists` returns whether a file exists.
    ///
    /// # Errors
    /// Returns all invalid flags.
    pub(super) fn check(
        parsed: ParsedFlags,
        exists: impl Fn(&Path) -> bool,
    ) -> Result<Self, InvalidFlags> {
        let read = Reader::new(parsed);
        let requested = read.map("feature-gates");
        let (gates, mut warnings) =
            FeatureGates::resolve(&[], &[], &requested).record_errors(&read);
        warnings.extend(gate_warnings(&requested));
        for (flag, why) in REFUSED {
            if read.parsed().names().any(|name| name == flag) {
                read.record_invalid(flag, format!("--{flag} is not in this server: {why}"));
            }
        }
        if !matches!(&*read.text("tls-min-version"), "" | "VersionTLS12") {
            read.record_invalid(
                "tls-min-version",
                "--tls-min-version must be VersionTLS12 in this server",
            );
        }
        // Privileged containers are always allowed.
        if !read.bool("allow-privileged") {
            read.mark_unimplemented(&["allow-privileged"]);
        }
        let certificate = certificate(&read, &exists);
        let kubeconfig = read.non_empty_text("write-kubeconfig").map(PathBuf::from);
        if kubeconfig.is_some() && certificate.is_some() {
            let why = "--write-kubeconfig needs a certificate of the server's own authority";
            read.record_invalid("write-kubeconfig", why);
        }
        let options = Self {
            listen: SocketAddr::new(read.ip("bind-address"), port(&read)),
            advertise: Some(read.ip("advertise-address")).filter(|ip| !ip.is_unspecified()),
            data_dir: read.non_empty_text("data-dir").map(PathBuf::from),
            kubeconfig,
            certificate,
            server: server_args(&read),
            max_reads_in_flight: in_flight_limit(&read, "max-requests-inflight"),
            max_writes_in_flight: in_flight_limit(&read, "max-mutating-requests-inflight"),
            priority_and_fairness: read.bool("enable-priority-and-fairness"),
            event_ttl: read.duration("event-ttl"),
            sharded_list_and_watch: gates.enabled(SHARDED_LIST_AND_WATCH),
            audit: audit::flags(&read),
            etcd: storage::flags(&read),
            aggregation: aggregation::flags(&read, &gates),
            logging: LoggingOptions::from_flags(&read, &gates),
            parsed_flags: read.parsed().clone(),
            warnings: Vec::new(),
        };
        let unimplemented: Vec<&str> = read
            .unimplemented_flags()
            .into_iter()
            .filter(|flag| !IGNORED_WITHOUT_WARNING.contains(flag))
            .collect();
        warnings.extend(options.aggregation.request_header.warnings());
        read.done()?;
        warnings.extend(command_line::warnings(&options.parsed_flags, &unimplemented));
        Ok(Self { warnings, ..options })
    }
}

/// Returns a warning for each requested feature gate without effect. `requested` has pairs of component and `Gate=true`.
fn gate_warnings(requested: &[(String, String)]) -> impl Iterator<Item = String> {
    let names = requested.iter().filter_map(|(_, pair)| pair.split_once('='));
    let inert = names
        .map(|(name, _)| name.trim())
        .filter(|name| !EFFECTIVE_GATES.contains(name) && !matches!(*name, "AllAlpha" | "AllBeta"));
    inert.map(|name| format!("the feature gate {name} is accepted, but has no effect here"))
}

fn port(read: &Reader) -> u16 {
    let port = read.int("secure-port");
    u16::try_from(port).unwrap_or_else(|_| {
        let why = format!("--secure-port {port} must be between 1 and 65535, inclusive");
        read.record_invalid("secure-port", why);
        0
    })
}

fn in_flight_limit(read: &Reader, flag: &str) -> usize {
    let limit = read.int(flag);
    usize::try_from(limit).unwrap_or_else(|_| {
        read.record_invalid(flag, format!("--{flag} can not be negative value"));
        0
    })
}

/// Returns the maximum size of all objects; `None` for the default, which 0 means too, as for etcd.
fn quota_backend_bytes(read: &Reader) -> Option<u64> {
    let bytes = read.int("quota-backend-bytes");
    if bytes < 0 {
        let why = "--quota-backend-bytes must not be negative: 0 is the default, 8 GiB";
        read.record_invalid("quota-backend-bytes", why);
    }
    u64::try_from(bytes).ok().filter(|bytes| *bytes > 0)
}

/// Returns the files of the serving certificate: the ones that flags name, or else those in `--cert-dir` if both exist.
fn certificate(read: &Reader, exists: &impl Fn(&Path) -> bool) -> Option<[PathBuf; 2]> {
    let folder = PathBuf::from(read.text("cert-dir"));
    certificate_and_key(read, "tls-cert-file", "tls-private-key-file").or_else(|| {
        let files = ["apiserver.crt", "apiserver.key"].map(|name| folder.join(name));
        files.iter().all(|file| exists(file)).then_some(files)
    })
}

/// Flags that `--authorization-config` excludes.
const AUTHORIZATION_FLAGS: [&str; 5] = [
    "authorization-mode",
    "authorization-webhook-config-file",
    "authorization-webhook-version",
    "authorization-webhook-cache-authorized-ttl",
    "authorization-webhook-cache-unauthorized-ttl",
];

/// Reads the file that configures the authorizers, and the options of the mode `Webhook`.
///
/// Upstream: `BuiltInAuthorizationOptions.Validate`.
fn authorization(read: &Reader) -> (Option<PathBuf>, Option<AuthorizationWebhookOptions>) {
    let config = read.non_empty_text("authorization-config").map(PathBuf::from);
    let has_others = read.parsed().names().any(|name| AUTHORIZATION_FLAGS.contains(&name));
    if config.is_some() && has_others {
        read.record_invalid(
            "authorization-config",
            "--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined",
        );
    }
    let version = read.text("authorization-webhook-version");
    let cache_authorized_ttl = read.duration("authorization-webhook-cache-authorized-ttl");
    let cache_unauthorized_ttl = read.duration("authorization-webhook-cache-unauthorized-ttl");
    let webhook = read.non_empty_text("authorization-webhook-config-file").map(|path| {
        AuthorizationWebhookOptions {
            config_file: path.into(),
            version,
            cache_authorized_ttl,
            cache_unauthorized_ttl,
        }
    });
    (config, webhook)
}

/// Reads the flags that `evenkeel up` also has.
fn server_args(read: &Reader) -> ServerArgs {
    let path = |flag| read.non_empty_text(flag).map(PathBuf::from);
    let anonymous = read.bool("anonymous-auth");
    let is_set = |flag: &str| read.parsed().names().any(|name| name == flag);
    let enable_admission_plugins = read.list("enable-admission-plugins");
    let mut disable_admission_plugins = read.list("disable-admission-plugins");
    // Upstream enables this plug-in only on request.
    let node_restriction = "NodeRestriction".to_owned();
    if !enable_admission_plugins.contains(&node_restriction)
        && !disable_admission_plugins.contains(&node_restriction)
    {
        disable_admission_plugins.push(node_restriction);
    }
    let (authorization_config, authorization_webhook) = authorization(read);
    ServerArgs {
        authorization_config,
        authorization_webhook,
        token_auth_file: path("token-auth-file"),
        authentication_config: path("authentication-config"),
        anonymous_auth: is_set("anonymous-auth").then_some(anonymous),
        enable_bootstrap_token_auth: read.bool("enable-bootstrap-token-auth"),
        client_ca_file: path("client-ca-file"),
        service_account_signing_key_file: path("service-account-signing-key-file"),
        service_account_key_file: read
            .list("service-account-key-file")
            .into_iter()
            .map(PathBuf::from)
            .collect(),
        service_account_issuer: read.list("service-account-issuer"),
        service_account_jwks_uri: read.non_empty_text("service-account-jwks-uri"),
        api_audiences: read.list("api-audiences"),
        encryption_provider_config: path("encryption-provider-config"),
        enable_admission_plugins,
        disable_admission_plugins,
        authorization_mode: read.list("authorization-mode"),
        service_cluster_ip_range: read.non_empty_text("service-cluster-ip-range"),
        quota_backend_bytes: quota_backend_bytes(read),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_component::flags::Invocation;

    /// Parses and validates flags. Only files below `/there` exist.
    fn check(arguments: &[&str]) -> Result<Options, String> {
        let arguments = arguments.iter().map(|&argument| argument.to_owned());
        let invocation =
            flags().parse("kube-apiserver", arguments).map_err(|error| error.to_string())?;
        let Invocation::Run(parsed) = invocation else { panic!("it is to run") };
        Options::check(parsed, |file| file.starts_with("/there")).map_err(|error| error.to_string())
    }

    #[test]
    fn the_flags_of_envtest_cause_no_warning() {
        let options = check(&[
            "--advertise-address=127.0.0.1",
            "--allow-privileged=true",
            "--authorization-mode=RBAC",
            "--bind-address=127.0.0.1",
            "--cert-dir=/there",
            "--client-ca-file=/there/client-cert-auth-ca.crt",
            "--disable-admission-plugins=ServiceAccount",
            "--etcd-servers=http://127.0.0.1:2379",
            "--secure-port=8443",
            "--service-account-issuer=https://127.0.0.1:8443/",
            "--service-account-key-file=/there/sa-signer.crt",
            "--service-account-signing-key-file=/there/sa-signer.key",
            "--service-cluster-ip-range=10.0.0.0/24",
        ])
        .expect("they are allowed");
        assert_eq!(options.warnings, Vec::<String>::new());
        assert_eq!(options.listen.to_string(), "127.0.0.1:8443");
        let names = ["apiserver.crt", "apiserver.key"];
        assert_eq!(options.certificate, Some(names.map(|name| Path::new("/there").join(name))));
        assert_eq!(options.server.authorization_mode, ["RBAC"]);
        let disabled = ["ServiceAccount", "NodeRestriction"];
        assert_eq!(options.server.disable_admission_plugins, disabled);
        assert_eq!(options.server.service_cluster_ip_range.as_deref(), Some("10.0.0.0/24"));
        assert!(options.etcd.is_some());
        assert_eq!((options.max_reads_in_flight, options.max_writes_in_flight), (400, 200));
        assert!(options.priority_and_fairness);
    }

    #[test]
    fn a_flag_without_effect_causes_a_warning_or_is_refused() {
        let options = check(&["--runtime-config=api/all=true", "--goaway-chance=0.01"]);
        let warnings = options.expect("they are allowed").warnings;
        let expected = ["goaway-chance", "runtime-config"]
            .map(|flag| format!("--{flag} is accepted, but has no effect here"));
        assert_eq!(warnings, expected);
        for (arguments, why) in [
            (&["--oidc-issuer-url=a"] as &[_], "issuers are set by --authentication-config"),
            (
                &["--authorization-config=a", "--authorization-mode=RBAC"],
                "--authorization-config can not be specified when",
            ),
            (
                &["--authorization-config=a", "--authorization-webhook-cache-authorized-ttl=1s"],
                "--authorization-config can not be specified when",
            ),
            (
                &["--audit-log-path=a", "--audit-log-mode=never"],
                "invalid audit log mode never, allowed modes are",
            ),
            (
                &["--audit-log-path=a", "--audit-log-maxsize=-1"],
                "--audit-log-maxsize -1 can't be a negative number",
            ),
            (&["--audit-log-format=legacy"], "--audit-log-format must be json"),
            (&["--audit-webhook-truncate-enabled"], "events are not truncated"),
            (&["--tls-min-version=VersionTLS13"], "--tls-min-version must be VersionTLS12"),
            (&["--tls-cert-file=a"], "must be set together"),
            (&["--secure-port=70000"], "--secure-port 70000 must be between"),
            (&["--max-requests-inflight=-1"], "can not be negative value"),
            (&["--cert-dir=/there", "--write-kubeconfig=a"], "needs a certificate"),
            (&["--nothing=1"], "unknown flag: --nothing"),
            (&["--etcd-servers=http://a:1", "--etcd-certfile=a"], "must be set together"),
            (
                &["--etcd-servers=http://a:1", "--storage-media-type=application/json"],
                "--storage-media-type must be application/vnd.kubernetes.protobuf",
            ),
            (&["--etcd-servers-overrides=/events#http://a:1"], "all objects are at --etcd-servers"),
            (&["--etcd-prefix=/"], "--etcd-prefix must not be empty"),
            (&["--proxy-client-cert-file=a"], "must be set together"),
            (
                &["--requestheader-group-headers= "],
                "empty value in \"requestheader-group-headers\"",
            ),
            (
                &["--requestheader-uid-headers=X-Uid"],
                "--requestheader-uid-headers is set without specifying the standard X-Remote-Uid header - API aggregation will not work",
            ),
        ] {
            let error = check(arguments).expect_err(why);
            assert!(error.contains(why), "{arguments:?}: {error}");
        }
    }

    #[test]
    fn a_feature_gate_takes_effect_or_causes_a_warning() {
        let gates = |text: &str| check(&[&format!("--feature-gates={text}")]);
        let inert =
            |name: &str| format!("the feature gate {name} is accepted, but has no effect here");
        for (text, is_sharded, warnings) in [
            ("ShardedListAndWatch=true", true, vec![]),
            ("kube:ShardedListAndWatch=false", false, vec![]),
            ("WatchList=false", false, vec![inert("WatchList")]),
            (
                "AllowServiceExternalIPs=true, ShardedListAndWatch=true",
                true,
                vec![
                    "setting GA feature gate AllowServiceExternalIPs=true. It will be removed in a future release."
                        .to_owned(),
                    inert("AllowServiceExternalIPs"),
                ],
            ),
        ] {
            let options = gates(text).expect(text);
            assert_eq!(options.sharded_list_and_watch, is_sharded, "{text}");
            assert_eq!(options.warnings, warnings, "{text}");
        }
        assert!(!check(&[]).expect("allowed").sharded_list_and_watch);
        let error = gates("Nothing=true").expect_err("no gate");
        assert!(error.contains("unrecognized feature gate: Nothing"), "{error}");
    }

    #[test]
    fn the_flags_of_aggregation_are_those_of_kubeadm() {
        let options = check(&[
            "--enable-aggregator-routing=true",
            "--proxy-client-cert-file=/there/front-proxy-client.crt",
            "--proxy-client-key-file=/there/front-proxy-client.key",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-client-ca-file=/there/front-proxy-ca.crt",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-username-headers=X-Remote-User",
        ])
        .expect("they are allowed");
        assert_eq!(options.warnings, Vec::<String>::new());
        let AggregationFlags { proxy_client, forward_redirects, request_header } =
            options.aggregation;
        let files = ["front-proxy-client.crt", "front-proxy-client.key"];
        assert_eq!(proxy_client, Some(files.map(|name| Path::new("/there").join(name))));
        assert!(!forward_redirects);
        assert_eq!(request_header.client_ca.as_deref(), Some("/there/front-proxy-ca.crt"));
        assert_eq!(request_header.allowed_names, ["front-proxy-client"]);
        assert_eq!(request_header.username, ["X-Remote-User"]);
        let options = check(&["--requestheader-username-headers=X-User"]).expect("allowed");
        let warning = "--requestheader-username-headers is set without specifying the standard X-Remote-User header - API aggregation will not work";
        assert_eq!(options.warnings, [warning]);
    }

    #[test]
    fn every_flag_has_a_description() {
        for flag in flags().iter() {
            assert!(!flag.description.is_empty(), "{}", flag.name);
        }
        for flag in REFUSED.map(|(flag, _)| flag).iter().chain(&IGNORED_WITHOUT_WARNING) {
            assert!(flags().get(flag).is_some(), "{flag} is not a flag of upstream");
        }
    }
}
